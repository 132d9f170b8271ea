"""Path locks over time on every kind."""

from holdfast.testing.conformance.path_lines import *  # noqa: F403
