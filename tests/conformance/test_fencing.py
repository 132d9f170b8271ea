"""Fencing tokens on every kind."""

from holdfast.testing.conformance.fencing import *  # noqa: F403
