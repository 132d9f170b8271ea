"""The tree of tasks and what waits for what, on every kind."""

from holdfast.testing.conformance.task_tree import *  # noqa: F403
