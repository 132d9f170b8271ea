"""Mail on every kind."""

from holdfast.testing.conformance.mail import *  # noqa: F403
