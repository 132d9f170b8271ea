"""Path locks on every kind."""

from holdfast.testing.conformance.paths import *  # noqa: F403
