"""Links on every kind."""

from holdfast.testing.conformance.links import *  # noqa: F403
