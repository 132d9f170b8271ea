"""What the next agent finds, on every kind."""

from holdfast.testing.conformance.resume import *  # noqa: F403
