"""Leases on every kind."""

from holdfast.testing.conformance.leases import *  # noqa: F403
