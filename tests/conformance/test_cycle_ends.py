"""How cycles are listed, resumed and deleted on every kind."""

from holdfast.testing.conformance.cycle_ends import *  # noqa: F403
