"""Agents on every kind."""

from holdfast.testing.conformance.agents import *  # noqa: F403
