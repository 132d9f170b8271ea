"""The shield: signals wait until it is lowered, none is lost, and handlers are left as they were."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what the shield calls
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from holdfast.kernel.signals import SHIELD


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the handler of SIGUSR1 heard."""
    heard: list[str] = []

    def handler(number: int, frame: FrameType | None) -> None:
        heard.append("signal")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGUSR1, before)


def strike() -> None:
    signal.raise_signal(signal.SIGUSR1)


def strike_and_note(heard: list[str]) -> None:
    strike()
    heard.append("done")


def test_a_signal_inside_the_shield_is_heard_when_it_ends(heard: list[str]) -> None:
    with SHIELD:
        with SHIELD:
            strike()
        heard.append("inside")
    assert heard == ["inside", "signal"]


def test_a_window_lets_signals_through_and_closes_again(heard: list[str]) -> None:
    with SHIELD:
        strike()
        with SHIELD.window():
            heard.append("window")
            strike()
        strike()
        heard.append("inside")
    assert heard == ["signal", "window", "signal", "inside", "signal"]


def test_what_a_handler_raises_comes_out_at_the_end_and_the_next_shield_works(heard: list[str]) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(InterruptedError), SHIELD:
        strike_and_note(heard)
    with pytest.raises(InterruptedError), SHIELD, SHIELD.window():
        strike()
    with SHIELD:
        heard.append("again")
    assert heard == ["done", "again"]
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_handler_that_was_changed_or_ignored_meanwhile_stays_so(heard: list[str]) -> None:
    with SHIELD:
        pass
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with SHIELD:
        strike()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert heard == []


def test_other_threads_pass_without_touching_handlers(heard: list[str]) -> None:
    seen: list[object] = []

    def work() -> None:
        with SHIELD, SHIELD.window():
            seen.append(signal.getsignal(signal.SIGUSR1))

    mine = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [mine]


def test_lowering_that_a_signal_interrupts_keeps_the_other_handlers(
    heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, restored = signal.getsignal(signal.SIGINT), _signal.signal

    def struck(number: int, handler: object) -> object:
        """What a signal does whose handler is the first to be restored."""
        if number == signal.SIGINT and handler is before:
            monkeypatch.undo()
            raise InterruptedError
        return restored(number, handler)

    with pytest.raises(InterruptedError), SHIELD:
        monkeypatch.setattr(_signal, "signal", struck)
    with SHIELD:
        strike_and_note(heard)
    assert heard == ["done", "signal"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_is_changed_in_a_window_which_a_signal_ends_stays(heard: list[str]) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    def change_and_strike() -> None:
        with SHIELD.window():
            signal.signal(signal.SIGUSR1, handler)
        strike()
        with SHIELD.window():
            heard.append("window")

    with pytest.raises(InterruptedError), SHIELD:
        change_and_strike()
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert heard == []
