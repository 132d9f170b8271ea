"""Bad input on every kind."""

from holdfast.testing.conformance.bad_input import *  # noqa: F403
