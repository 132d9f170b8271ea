"""The steps of cycles on every kind."""

from holdfast.testing.conformance.cycle_steps import *  # noqa: F403
