"""Mail at its edges on every kind."""

from holdfast.testing.conformance.mail_edges import *  # noqa: F403
