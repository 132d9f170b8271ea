"""Tasks on every kind."""

from holdfast.testing.conformance.tasks import *  # noqa: F403
