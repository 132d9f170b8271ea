"""Conflicts of cycles on every kind."""

from holdfast.testing.conformance.cycle_conflicts import *  # noqa: F403
