"""Stashes on every kind."""

from holdfast.testing.conformance.stashes import *  # noqa: F403
