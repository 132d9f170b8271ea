"""For your own tests: a clock that stands still, the contract that a commit log must keep, and a log that misbehaves.

`ManualClock` moves only when told to. `log_contract` holds the tests that every log adapter must pass. `FaultyLog`
wraps a log to fail as networks do.
"""

from holdfast.testing.clock import ManualClock
from holdfast.testing.faulty_log import FaultyLog

__all__ = ["FaultyLog", "ManualClock"]
