"""Trails on every kind."""

from holdfast.testing.conformance.trails import *  # noqa: F403
