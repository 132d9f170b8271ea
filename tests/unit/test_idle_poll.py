"""A process with many open workspaces does not poll more for each of them."""

from __future__ import annotations

from contextlib import ExitStack

import holdfast
from holdfast.kernel.wake import IDLE_POLL, IDLE_SHARE, WATCHED_POLL, _pulses


def test_idle_workspaces_share_what_a_process_polls_and_a_watched_one_does_not_wait() -> None:
    few = round(IDLE_POLL / IDLE_SHARE)
    with ExitStack() as opened:
        ws = opened.enter_context(holdfast.open(":memory:", actor="ann"))
        pulse = ws._engine.pulse
        assert len(_pulses) < few
        assert pulse._patience() == IDLE_POLL
        for _ in range(few + 10 - len(_pulses)):
            opened.enter_context(holdfast.open(":memory:", actor="ann"))
        assert pulse._patience() == IDLE_SHARE * len(_pulses) > IDLE_POLL
        with ws.watch():
            assert pulse._patience() == WATCHED_POLL
    assert pulse not in _pulses
