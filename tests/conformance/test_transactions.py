"""Transactions on every kind."""

from holdfast.testing.conformance.transactions import *  # noqa: F403
