"""Writes of cycles on every kind."""

from holdfast.testing.conformance.cycle_writes import *  # noqa: F403
