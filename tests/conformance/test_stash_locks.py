"""Stashes that are locks on every kind."""

from holdfast.testing.conformance.stash_locks import *  # noqa: F403
