"""For tests: `ManualClock`, and the conformance suite that every kind of workspace passes.

`holdfast.testing.conformance` holds the suite as pytest tests; each takes a `world`, which opens workspaces of one
kind. Whoever writes a new kind (a log adapter, say) gives a World and runs the same tests. `FaultyLog` wraps a log to
misbehave as networks do.
"""

from holdfast.testing.clock import ManualClock
from holdfast.testing.faulty_log import FaultyLog

__all__ = ["FaultyLog", "ManualClock"]
