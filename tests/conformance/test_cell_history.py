"""What cells remember, and how they end, on every kind."""

from holdfast.testing.conformance.cell_history import *  # noqa: F403
