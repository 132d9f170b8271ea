"""Claims on every kind."""

from holdfast.testing.conformance.claims import *  # noqa: F403
