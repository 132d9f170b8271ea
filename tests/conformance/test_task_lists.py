"""Lists, bulk calls, retention and templates on every kind."""

from holdfast.testing.conformance.task_lists import *  # noqa: F403
