"""`langgraph-checkpoint-conformance`, all 81 cases: embedded, replicated and over HTTP, awaited and not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Workspace
from tests.langgraph import graphs  # noqa: F401  # skips without LangGraph
from tests.worlds.kinds import TwoNodesWorld
from tests.worlds.served import shared_server

from langgraph.checkpoint.conformance import checkpointer_test, validate  # isort: skip

from holdfast.integrations.langgraph import HoldfastSaver  # isort: skip

CASES = 81


class Plain(HoldfastSaver):
    """Awaits nothing: what the suite awaits are the methods without async."""

    async def aput(self, *args: Any, **more: Any) -> Any:
        return self.put(*args, **more)

    async def aput_writes(self, *args: Any, **more: Any) -> Any:
        return self.put_writes(*args, **more)

    async def aget_tuple(self, *args: Any, **more: Any) -> Any:
        return self.get_tuple(*args, **more)

    async def alist(self, *args: Any, **more: Any) -> Any:
        for each in self.list(*args, **more):
            yield each

    async def adelete_thread(self, *args: Any, **more: Any) -> Any:
        return self.delete_thread(*args, **more)

    async def adelete_for_runs(self, *args: Any, **more: Any) -> Any:
        return self.delete_for_runs(*args, **more)

    async def acopy_thread(self, *args: Any, **more: Any) -> Any:
        return self.copy_thread(*args, **more)

    async def aprune(self, *args: Any, **more: Any) -> Any:
        return self.prune(*args, **more)


def opened(kind: str, folder: Path) -> AbstractContextManager[Workspace]:
    """A workspace of a kind, empty but for what others of the shared server left there."""
    if kind == "remote":
        server = shared_server()
        return holdfast.connect(server.url, token=server.token, actor="ada")  # type: ignore[return-value]
    return holdfast.open(folder / "store" if kind == "file" else ":memory:", actor="ada")


def outcome(ws: Workspace, saver: type[HoldfastSaver]) -> tuple[int, list[str]]:
    """How many cases passed, and which failed."""

    @checkpointer_test(name="HoldfastSaver")
    async def make() -> AsyncGenerator[Any, None]:
        yield saver(ws)

    report = asyncio.run(validate(make))
    assert all(each.detected for each in report.results.values())
    results = report.results.values()
    return sum(each.tests_passed for each in results), [each for result in results for each in result.failures]


@pytest.mark.parametrize("saver", [HoldfastSaver, Plain], ids=["awaited", "plain"])
@pytest.mark.parametrize("kind", ["memory", "file", "remote"])
def test_every_case_of_the_suite_passes(kind: str, saver: type[HoldfastSaver], tmp_path: Path) -> None:
    with opened(kind, tmp_path) as ws:
        assert outcome(ws, saver) == (CASES, [])
        if kind != "remote":
            assert ws.check().problems == []


def test_every_case_passes_on_a_node_of_a_log(tmp_path: Path) -> None:
    with closing(TwoNodesWorld(tmp_path)) as world:
        ws = world.open()
        assert outcome(ws, Plain) == (CASES, [])
        world.settle()
        assert ws.check().problems == []
