"""The locks of stashes as fences on every kind."""

from holdfast.testing.conformance.stash_fences import *  # noqa: F403
