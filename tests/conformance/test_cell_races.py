"""Races for cells on every kind."""

from holdfast.testing.conformance.cell_races import *  # noqa: F403
