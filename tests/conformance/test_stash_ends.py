"""The ends of stashes, and what they share with every write, on every kind."""

from holdfast.testing.conformance.stash_ends import *  # noqa: F403
