"""`HoldfastSaver`: what it stores, what it hides, and what only it can do: one run at a time, and one commit."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.workspace.transaction import Transaction
from tests.langgraph.graphs import asking, checkpoint, config, counter

from langgraph.channels.delta import DeltaChannel  # isort: skip
from langgraph.checkpoint.base import ChannelVersions  # isort: skip
from langgraph.graph import END, START, StateGraph  # isort: skip
from langgraph.types import Command  # isort: skip

from holdfast.integrations.langgraph import HoldfastSaver  # isort: skip


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ada") as opened:
        yield opened
        assert opened.check().problems == []


# --- what is stored --------------------------------------------------------------------------------------------------


def test_an_unchanged_channel_of_200_kb_over_200_steps_is_stored_once(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="ada") as ws:
        saver = HoldfastSaver(ws)
        large = ["x" * 200_000]
        at = config("chat")
        for step in range(200):
            values = {"large": large, "small": [step] * 1000}
            versions: ChannelVersions = {"large": "1", "small": str(step)}
            new: ChannelVersions = versions if step == 0 else {"small": str(step)}
            at = saver.put(at, checkpoint(values, versions), {"step": step}, new)
        assert saver.get_tuple(at).checkpoint["channel_values"] == values  # type: ignore[union-attr]
        ws.checkpoint()
    size = sum(each.stat().st_size for each in (tmp_path / "store").iterdir())
    assert size < 6_000_000, f"{size:,} bytes"


def test_two_runs_from_one_checkpoint_share_no_version(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    one, two = saver.get_next_version(None, None), saver.get_next_version(None, None)
    assert one != two
    assert one[:32] == two[:32]
    assert saver.get_next_version(one, None) > max(one, two)
    graph = counter(saver)
    graph.invoke({"seen": ["first"]}, config("chat"))
    fork = next(saver.list(config("chat"))).config
    graph.invoke({"seen": ["left"]}, fork)
    left = saver.get_tuple(config("chat"))
    graph.invoke({"seen": ["right"]}, fork)
    right = saver.get_tuple(config("chat"))
    assert left is not None
    assert right is not None
    assert saver.get_tuple(left.config) == left
    assert left.checkpoint["channel_values"]["seen"] == ["first", "left"]
    assert right.checkpoint["channel_values"]["seen"] == ["first", "right"]


def test_a_thread_that_another_saver_began_gets_the_values_that_are_missing(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    made = checkpoint({"a": [1], "b": [2]})
    at = saver.put(config("chat"), made, {}, {"b": "1"})
    found = saver.get_tuple(at)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": [1], "b": [2]}


def test_metadata_that_cannot_be_stored_is_refused_and_tuples_become_lists(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    at = saver.put(config("chat"), checkpoint({}), {"counts": (1, 2)}, {})  # type: ignore[typeddict-unknown-key]
    assert saver.get_tuple(at).metadata == {"counts": [1, 2]}  # type: ignore[union-attr]
    with pytest.raises(errors.InvalidValue, match="cannot be stored"):
        saver.put(config("chat"), checkpoint({}), {"x": object()}, {})  # type: ignore[typeddict-unknown-key]


def _sum(left: list[int], right: list[Any]) -> list[int]:
    return left + [each for part in right for each in part]


class Delta(TypedDict):
    """A channel whose value is what the writes add up to, with a snapshot now and then."""

    log: Annotated[list[int], DeltaChannel(_sum, snapshot_frequency=4)]
    last: int


def delta(saver: HoldfastSaver) -> Any:
    """A graph with that channel."""
    graph = StateGraph(Delta)
    graph.add_node("add", lambda state: {"log": [state["last"]]})
    graph.add_edge(START, "add")
    graph.add_edge("add", END)
    return graph.compile(checkpointer=saver)


def test_pruning_does_not_empty_a_delta_channel(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    graph = delta(saver)
    left: list[int] = []
    for number in range(12):
        graph.invoke({"last": number}, config("chat"))
        kept = graph.get_state(config("chat")).values["log"]
        assert kept == [*range(number + 1)]
        saver.prune(["chat"], keep=1)
        assert graph.get_state(config("chat")).values["log"] == kept
        left.append(ws.threads.info("chat").checkpoints)
    assert min(left[3:]) < max(left) < 3 * len(left), "as many as there are since a snapshot"
    saver.prune(["chat"], strategy="delete")
    assert ws.threads.list() == []
    with pytest.raises(errors.Invalid, match="strategies"):
        saver.prune(["chat"], strategy="some")


# --- interrupts ------------------------------------------------------------------------------------------------------


def test_a_person_can_watch_for_interrupts(ws: Workspace) -> None:
    graph = asking(HoldfastSaver(ws))
    with ws.watch(kinds=["interrupt"], timeout=30) as waiting:
        graph.invoke({"seen": []}, config("chat"))
        event = next(waiting)
        assert (event.id, event.op, event.data["ns"]) == ("chat", "interrupt", "")
        assert "may I?" not in str(event)
        found = graph.get_state(config("chat"))
        assert found.config["configurable"]["checkpoint_id"] == event.data["checkpoint"]
        assert [each.value for each in found.interrupts] == ["may I?"]
        assert graph.invoke(Command(resume="yes"), config("chat"))["seen"] == ["before", "yes"]
        assert next(waiting).op == "resume"


# --- one run at a time -----------------------------------------------------------------------------------------------


def texts(ws: Workspace) -> str:
    """All that the store says of threads, for what must not be in it."""
    found = [*ws.threads.history(values=True), *ws.events.list(kinds=["thread", "interrupt"])]
    return repr(found)


@pytest.mark.parametrize("inner", [False, True], ids=["alone", "subgraph"])
def test_a_hold_lets_its_own_run_in_and_no_other(ws: Workspace, inner: bool) -> None:
    saver = HoldfastSaver(ws)
    graph = counter(saver, inner=inner)
    with saver.hold("chat", ttl=60) as held:
        token = held["configurable"]["__holdfast_token"]
        assert graph.invoke({"seen": ["mine"]}, held)["seen"][0] == "mine"
        with pytest.raises(errors.Held):
            graph.invoke({"seen": ["other"]}, config("chat"))
        with pytest.raises(errors.Held), HoldfastSaver(ws).hold("chat"):
            raise AssertionError("two runs of one actor are two")
    with pytest.raises(errors.Fenced):
        graph.invoke({"seen": ["late"]}, held)
    assert str(token) not in texts(ws)
    assert "holdfast_token" not in texts(ws)
    namespaces = {each.ns.partition(":")[0] for each in ws.threads.history("chat")}
    assert namespaces == ({"", "inner"} if inner else {""})
    assert graph.get_state(config("chat")).values["seen"][0] == "mine"


def test_a_late_holder_is_fenced_in_put_and_in_put_writes_of_a_subgraph(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    with saver.hold("chat", ttl=60) as held:
        at = saver.put({"configurable": {**held["configurable"], "checkpoint_ns": "sub"}}, checkpoint({}), {}, {})
        ws.locks.release("thread:chat", force=True, reason="a test")
        late: Any = {"configurable": {**at["configurable"], **held["configurable"]}}
        for call in (
            lambda: saver.put(late, checkpoint({}), {}, {}),
            lambda: saver.put_writes(late, [("a", 1)], "task"),
            lambda: saver.delete_thread("chat"),
        ):
            with pytest.raises(errors.Fenced):
                call()


def test_a_hold_is_renewed_by_itself(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    with saver.hold("chat", ttl=0.5), ws.watch(kinds=["lock"], timeout=1.5) as changes:
        assert [event.op for event in changes] == [], "it neither expired nor was granted again"
        assert ws.locks.find("thread:chat") is not None
    assert ws.locks.find("thread:chat") is None


def test_holds_are_awaited_one_after_the_other(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)
    graph = counter(saver)

    async def run(name: str) -> None:
        async with saver.hold("chat", ttl=30, wait=60) as held:
            await graph.ainvoke({"seen": [name]}, held)

    async def main() -> None:
        await asyncio.gather(*(run(str(number)) for number in range(8)))

    asyncio.run(main())
    seen = graph.get_state(config("chat")).values["seen"]
    assert sorted(seen) == [str(number) for number in range(8)]


def test_a_claim_and_a_checkpoint_are_one_commit(ws: Workspace) -> None:
    task = ws.tasks.create("a task").id
    graph = counter(HoldfastSaver(ws))
    with ws.transaction() as tx:
        tx.tasks.claim(task)
        counter(HoldfastSaver(tx)).update_state(config("chat"), {"seen": [task]}, as_node="keep")
    assert graph.get_state(config("chat")).values["seen"] == [task]
    assert ws.tasks.get(task).revision == ws.threads.info("chat").revision

    def again(tx: Transaction) -> None:
        counter(HoldfastSaver(tx)).update_state(config("chat"), {"seen": ["again"]}, as_node="keep")
        tx.tasks.claim(task, "bob")

    with pytest.raises(errors.AlreadyClaimed):
        ws.transact(again)
    assert graph.get_state(config("chat")).values["seen"] == [task]


# --- deletion --------------------------------------------------------------------------------------------------------


def test_a_run_does_not_bring_back_a_thread_that_was_deleted_under_it(ws: Workspace) -> None:
    saver = HoldfastSaver(ws)

    class State(TypedDict):
        seen: Annotated[list[str], operator.add]

    def work(state: State) -> dict[str, Any]:
        if "delete" in state["seen"]:
            saver.delete_thread("chat")
        return {"seen": ["worked"]}

    graph: Any = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("more", lambda state: {"seen": ["more"]})
    graph.add_edge(START, "work")
    graph.add_edge("work", "more")
    graph.add_edge("more", END)
    graph = graph.compile(checkpointer=saver)
    with pytest.raises(errors.ThreadNotFound):
        graph.invoke({"seen": ["delete"]}, config("chat"), durability="sync")
    assert saver.get_tuple(config("chat")) is None
    assert ws.threads.list() == []
    assert graph.invoke({"seen": ["anew"]}, config("chat"))["seen"] == ["anew", "worked", "more"]
