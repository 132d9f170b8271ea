"""The pulse of each open workspace, and the ticker: the few threads that let all workspaces of a process beat.

A pulse notices commits of other processes, follows the log of a replicated workspace, and starts a sweep at the next
deadline. The number of threads does not depend on how many workspaces are open. One thread leads: it waits for the next
pulse that is due or woken, and looks what is new there, which waits for nobody. If there is work that may wait, for the
turn or for an engine, the leader lets another thread lead and does it itself. So no hand-over delays the work, and a
workspace that cannot be written holds up no other one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from threading import get_ident
from typing import Any

import apsw

from holdfast import errors
from holdfast.clock import Now, Signal, SystemClock
from holdfast.kernel.journal import Journal
from holdfast.kernel.leases import next_deadline
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.store import Store
from holdfast.kernel.translation import translate
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.wake import Hub

WATCHED_POLL = 0.005
IDLE_POLL = 0.25
IDLE_SHARE = 0.0025  # seconds for each open workspace: all idle ones of a process together poll 400 times a second
AGE_EVERY = 6 * 3600 * 1_000_000
RETRY_SWEEP = 1_000_000
MAX_THREADS = 32  # all but the leader may be waiting for a turn or an engine
_now = SystemClock().monotonic  # real time, also in tests with a clock of their own


class Ticker:
    """The threads of this process that let pulses beat."""

    def __init__(self) -> None:
        self._woken: deque[Pulse] = deque()
        self._rested: deque[Pulse] = deque()  # to be due after their patience
        self._due: list[tuple[int, int, Pulse]] = []  # a heap, for the leader alone; an entry may be out of date
        self._numbers = count()
        self._signal = Signal()  # for the leader
        self._lead = threading.Lock()
        self._lock = threading.Lock()  # over what follows; nobody waits for anything else while holding it
        self._pulses: set[Pulse] = set()
        self._threads = 0
        self._spare = 0  # threads that wait for the lead
        self._backlog: deque[Pulse] = deque()  # with work, while no thread is left for it

    def __len__(self) -> int:
        return len(self._pulses)

    def __contains__(self, pulse: Pulse) -> bool:
        return pulse in self._pulses

    def add(self, pulse: Pulse) -> None:
        """Let a pulse beat, for the first time after its patience."""
        with SHIELD, self._lock:
            self._pulses.add(pulse)
            self._rested.append(pulse)
            if not self._threads:
                self._start()
        self._signal.set()

    def discard(self, pulse: Pulse) -> None:
        """Forget a pulse; with the last one the threads end."""
        with SHIELD, self._lock:
            self._pulses.discard(pulse)
        self._signal.set()

    def wake(self, pulse: Pulse) -> None:
        """Let a pulse beat now. Takes no lock, so that any thread may call it at any moment."""
        self._woken.append(pulse)
        self._signal.set()

    def _start(self) -> None:
        self._threads += 1
        self._spare += 1
        threading.Thread(target=self._run, name="holdfast-pulse", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lead:
                with self._lock:
                    self._spare -= 1
                pulse = self._find_work()
            while pulse is not None:
                pulse.work()
                pulse = self._done(pulse)
            with self._lock:
                if self._spare or not self._pulses:
                    self._threads -= 1
                    break
                self._spare += 1
        self._signal.set()  # the one that leads now may have to end too

    def _find_work(self) -> Pulse | None:
        """Lead until a pulse has work for this thread, or no pulse is left (None)."""
        while self._pulses:
            while self._rested:
                self._schedule(self._rested.popleft())
            for pulse in self._take_due():
                if pulse not in self._pulses or self._is_working(pulse):  # one that never began is woken too
                    continue
                if not pulse.look():
                    self._schedule(pulse)
                elif self._may_leave(pulse):
                    return pulse
            if not self._woken and not self._rested:
                self._signal.wait(None if not self._due else (self._due[0][0] - _now()) / 1e6)
        return None

    def _take_due(self) -> Iterator[Pulse]:
        """Each pulse that was woken or is due."""
        for _ in range(len(self._woken)):
            yield self._woken.popleft()
        from heapq import heappop  # here: a process that beats never does without it

        now = _now()
        while self._due and self._due[0][0] <= now:
            due, _, pulse = heappop(self._due)
            if pulse.due == due:
                pulse.due = None
                yield pulse

    def _schedule(self, pulse: Pulse) -> None:
        from heapq import heappush

        due = _now() + round(pulse.patience() * 1e6)
        if pulse in self._pulses and (pulse.due is None or due < pulse.due):
            pulse.due = due
            heappush(self._due, (due, next(self._numbers), pulse))

    def _is_working(self, pulse: Pulse) -> bool:
        with self._lock:
            pulse.again |= pulse.working
            return pulse.working

    def _may_leave(self, pulse: Pulse) -> bool:
        """Whether this thread may do the work of a pulse, because another one leads meanwhile."""
        with self._lock:
            pulse.working = True
            if not self._spare:
                if self._threads == MAX_THREADS:
                    self._backlog.append(pulse)
                    return False
                self._start()
        return True

    def _done(self, pulse: Pulse) -> Pulse | None:
        """After the work of a pulse: return one of the backlog, if there is any."""
        with self._lock:
            (self._woken if pulse.again else self._rested).append(pulse)
            pulse.again = pulse.working = False
            following = self._backlog.popleft() if self._backlog else None
        self._signal.set()
        return following


TICKER = Ticker()


def _forget() -> None:
    """In a forked child, which has none of the threads."""
    global TICKER
    TICKER = Ticker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Pulse:
    """What one workspace has to do without being called: to notice commits of other processes and passing deadlines.

    A workspace that nobody watches here polls every quarter of a second; with more than a hundred open, less often.
    """

    def __init__(
        self,
        store: Store,
        time: Now,
        hub: Hub,
        read: Callable[[Callable[[Snapshot], Any]], Any],
        sweep: Callable[[], None],
        follow: Callable[[], None],
        rescue: Callable[[], None],
        age_out: Callable[[], None],
        secure: Callable[[int], None],
        journal: Journal | None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._time = time
        self._hub = hub
        self._read = read
        self._sweep = sweep
        self._follow = follow
        self._rescue = rescue
        self._age_out = age_out
        self._secure = secure
        self._unsecured: int | None = None  # what it is to be called with
        self.due: int | None = None  # these three are the ticker's
        self.working = self.again = False
        self._called = False  # since the last look
        self._brief = False  # nothing beats yet, and perhaps never
        self._stopped = False
        self._beating = threading.Lock()
        self._worker = 0  # the thread that works
        self._paused: list[threading.Lock] = []
        self._aged: int | None = None  # when it was called last
        self._deadline: int | None = None
        self._retry = 0  # a sweep failed: not before
        self._stamp = 0
        self._followed: int | None = None  # real time of the last look at the log; None: it is due
        self._upkeep: threading.Thread | None = None
        self._maintaining = threading.Lock()
        self._reported = ""  # the problem reported last, until it is over

    def start(self, brief: bool) -> None:
        """Begin to beat; a `brief` workspace, open for one call, when that begins to watch: a thread takes time."""
        self._brief = brief
        self._time.clock.enroll(self)
        if self._journal is not None:
            self._journal.enroll(self)
        self._hub.on_first = self._begin if brief else self.set
        if not brief:
            TICKER.add(self)

    def _begin(self) -> None:
        if self._brief:
            self._brief = False
            TICKER.add(self)
        self.set()

    def set(self) -> None:
        """Beat now: the clock was moved, the log may have, or somebody watches."""
        if not self._called:
            self._called = True
            if not self._brief:
                TICKER.wake(self)

    def expect(self, deadline: int) -> None:
        """Take note of a deadline set by a commit of this process."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self.set()

    def want_backup(self, newest: int) -> None:
        """Have the backup made that a purge waits for: in a thread of its own, or here if nothing beats."""
        self._unsecured = newest
        if self in TICKER:
            self.set()
        elif not self._brief:
            self.finish()

    def finish(self) -> None:
        """Before the workspace closes: what no thread does where commands are all that come, each for a moment.

        That is the backup that a purge waits for, and to delete old ones.
        """
        if self._brief and self._called:
            self._tidy()
        if self._unsecured is not None or self._upkeep is not None:
            with self._maintaining:
                self._make_backup()

    def _tidy(self) -> None:
        try:
            self._age_out()
        except Exception as error:  # any: the call is done
            self._report(error)

    def _make_backup(self) -> None:
        newest, self._unsecured = self._unsecured, None
        if newest is not None:
            self._secure(newest)

    def stop(self) -> None:
        """Stop, and wait until the work in progress is over."""
        self._stopped = True
        TICKER.discard(self)
        self._time.clock.dismiss(self)
        if self._journal is not None:
            self._journal.dismiss(self)
        if self._worker != get_ident():
            with self._beating:
                pass
        upkeep = self._upkeep
        if upkeep is not None and upkeep is not threading.current_thread():
            upkeep.join()

    def pause(self) -> None:
        """Before a fork: wait until the threads are outside SQLite, at most a second, for the forker may block them."""
        self._paused = [lock for lock in (self._beating, self._maintaining) if lock.acquire(timeout=1.0)]

    def resume(self) -> None:
        """After a fork, in the parent: continue."""
        while self._paused:
            self._paused.pop().release()

    def patience(self) -> float:
        """Seconds until the next look, if nothing wakes this pulse."""
        poll = self._poll
        if self._deadline is None:
            return poll
        return min(poll, max(0.0, (max(self._deadline, self._retry) - self._time.read(self._stamp)) / 1e6))

    @property
    def _poll(self) -> float:
        return WATCHED_POLL if len(self._hub) else max(IDLE_POLL, IDLE_SHARE * len(TICKER))

    # --- a beat ------------------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Notice what is new, without waiting for anybody. True if there is work."""
        with self._beating:
            if self._called:
                self._called, self._followed = False, None
            if self._stopped:
                return False
            try:
                self._notice()
                return self._has_work()
            except Exception as error:  # any: without these threads nothing expires and no watcher wakes
                self._report(error)
                if self._store.closed and not self._store.lost:
                    TICKER.discard(self)
                return self._store.lost

    def _notice(self) -> None:
        self._store.check_kept()
        if not len(self._hub):
            self._hub.rest()
        elif not self._hub.has_changed():
            return
        self._deadline, self._stamp = self._read(next_deadline)
        self._hub.advance()

    def _has_work(self) -> bool:
        return self._is_due or self._is_aged or self._is_behind or self._unsecured is not None

    @property
    def _is_due(self) -> bool:
        return self._deadline is not None and max(self._deadline, self._retry) <= self._time.read(self._stamp)

    @property
    def _is_aged(self) -> bool:
        return self._aged is None or self._time.read(self._stamp) - self._aged >= AGE_EVERY

    @property
    def _is_behind(self) -> bool:
        """Whether it is time to look at the log: what it publishes wakes this pulse, but may be missed."""
        if self._journal is None:
            return False
        return self._followed is None or _now() - self._followed >= max(IDLE_POLL, IDLE_SHARE * len(TICKER)) * 1e6

    def work(self) -> None:
        """Do what may wait for others: end what has expired, follow the log, delete what is old."""
        with self._beating:
            if self._stopped:
                return
            if self._store.lost:
                self._rescue()
            if self._store.closed:
                TICKER.discard(self)
                return
            self._worker = get_ident()
            try:
                self._act()
                self._start_upkeep()
                self._reported = ""
            except Exception as error:
                self._report(error)
            finally:
                self._worker = 0

    def _act(self) -> None:
        if self._is_due:
            self._sweep()
            self._deadline, self._stamp = self._read(next_deadline)
        if self._is_behind:
            self._look_at_log()
        if self._is_aged:
            self._aged = self._time.read(self._stamp)
            self._age_out()

    def _look_at_log(self) -> None:
        assert self._journal is not None
        self._followed = _now()
        if self._journal.has_news():
            self._follow()

    def _start_upkeep(self) -> None:
        needed = self._unsecured is not None or (self._journal is not None and self._journal.needs_upkeep())
        if self._upkeep is None and needed:
            self._upkeep = threading.Thread(target=self._maintain, name="holdfast-upkeep", daemon=True)
            self._upkeep.start()

    def _maintain(self) -> None:
        """Run upkeep in its own thread, so that nobody waits for a backup or a snapshot."""
        try:
            with self._maintaining:
                self._make_backup()
                if self._journal is not None and self._journal.needs_upkeep():
                    self._journal.maintain()
        except Exception as error:
            self._report(error)
        finally:
            self._upkeep = None

    def _report(self, error: Exception) -> None:
        if self._stopped:
            return
        if self._store.closed:  # its file is gone: waiters would wait for ever
            self._store.on_stop()
            return
        reason = str(translate(error) if isinstance(error, apsw.Error) else error)
        if reason != self._reported:
            errors.warn(f"cannot sweep or watch, retrying: {reason}")
            self._reported = reason
        self._retry = self._time.read(self._stamp) + RETRY_SWEEP
