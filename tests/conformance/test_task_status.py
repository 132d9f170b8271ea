"""The status of tasks on every kind."""

from holdfast.testing.conformance.task_status import *  # noqa: F403
