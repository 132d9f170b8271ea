"""Idempotency keys on every kind."""

from holdfast.testing.conformance.idempotency import *  # noqa: F403
