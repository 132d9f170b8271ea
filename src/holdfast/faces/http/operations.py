"""Running a server in production: access log, metrics, and upkeep (stale claims, write-ahead log, backups).

The access log leaves out the query of an address, which may contain a ticket. Lines are collected and written a few
times a second in a thread; a server that is killed loses those it had not written.

Expiry and retention run in every open workspace (`kernel.pulse.Pulse`), so the server opens all of its workspaces when
it starts. Failures of upkeep are logged, counted, and retried at the next interval.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

from holdfast import __version__, errors
from holdfast.clock import SystemClock
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.request import Request
from holdfast.faces.http.sse import Watchers
from holdfast.faces.http.workspaces import ServedWorkspace, WorkspaceRegistry
from holdfast.types import NodeState, Progress
from holdfast.wire import json_bytes
from holdfast.workspace import Workspace
from holdfast.workspace.admin import is_backed_up, remove_backup

FLUSH: Final = 0.25  # seconds
_log = logging.getLogger("holdfast.http")


class AccessLog:
    """A file that gets a line for every request; `-` is the standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[dict[str, Any]] = deque()  # the loop only appends, the thread only pops
        self._file: BinaryIO | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Open the file. Raises Invalid if it cannot be written."""
        target = os.dup(2) if str(self._path) == "-" else self._path
        try:
            self._file = open(target, "ab", buffering=0)  # noqa: SIM115  # `close` closes it
        except OSError as error:
            raise errors.Invalid(f"the access log {self._path} cannot be written: {error.strerror}") from error
        self._task = asyncio.ensure_future(self._write())

    def add(self, request: Request, status: int, seconds: float) -> None:
        """Add a request that was served."""
        token, actor = request.token, request.actor
        self._waiting.append(
            {
                "time": datetime.now(UTC),
                "method": request.method,
                "path": unquote(request.path.decode()),
                "status": status,
                "milliseconds": round(seconds * 1000, 3),
                "client": request.connection.peer,
                "token": None if token is None else token.id,
                "actor": None if actor is None else str(actor),
            }
        )

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            if self._waiting:
                try:
                    await asyncio.to_thread(self._flush)
                except OSError as error:  # such as a full disk: requests go on, and the log when it can
                    _log.error("the access log cannot be written: %s", error)

    def _flush(self) -> None:
        assert self._file is not None
        lines = [json_bytes(self._waiting.popleft()) + b"\n" for _ in range(len(self._waiting))]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        """Write the rest."""
        if self._task is not None and self._file is not None:
            self._task.cancel()
            self._flush()
            self._file.close()


CHECKPOINT_EVERY: Final = 15.0  # seconds
SUFFIX: Final = ".backup"
STOP_COPY: Final = 2.0  # seconds for copying at the stop; checking the copy takes about as long, and 5 is the most
STOP_KEPT: Final = 3
STOP_SUFFIX: Final = ".stop.backup"


class Upkeep:
    """The background work of one server."""

    def __init__(self, spaces: WorkspaceRegistry, settings: Settings) -> None:
        self._spaces = spaces
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self.backups = 0
        self.failures = 0

    async def start(self) -> None:
        """Open every workspace, release the claims that expired while no server ran, and start the background work.

        A replica is served at once: its write may have to wait for the log, reads need not.
        """
        for name in self._spaces.names():
            await self._attempt(_start_of(name), self._begin(name))
        self._tasks.append(asyncio.ensure_future(self._repeat(CHECKPOINT_EVERY, self._checkpoint)))
        every = self._settings.backup_every
        if every is not None:
            self._tasks.append(asyncio.ensure_future(self._repeat(every, self.back_up)))

    async def _begin(self, name: str) -> None:
        workspace = self._spaces.get(name).workspace
        release = asyncio.to_thread(workspace.tasks.release_stale_claims)
        if workspace.node_state(ask=False) is None:
            await release
        else:
            self._tasks.append(asyncio.ensure_future(self._attempt(_start_of(name), release)))

    async def stop(self) -> None:
        """Stop it, with a last backup of what has changed since the newest, if there is a folder for backups."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._settings.backup_folder is not None:
            await self.back_up(stopping=True)
        elif self._settings.stop_folder is not None:
            await self._back_up_soon(self._settings.stop_folder)

    async def _back_up_soon(self, folder_of: Callable[[Path], Path]) -> None:
        """Back up as many workspaces as a stop has time for."""
        until, spaces = _now() + round(STOP_COPY * 1e6), list(self._spaces.open())
        for number, space in enumerate(spaces):
            if number and _now() > until:
                left = f"{len(spaces) - number} of {len(spaces)} workspaces were not backed up at the stop"
                _log.warning("%s, which has %s seconds for that; --backup-dir waits for all of them", left, STOP_COPY)
                return
            target = folder_of(self._spaces.folder_of(space.name))
            work = asyncio.to_thread(_back_up_soon, space.workspace, target, until)
            await self._attempt("the backup at the stop", work)

    async def back_up(self, stopping: bool = False) -> None:
        """Back up every workspace, and delete the oldest backups."""
        folder = self._settings.backup_folder
        assert folder is not None
        for space in self._spaces.open():
            await self._attempt("backup", asyncio.to_thread(self._back_up, space, folder, stopping))

    def _back_up(self, space: ServedWorkspace, folder: Path, stopping: bool) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = {"": "main", "main": "main@"}.get(space.name, space.name)  # no name of a workspace has an @

        def mine() -> list[Path]:
            return sorted(path for path in folder.glob(f"{name}-*{SUFFIX}") if _is_backup_of(path, name))

        if stopping and _is_backed_up(space.workspace, mine()):
            return
        space.workspace.backup(folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{SUFFIX}")
        self.backups += 1
        for old in mine()[: -self._settings.backups_kept]:
            remove_backup(old)

    def newest_backup(self) -> tuple[Path, float] | None:
        """The newest file in the folder of backups, also of an earlier start, and when it was made."""
        folder = self._settings.backup_folder
        found = []
        for path in [] if folder is None else folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):  # an old one that was just deleted
                found.append((path, path.stat().st_mtime))
        return max(found, key=lambda each: each[1], default=None)

    async def _checkpoint(self) -> None:
        for space in self._spaces.open():
            await self._attempt("checkpoint", asyncio.to_thread(space.workspace.checkpoint))

    async def _repeat(self, seconds: float, work: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    async def _attempt(self, what: str, work: Any) -> None:
        try:
            await work
        except (errors.HoldfastError, OSError) as error:
            self.failures += 1
            _log.error("%s failed: %s", what, error)


def _start_of(name: str) -> str:
    return f"the start of {name or 'the main workspace'}"


def _back_up_soon(workspace: Workspace, folder: Path, until: int) -> None:
    """Back up a workspace at the stop of a server, and keep the newest of such backups; gives up at a moment.

    Where nothing has changed since the newest, that one stays: another would push out an older one, and say the same.
    Raises Timeout then, and leaves nothing.
    """
    thread = threading.get_ident()

    def check(progress: Progress) -> None:
        if progress.work == "backup" and threading.get_ident() == thread and _now() > until:
            raise errors.Timeout(f"it was not done after {STOP_COPY} seconds; --backup-dir waits for it")

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_backed_up(workspace, sorted(folder.glob(f"*{STOP_SUFFIX}"))):
        return
    with workspace.progress(check):
        workspace.backup(folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{STOP_SUFFIX}")
    for old in sorted(folder.glob(f"*{STOP_SUFFIX}"))[:-STOP_KEPT]:
        remove_backup(old)


def _is_backed_up(workspace: Workspace, backups: list[Path]) -> bool:
    """Whether the newest of these backups has all of a workspace."""
    return bool(backups) and is_backed_up(workspace, backups[-1])


def _is_backup_of(path: Path, name: str) -> bool:
    """Whether a file is a backup of this workspace: the name of another may begin with its name."""
    rest = os.fspath(path.name)[len(name) + 1 : -len(SUFFIX)]
    return len(rest) == len("20260101T000000.000000") and rest.replace("T", "").replace(".", "").isdigit()


BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_now = SystemClock().monotonic  # real time, also in tests with a clock of their own


class Metrics:
    """The counters of one server since its start."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self.active = 0

    def began(self) -> int:
        """Count a request that begins; returns the time."""
        self.active += 1
        return _now()

    def ended(self, method: str, status: int, began: int) -> float:
        """Count a request that was served; returns the seconds it took."""
        took = (_now() - began) / 1e6
        self.active -= 1
        self._requests[method, status] += 1
        self._buckets[bisect_left(BUCKETS, took)] += 1
        self._seconds += took
        return took

    def lines(
        self, revisions: dict[str, int | None], nodes: dict[str, NodeState], watchers: Watchers, upkeep: Upkeep
    ) -> Iterator[str]:
        """All metrics in the text format; `revisions` by open workspace, None where it cannot be read.

        `nodes` are those of replicated workspaces.
        """
        yield "# TYPE holdfast_info gauge"
        yield f'holdfast_info{{version="{__version__}"}} 1'
        yield "# TYPE holdfast_requests_total counter"
        for (method, status), count in sorted(self._requests.items()):
            yield f'holdfast_requests_total{{method="{method}",status="{status}"}} {count}'
        yield "# TYPE holdfast_request_seconds histogram"
        total = 0
        for bound, count in zip((*BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            yield f'holdfast_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"holdfast_request_seconds_sum {self._seconds:.6f}"
        yield f"holdfast_request_seconds_count {total}"
        yield "# TYPE holdfast_requests_active gauge"
        yield f"holdfast_requests_active {self.active}"
        yield "# TYPE holdfast_watchers gauge"
        yield f"holdfast_watchers {len(watchers)}"
        yield "# TYPE holdfast_watchers_cut_total counter"
        yield f"holdfast_watchers_cut_total {watchers.cut}"
        yield "# TYPE holdfast_backups_total counter"
        yield f"holdfast_backups_total {upkeep.backups}"
        if (newest := upkeep.newest_backup()) is not None:
            yield "# TYPE holdfast_newest_backup_timestamp_seconds gauge"
            file = str(newest[0]).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            yield f'holdfast_newest_backup_timestamp_seconds{{file="{file}"}} {newest[1]:.3f}'
        yield "# TYPE holdfast_upkeep_failures_total counter"
        yield f"holdfast_upkeep_failures_total {upkeep.failures}"
        yield "# TYPE holdfast_revision gauge"
        for name, revision in sorted(revisions.items()):
            if revision is not None:
                yield f'holdfast_revision{{workspace="{name}"}} {revision}'
        yield "# TYPE holdfast_workspace_up gauge"
        for name, revision in sorted(revisions.items()):
            yield f'holdfast_workspace_up{{workspace="{name}"}} {int(revision is not None)}'
        for metric, kind, value in _OF_NODES if nodes else ():
            yield f"# TYPE {metric} {kind}"
            for name, node in sorted(nodes.items()):
                yield f'{metric}{{workspace="{name}"}} {value(node)}'


# By name: of which kind, and what of a node it is.
_OF_NODES: Final[tuple[tuple[str, str, Callable[[NodeState], object]], ...]] = (
    ("holdfast_log_lag_seconds", "gauge", lambda node: f"{node.behind:.3f}"),
    ("holdfast_log_position", "gauge", lambda node: node.position),
    ("holdfast_log_appends_total", "counter", lambda node: node.appends),
    ("holdfast_log_moved_total", "counter", lambda node: node.moved),
    ("holdfast_log_patience_seconds_total", "counter", lambda node: f"{node.patience:.3f}"),
)
