"""`HoldfastSaver`: the checkpoints of LangGraph in a workspace, embedded, remote or replicated.

Each method is one call of `ws.threads`. What this module adds is how LangGraph's objects become its arguments: channels
apart from their checkpoint, each serialized once for each version. Invariant: the token of a hold travels in the
config, to subgraphs too, and is never stored.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast import errors
from holdfast.ids import new_secret
from holdfast.types import Grant, Page
from holdfast.types.threads import Checkpoint

PAGE: Final = 100  # checkpoints of one call
# Two underscores: LangChain copies other keys of a config into metadata and traces.
TOKEN: Final = "__holdfast_token"
_SHARE: Final = 3  # renewed so often in the time that the lock lasts
_log = logging.getLogger("holdfast.langgraph")
_SHORT: Final = 256  # characters of a text that stands in the checkpoint itself
_PLAIN: Final = (bool, int, float, type(None))


class HasThreads(Protocol):
    """A workspace, near or far, or a transaction."""

    @property
    def threads(self) -> Any:
        """Its operations on threads."""


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Keeps checkpoints in a workspace: `holdfast.open(folder)`, `holdfast.connect(address)`, or a transaction.

    Its methods are those of LangGraph's checkpointers, with and without async; `hold` gives one run a thread alone.
    """

    def __init__(self, workspace: HasThreads, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self.workspace: Any = workspace
        self.held: dict[str, int] = {}  # the tokens of threads that are held through this saver

    def hold(self, thread_id: str, ttl: float = 60.0, wait: float | None = None) -> Hold:
        """Hold a thread for the time of a `with` or `async with` block, whose value is the config to run graphs with.

        Waits for up to `wait` seconds and raises Held if another has it. Renewed by itself; if it is lost all the same,
        for a machine that slept, what the run still writes is refused with Fenced. Others get Held meanwhile.
        """
        return Hold(self.workspace, self.held, str(thread_id), ttl, wait)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """The next version of a channel. Its random end keeps two runs from the same checkpoint apart."""
        last = current if isinstance(current, int | None) else int(str(current).partition(".")[0])
        return f"{(last or 0) + 1:032}.{new_secret()[:16]}"

    # --- put ---------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the values of its new versions."""
        put = self.workspace.threads.put
        try:
            put(**self._putting(config, checkpoint, metadata, new_versions))
        except errors.InvalidValue as error:
            put(**self._putting(config, checkpoint, metadata, _also(checkpoint, new_versions, error)))
        return _config(config["configurable"], checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same, awaited."""
        put = self.workspace.aio.threads.put
        try:
            await put(**self._putting(config, checkpoint, metadata, new_versions))
        except errors.InvalidValue as error:
            await put(**self._putting(config, checkpoint, metadata, _also(checkpoint, new_versions, error)))
        return _config(config["configurable"], checkpoint["id"])

    def _putting(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> dict[str, Any]:
        """The arguments of `threads.put`: small values inside the checkpoint, the others by their version."""
        given = config["configurable"]
        versions, inside, channels, values = checkpoint["channel_versions"], {}, {}, {}
        for channel, value in checkpoint["channel_values"].items():
            version = versions.get(channel)
            if version is None or isinstance(value, _PLAIN) or (type(value) is str and len(value) <= _SHORT):
                inside[channel] = value
                continue
            channels[channel] = _text(version)
            if channel in new_versions:
                values[channel] = self._packed(value)
        kept: Any = {**checkpoint, "channel_values": inside}
        known: dict[str, Any] = _plain(get_checkpoint_metadata(config, metadata))
        return {
            "id": str(given["thread_id"]),
            "checkpoint": checkpoint["id"],
            "value": self._packed(kept),
            "channels": channels,
            "values": values,
            "metadata": known,
            "ns": given.get("checkpoint_ns", ""),
            "parent": given.get("checkpoint_id") or None,
            "run": str(known["run_id"]) if known.get("run_id") else None,
            "deltas": [name for name in known.get("counters_since_delta_snapshot", ()) if name not in channels],
            "token": given.get(TOKEN),
        }

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint."""
        self.workspace.threads.put_writes(**self._writing(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The same, awaited."""
        await self.workspace.aio.threads.put_writes(**self._writing(config, writes, task_id, task_path))

    def _writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> dict[str, Any]:
        given = config["configurable"]
        return {
            "id": str(given["thread_id"]),
            "checkpoint": str(given["checkpoint_id"]),
            "task": task_id,
            "writes": [
                [channel, self._packed(value), WRITES_IDX_MAP.get(channel, at)]
                for at, (channel, value) in enumerate(writes)
            ],
            "ns": given.get("checkpoint_ns", ""),
            "path": task_path,
            "token": given.get(TOKEN),
        }

    def _packed(self, value: Any) -> list[Any]:
        return list(self.serde.dumps_typed(value))

    # --- get ---------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its thread; None if there is none."""
        return self._shown(self.workspace.threads.find(**_sought(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same, awaited."""
        return self._shown(await self.workspace.aio.threads.find(**_sought(config)))

    def _shown(self, found: Checkpoint | None) -> CheckpointTuple | None:
        return None if found is None else self._tuple(found)

    def _tuple(self, found: Checkpoint) -> CheckpointTuple:
        load = self.serde.loads_typed
        checkpoint = load(tuple(found.value))
        inside = checkpoint["channel_values"]
        for name, each in found.values.items():
            inside[name] = load(tuple(each))
        at = {"thread_id": found.thread, "checkpoint_ns": found.ns}
        return CheckpointTuple(
            {"configurable": {**at, "checkpoint_id": found.id}},
            checkpoint,
            found.metadata,  # type: ignore[arg-type]  # as it was put
            {"configurable": {**at, "checkpoint_id": found.parent}} if found.parent else None,
            [(each.task, each.channel, load(tuple(each.value))) for each in found.writes],
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints of a thread, or of all without a config, newest first; read a page at a time."""
        search = _Search(config, filter, before, limit)
        while search.wanted:
            found = search.narrowed(self.workspace.threads.history(**search.arguments()))
            yield from map(self._tuple, found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same, awaited."""
        search = _Search(config, filter, before, limit)
        while search.wanted:
            for each in search.narrowed(await self.workspace.aio.threads.history(**search.arguments())):
                yield self._tuple(each)

    # --- delete, copy, prune -----------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread for good. A run that still writes to it gets ThreadNotFound, and does not bring it back."""
        self.workspace.threads.delete(str(thread_id), self.held.get(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """The same, awaited."""
        await self.workspace.aio.threads.delete(str(thread_id), self.held.get(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs with their writes, for good."""
        self.workspace.threads.delete_runs([*map(str, run_ids)])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The same, awaited."""
        await self.workspace.aio.threads.delete_runs([*map(str, run_ids)])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its checkpoints and writes. Raises ThreadNotFound, and Exists if there is the target."""
        self.workspace.threads.copy(str(source_thread_id), str(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The same, awaited."""
        await self.workspace.aio.threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep: int = 1) -> None:
        """Delete all but the newest `keep` checkpoints of each namespace, or ("delete") all; unknown threads are none.

        What the delta channels of those are read from stays.
        """
        deletes = _deletes(strategy)
        for id in map(str, thread_ids):
            if deletes:
                self.delete_thread(id)
            else:
                self.workspace.threads.prune(id, keep, self.held.get(id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep: int = 1) -> None:
        """The same, awaited."""
        deletes = _deletes(strategy)
        for id in map(str, thread_ids):
            if deletes:
                await self.adelete_thread(id)
            else:
                await self.workspace.aio.threads.prune(id, keep, self.held.get(id))


class Hold:
    """A context manager, for `with` and for `async with`, whose value is the config of the run."""

    def __init__(self, workspace: Any, held: dict[str, int], id: str, ttl: float, wait: float | None) -> None:
        self._workspace = workspace
        self._held = held
        self._id = id
        self._ttl = ttl
        self._wait = wait
        self._grant: Grant | None = None
        self._done = threading.Event()
        self._renewer: threading.Thread | asyncio.Task[None] | None = None

    def _begun(self, grant: Grant) -> RunnableConfig:
        self._grant = grant
        self._held[self._id] = grant.token
        return {"configurable": {"thread_id": self._id, TOKEN: grant.token}}

    @property
    def _own(self) -> Grant:
        assert self._grant is not None, "a hold is entered once"
        return self._grant

    def _ended(self) -> None:
        if self._held.get(self._id) == self._own.token:
            del self._held[self._id]

    # --- threads -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> RunnableConfig:
        config = self._begun(self._workspace.threads.hold(self._id, self._ttl, self._wait))
        self._renewer = threading.Thread(target=self._renew, name=f"hold {self._id}", daemon=True)
        self._renewer.start()
        return config

    def __exit__(self, *_: object) -> None:
        self._done.set()
        assert isinstance(self._renewer, threading.Thread)
        self._renewer.join()
        self._ended()
        try:
            self._workspace.locks.release(self._own.name, token=self._own.token)
        except (errors.Fenced, errors.NotHolder) as error:
            _note_lost(error)

    def _renew(self) -> None:
        while not self._done.wait(self._ttl / _SHARE):
            try:
                self._workspace.locks.refresh(self._own.name, token=self._own.token)
            except errors.HoldfastError as error:
                if _is_over(error):
                    return

    # --- an event loop -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> RunnableConfig:
        config = self._begun(await self._workspace.aio.threads.hold(self._id, self._ttl, self._wait))
        self._renewer = asyncio.get_running_loop().create_task(self._arenew())
        return config

    async def __aexit__(self, *_: object) -> None:
        assert isinstance(self._renewer, asyncio.Task)
        self._renewer.cancel()
        await asyncio.wait([self._renewer])
        self._ended()
        try:
            await self._workspace.aio.locks.release(self._own.name, token=self._own.token)
        except (errors.Fenced, errors.NotHolder) as error:
            _note_lost(error)

    async def _arenew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / _SHARE)
            try:
                await self._workspace.aio.locks.refresh(self._own.name, token=self._own.token)
            except errors.HoldfastError as error:
                if _is_over(error):
                    return


def _is_over(error: errors.HoldfastError) -> bool:
    """Whether renewing is of no use any more; a server that cannot be reached is asked again."""
    _log.warning("a hold was not renewed: %s", error)
    return not error.retryable


def _note_lost(error: errors.HoldfastError) -> None:
    """The block is over, and its lock was lost before: what came too late was refused, what was stored stays."""
    _log.warning("a hold was lost before its end: %s", error)


class _Search:
    """What `list` looks for, and how far it is."""

    def __init__(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        given = {} if config is None else config["configurable"]
        self._one = None if config is None else get_checkpoint_id(config)
        self._fixed = {
            "id": None if config is None else str(given["thread_id"]),
            "ns": given.get("checkpoint_ns"),
            "where": filter,
            "older_than": None if before is None else get_checkpoint_id(before),
            "values": True,
        }
        self._left = limit
        self._cursor: str | None = None
        self.wanted = limit is None or limit > 0

    def arguments(self) -> dict[str, Any]:
        """The arguments of the next `threads.history`."""
        limit = PAGE if self._left is None or self._one else min(self._left, PAGE)
        return {**self._fixed, "limit": limit, "cursor": self._cursor}

    def narrowed(self, page: Page[Checkpoint]) -> Sequence[Checkpoint]:
        """What of a page is wanted; after the last one `wanted` is False."""
        found = [each for each in page if self._one in (None, each.id)]
        self._cursor = page.cursor
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
        self.wanted = page.cursor is not None and self._left != 0
        return found


def _deletes(strategy: str) -> bool:
    if strategy not in ("keep_latest", "delete"):
        raise errors.Invalid(f"{strategy!r:.80} is not a strategy", hint="strategies: keep_latest, delete")
    return strategy == "delete"


def _sought(config: RunnableConfig) -> dict[str, Any]:
    """The arguments of `threads.find`."""
    given = config["configurable"]
    return {
        "id": str(given["thread_id"]),
        "checkpoint": get_checkpoint_id(config) or None,
        "ns": given.get("checkpoint_ns", ""),
    }


def _config(given: dict[str, Any], checkpoint: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": given["thread_id"],
            "checkpoint_ns": given.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint,
        }
    }


def _text(version: str | int | float) -> str:
    """A version as text; no number looks like one of those that are texts."""
    return version if isinstance(version, str) else f"#{version}"


def _also(checkpoint: GraphCheckpoint, new: ChannelVersions, error: errors.InvalidValue) -> ChannelVersions:
    """The new versions, and those that the store misses: of a thread that was pruned, or begun with another saver.

    Raises the error if it is about something else.
    """
    missing = set(error.details.get("missing", ())) - new.keys()
    if not missing:
        raise error
    return {**new, **{channel: checkpoint["channel_versions"][channel] for channel in missing}}


def _plain(value: Any) -> Any:
    """Metadata as a value: tuples become lists. What is no value is refused where it is stored."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
