"""Exports and imports of tasks on every kind."""

from holdfast.testing.conformance.task_import import *  # noqa: F403
