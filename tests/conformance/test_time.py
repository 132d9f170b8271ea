"""Time on every kind."""

from holdfast.testing.conformance.time import *  # noqa: F403
