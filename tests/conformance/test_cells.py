"""Cells on every kind."""

from holdfast.testing.conformance.cells import *  # noqa: F403
