"""A claim, a path lock and a message in one commit, on every kind."""

from holdfast.testing.conformance.one_commit import *  # noqa: F403
