"""Blocks on every kind."""

from holdfast.testing.conformance.blocks import *  # noqa: F403
