"""What happens to the agents: all work, one is killed, one is paused past its lock's end and then goes on.

The story acts on what it hears from the event log, like any other watcher. An agent is stopped first and only killed
or left paused if it then holds a lock and is not in the middle of a commit; otherwise it goes on and the story tries
again at the next event.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import errors
from holdfast.demo import agent
from holdfast.demo.board import Board

PATIENCE = 60.0
BEAT = 0.25


class Story:
    """One run of the demo: the processes, the board, and who is killed and who is paused."""

    def __init__(self, ws: holdfast.Workspace, folder: Path, agents: int, items: int, seed: int) -> None:
        self.run = f"demo-{ws.revision}"
        names = [f"item-{number:02}" for number in range(1, items + 1)]
        self.board = Board(self.run, [f"agent-{number}" for number in range(1, agents + 1)], names)
        self.killed: tuple[str, str] | None = None  # agent, item
        self.paused: tuple[str, str] | None = None
        self._fenced_before: int | None = None  # how many were fenced when the paused one was woken
        self._ws = ws
        self._folder = folder
        self._seed = seed
        self._start = ws.revision
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        new = {"state": "open", "by": "", "tries": 0, "step": 0}
        ws.transact(lambda tx: [tx.cells.init(agent.items_of(self.run), name, new) for name in names])

    def play(self, show: Callable[[Board], None]) -> None:
        """Start the agents and follow the log until all is told; TimeoutError if that takes far too long."""
        for name in self.board.agents:
            self._processes[name] = self._spawn(name)
        cursor: int | str = self._start
        end = time.monotonic() + PATIENCE
        while not self._over():
            if time.monotonic() > end:
                raise TimeoutError("the demo did not come to its end")
            for event in self._ws.watch(after=cursor, timeout=BEAT):
                cursor = event.cursor
                self.board.apply(event)
                self._intervene()
                show(self.board)
        self._await_agents()
        show(self.board)

    def stop(self) -> None:
        """End every process that is left, also a paused one."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal reaches the story alone, which ends the agents itself.
        command = [sys.executable, "-m", "holdfast.demo.agent", str(self._folder), name, self.run, str(self._seed)]
        return subprocess.Popen(command, start_new_session=True)

    def _over(self) -> bool:
        if self.paused is None or not self.board.all_done:
            return self.board.all_done
        return self._fenced_before is not None and self.paused[0] in self.board.fenced[self._fenced_before :]

    def _await_agents(self) -> None:
        for name, process in self._processes.items():
            code = process.wait(timeout=PATIENCE)
            if code and (self.killed is None or name != self.killed[0]):
                raise RuntimeError(f"{name} ended with exit code {code}")

    # --- interventions -----------------------------------------------------------------------------------------------

    def _intervene(self) -> None:
        done = sum(person.done for person in self.board.agents.values())
        if self.killed is None:
            if done >= len(self.board.items) // 6:
                self._kill_someone()
        elif self.paused is None:
            if self.killed[1] in self.board.taken_over:
                self._pause_someone()
        elif self._fenced_before is None:
            self._wake_late()

    def _kill_someone(self) -> None:
        caught = self._stop_someone()
        if caught is not None:
            name, item = self.killed = caught
            self._processes[name].kill()
            self._processes[name].wait()
            self._fate(name, "killed", f"kill -9 {name}, which holds the lock of {item}")

    def _pause_someone(self) -> None:
        caught = self._stop_someone()
        if caught is not None:
            name, item = self.paused = caught
            self._fate(name, "paused", f"paused {name}, which holds the lock of {item}")

    def _wake_late(self) -> None:
        """Let the paused agent go on once somebody else has its item: a zombie that knows nothing of it."""
        assert self.paused is not None
        name, item = self.paused
        successor = self.board.items[item].by
        if successor != name:
            self._fenced_before = len(self.board.fenced)
            self._fate(name, "", f"lets {name} go on, whose item belongs to {successor} by now")
            self._processes[name].send_signal(signal.SIGCONT)

    def _fate(self, name: str, fate: str, words: str) -> None:
        self.board.agents[name].fate = fate
        self.board.tell(self._ws.actor, words)

    def _stop_someone(self) -> tuple[str, str] | None:
        """Stop an agent in the middle of its work; answers who, and on what."""
        for name, person in self.board.agents.items():
            if person.item and self._stop(name):
                if self._is_caught(name, person.item):
                    return name, person.item
                self._processes[name].send_signal(signal.SIGCONT)
        return None

    def _stop(self, name: str) -> bool:
        process = self._processes[name]
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGSTOP)
        info = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return info is not None and info.si_code == os.CLD_STOPPED

    def _is_caught(self, name: str, item: str) -> bool:
        try:
            # Stopped in the middle of a commit it would keep everybody from writing, which this write finds out.
            self._ws.cells.set(self.run, "caught", name)
        except errors.Busy:
            return False
        grant = self._ws.locks.find(agent.lock_of(self.run, item))
        return grant is not None and grant.holder == name
