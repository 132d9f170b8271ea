"""Locks on every kind."""

from holdfast.testing.conformance.locks import *  # noqa: F403
