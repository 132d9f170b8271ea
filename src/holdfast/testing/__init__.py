"""For tests: `ManualClock`, and the conformance suite that every kind of workspace passes.

`holdfast.testing.conformance` holds the suite as pytest tests; each takes a `world`, which opens workspaces of one
kind. Whoever writes a new kind (a log adapter, say) gives a World and runs the same tests.
"""

from holdfast.testing.clock import ManualClock

__all__ = ["ManualClock"]
