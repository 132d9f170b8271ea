"""Conditional transactions on every kind."""

from holdfast.testing.conformance.txn import *  # noqa: F403
