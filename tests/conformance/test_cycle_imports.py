"""How cycles come from elsewhere, on every kind."""

from holdfast.testing.conformance.cycle_imports import *  # noqa: F403
