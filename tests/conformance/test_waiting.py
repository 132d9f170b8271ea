"""Waiting for locks on every kind."""

from holdfast.testing.conformance.waiting import *  # noqa: F403
