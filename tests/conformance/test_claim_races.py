"""Races for tasks on every kind."""

from holdfast.testing.conformance.claim_races import *  # noqa: F403
