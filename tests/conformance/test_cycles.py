"""Cycles on every kind."""

from holdfast.testing.conformance.cycles import *  # noqa: F403
