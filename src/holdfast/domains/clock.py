"""`ws.clock`: putting right a workspace whose time has run ahead because a machine's clock was wrong."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast import errors
from holdfast.kernel import actors, leases
from holdfast.kernel.clock import FAR_AHEAD
from holdfast.kernel.tx import Tx
from holdfast.ops import Domain, M, write
from holdfast.types.base import as_time


def reset_clock(tx: Tx) -> datetime:
    """Accept this machine's clock as the present and shift every deadline with it; answers the new time.

    Only where the workspace's time lies more than 5 minutes ahead; otherwise there is nothing to put right.
    """
    before, after = tx.now, tx.wall_clock()
    if before - after <= FAR_AHEAD:
        raise errors.Invalid("the workspace's time is not more than 5 minutes ahead", hint="nothing needs to be done")
    if tx.events:
        raise errors.Invalid("a reset must come first in its transaction", hint="call ws.clock.reset() by itself")
    leases.shift(tx, after - before)
    tx.now = after
    actors.settle(tx)
    tx.emit("clock", "clock", "reset", data=msgspec.msgpack.encode({"time": [before, after]}))
    return as_time(after)


class ClockOps(Domain[M]):
    """`ws.clock`."""

    prefix = "clock"
    reset = write(reset_clock, http="POST /api/clock/reset", cli="clock reset")
