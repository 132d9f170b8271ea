"""Watching on every kind."""

from holdfast.testing.conformance.watch import *  # noqa: F403
