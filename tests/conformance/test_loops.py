"""Event loops on every kind."""

from holdfast.testing.conformance.loops import *  # noqa: F403
