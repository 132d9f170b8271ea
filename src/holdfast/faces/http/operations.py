"""Running a server in production: access log, metrics, and upkeep (stale claims, write-ahead log, backups).

The query of an address is left out: it may hold a ticket. Lines are gathered and written a few times a second, beside
the loop; what a killed server had not written yet is lost, which is the log's loss alone.

Expiry and retention need no help: they belong to every open workspace (`kernel.wake.Pulse`), so the server opens all of
its workspaces when it starts. What fails here is logged and counted, and tried again when its time comes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.sse import Watchers
from holdfast.faces.http.workspaces import ServedWorkspace, WorkspaceRegistry

FLUSH: Final = 0.25  # seconds
_log = logging.getLogger("holdfast.http")


class Entry(msgspec.Struct, frozen=True):
    """One request."""

    time: datetime
    method: str
    path: str
    status: int
    milliseconds: float
    client: str | None
    token: str | None
    actor: str | None


class AccessLog:
    """A file that gets a line for every request; `-` is the standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[Entry] = deque()  # one side only adds, the other only takes
        self._file: BinaryIO | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin; refuses a file that cannot be written."""
        target = os.dup(2) if str(self._path) == "-" else self._path
        try:
            self._file = open(target, "ab", buffering=0)  # noqa: SIM115  # `close` closes it
        except OSError as error:
            raise errors.Invalid(f"the access log {self._path} cannot be written: {error.strerror}") from error
        self._task = asyncio.ensure_future(self._write())

    def add(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """A request has been answered."""
        peer, token, actor = scope.get("client"), scope.get("token"), scope.get("actor")
        self._waiting.append(
            Entry(
                time=datetime.now(UTC),
                method=scope["method"],
                path=scope["path"],
                status=status,
                milliseconds=round(seconds * 1000, 3),
                client=peer[0] if peer else None,
                token=None if token is None else token.id,
                actor=None if actor is None else str(actor),
            )
        )

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            if self._waiting:
                try:
                    await asyncio.to_thread(self._flush)
                except OSError as error:  # the disk is full, say: requests go on, and so does the log when it can
                    _log.error("the access log cannot be written: %s", error)

    def _flush(self) -> None:
        assert self._file is not None
        lines = [msgspec.json.encode(self._waiting.popleft()) + b"\n" for _ in range(len(self._waiting))]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        """Write the rest."""
        if self._task is not None and self._file is not None:
            self._task.cancel()
            self._flush()
            self._file.close()


CHECKPOINT_EVERY: Final = 15.0  # seconds
SUFFIX: Final = ".backup"


class Upkeep:
    """The background work of one server."""

    def __init__(self, spaces: WorkspaceRegistry, settings: Settings) -> None:
        self._spaces = spaces
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self.backups = 0
        self.failures = 0

    async def start(self) -> None:
        """Open every workspace, give back what the dead held, and go on in the background."""
        for name in self._spaces.names():
            await self._attempt(f"the start of {name or 'the main workspace'}", self._begin(name))
        self._tasks.append(asyncio.ensure_future(self._repeat(CHECKPOINT_EVERY, self._checkpoint)))
        every = self._settings.backup_every
        if every is not None:
            self._tasks.append(asyncio.ensure_future(self._repeat(every, self.back_up)))

    async def _begin(self, name: str) -> None:
        """Give back what agents held that gave no sign of life while no server ran."""
        space = self._spaces.get(name)
        await asyncio.to_thread(space.workspace.tasks.release_stale_claims)

    async def stop(self) -> None:
        """End it, with a last backup if any are wanted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._settings.backup_folder is not None:
            await self.back_up()

    async def back_up(self) -> None:
        """A backup of every workspace, and an end to the oldest of them."""
        assert self._settings.backup_folder is not None
        for space in self._spaces.open():
            await self._attempt("backup", asyncio.to_thread(self._back_up, space, self._settings.backup_folder))

    def _back_up(self, space: ServedWorkspace, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = {"": "main", "main": "main@"}.get(space.name, space.name)  # no name of a workspace has an @
        space.workspace.backup(folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{SUFFIX}")
        self.backups += 1
        mine = sorted(path for path in folder.glob(f"{name}-*{SUFFIX}") if _is_backup_of(path, name))
        for old in mine[: -self._settings.backups_kept]:
            old.unlink(missing_ok=True)

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


def _is_backup_of(path: Path, name: str) -> bool:
    """Whether a file is one of ours: another workspace's name may begin with this one's."""
    rest = os.fspath(path.name)[len(name) + 1 : -len(SUFFIX)]
    return len(rest) == len("20260101T000000.000000") and rest.replace("T", "").replace(".", "").isdigit()


BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_now = SystemClock().monotonic  # also in tests that own the time


class Metrics:
    """What one server has counted since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self.active = 0

    def began(self) -> int:
        """A request has come."""
        self.active += 1
        return _now()

    def ended(self, method: str, status: int, began: int) -> float:
        """And has been answered; after so many seconds."""
        took = (_now() - began) / 1e6
        self.active -= 1
        self._requests[method, status] += 1
        self._buckets[bisect_left(BUCKETS, took)] += 1
        self._seconds += took
        return took

    def lines(self, revisions: dict[str, int | None], watchers: Watchers, upkeep: Upkeep) -> Iterator[str]:
        """All of it in the text format; `revisions` are those of the open workspaces, None where it cannot be read."""
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
        yield "# TYPE holdfast_upkeep_failures_total counter"
        yield f"holdfast_upkeep_failures_total {upkeep.failures}"
        yield "# TYPE holdfast_revision gauge"
        for name, revision in sorted(revisions.items()):
            if revision is not None:
                yield f'holdfast_revision{{workspace="{name}"}} {revision}'
        yield "# TYPE holdfast_workspace_up gauge"
        for name, revision in sorted(revisions.items()):
            yield f'holdfast_workspace_up{{workspace="{name}"}} {int(revision is not None)}'
