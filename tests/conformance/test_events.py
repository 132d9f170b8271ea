"""The event log on every kind."""

from holdfast.testing.conformance.events import *  # noqa: F403
