"""`HoldfastStore`: LangGraph's memory, with namespaces, filters and ttl; in process and over HTTP, awaited and not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from tests.langgraph import graphs  # noqa: F401  # skips without LangGraph
from tests.worlds.served import shared_server

from langgraph.store.base import GetOp, PutOp, SearchOp  # isort: skip

from holdfast.integrations.langgraph import HoldfastStore  # isort: skip
from holdfast.integrations.langgraph import store as module  # isort: skip


@pytest.fixture(params=["memory", "remote"])
def store(request: pytest.FixtureRequest) -> Iterator[HoldfastStore]:
    if request.param == "remote":
        server = shared_server()
        with holdfast.connect(server.url, token=server.token, actor="ada") as ws:
            yield HoldfastStore(ws)
    else:
        with holdfast.open(":memory:", actor="ada") as ws:
            yield HoldfastStore(ws)


def test_items_are_put_found_and_deleted(store: HoldfastStore) -> None:
    odd = ("users", "a/b*%", "ü")
    store.put(odd, "k/1", {"x": [1, {"y": None}]})
    store.put(("users",), "k", {"x": 2})
    found = store.get(odd, "k/1")
    assert found is not None
    assert (found.namespace, found.key, found.value) == (odd, "k/1", {"x": [1, {"y": None}]})
    assert found.created_at == found.updated_at
    assert store.get(("none",), "k") is None
    assert [each.key for each in store.search(("users",), filter={"x": {"$gt": 1}})] == ["k"]
    assert store.list_namespaces(prefix=("users", "*")) == [odd[:2]] or odd in store.list_namespaces(prefix=("users",))
    store.delete(odd, "k/1")
    store.delete(("users",), "k")
    assert store.search(("users",)) == []


def test_a_batch_answers_each_operation_in_its_place(store: HoldfastStore) -> None:
    namespace = ("batch", "one")
    ops: list[Any] = [PutOp(namespace, str(number), {"n": number}) for number in range(250)]
    assert store.batch(ops) == [None] * 250
    answers = asyncio.run(
        _abatch(store, [GetOp(namespace, "7"), SearchOp(namespace, limit=240), GetOp(namespace, "x")])
    )
    assert (answers[0].value, len(answers[1]), answers[2]) == ({"n": 7}, 240, None)
    assert len(store.search(namespace, limit=1000, offset=245)) == 5
    store.batch([PutOp(namespace, "7", {"n": 1}), PutOp(namespace, "7", {"n": 2}), PutOp(namespace, "8", None)])
    assert store.get(namespace, "7").value == {"n": 2}  # type: ignore[union-attr]
    assert store.get(namespace, "8") is None
    store.batch([PutOp(namespace, str(number), None) for number in range(250)])


async def _abatch(store: HoldfastStore, ops: list[Any]) -> list[Any]:
    return await store.abatch(ops)


def test_namespaces_are_listed_by_their_ends_and_depth(store: HoldfastStore) -> None:
    for labels in (("docs", "a", "v1"), ("docs", "b", "v1"), ("docs", "b", "v2"), ("notes", "v1")):
        store.put(labels, "k", {})
    assert store.list_namespaces(prefix=("docs",), suffix=("v1",)) == [("docs", "a", "v1"), ("docs", "b", "v1")]
    assert store.list_namespaces(prefix=("docs",), max_depth=2) == [("docs", "a"), ("docs", "b")]
    assert store.list_namespaces(prefix=("docs", "*", "v2")) == [("docs", "b", "v2")]
    assert store.list_namespaces(prefix=("docs",), limit=1, offset=1) == [("docs", "b", "v1")]
    for labels in (("docs", "a", "v1"), ("docs", "b", "v1"), ("docs", "b", "v2"), ("notes", "v1")):
        store.delete(labels, "k")


def test_there_is_no_vector_search(store: HoldfastStore) -> None:
    with pytest.raises(errors.Unsupported, match="no vector search"):
        store.search(("users",), query="what does ada like?")


@pytest.mark.parametrize(
    ("ttl", "told"),
    [
        (60, "ttl must be a dict, not int"),
        ({"default_ttl": "60"}, "default_ttl must be a number of minutes above 0, not '60'"),
        ({"default_ttl": -1}, "default_ttl must be a number of minutes above 0, not -1"),
        ({"defualt_ttl": 60}, "ttl has no setting 'defualt_ttl' (settings: default_ttl, "),
    ],
    ids=str,
)
def test_a_ttl_that_cannot_work_is_refused_at_once(ttl: Any, told: str) -> None:
    with holdfast.open(":memory:", actor="ada") as ws, pytest.raises(errors.Invalid) as caught:
        HoldfastStore(ws, ttl=ttl)
    assert str(caught.value).startswith(told)


def test_what_is_put_is_a_dict_with_a_ttl_above_zero(store: HoldfastStore) -> None:
    with pytest.raises(errors.InvalidValue, match="the value of an item must be a dict, not list"):
        store.put(("users",), "k", ["x"])  # type: ignore[arg-type]
    with pytest.raises(errors.Invalid, match="ttl must be a number of minutes above 0, not -1"):
        store.put(("users",), "k", {"x": 1}, ttl=-1)
    with pytest.raises(errors.InvalidValue, match="tuple"):
        store.put(("users",), "k", {"x": (1, 2)})
    assert store.get(("users",), "k") is None


def test_reading_renews_an_item_but_not_with_each_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(module, "_now", clock.wall)
    with holdfast.open(tmp_path / "store", actor="ada", clock=clock) as ws:
        store = HoldfastStore(ws, ttl={"default_ttl": 10})
        store.put(("cache",), "read", {})
        store.put(("cache",), "left", {})
        store.put(("cache",), "stays", {}, ttl=None)
        until = ws.items.get("cache", "read").expires_at
        clock.advance(50)
        store.get(("cache",), "read")
        assert ws.items.get("cache", "read").expires_at == until, "less than a tenth of its time has passed"
        clock.advance(300)
        store.get(("cache",), "read")
        store.get(("cache",), "left", refresh_ttl=False)
        clock.advance(300)
        store.search(("cache",), filter={"none": 1})
        assert [each.key for each in store.search(("cache",))] == ["read", "stays"]
        clock.advance(599)
        assert [each.key for each in store.search(("cache",), refresh_ttl=False)] == ["read", "stays"]
        clock.advance(2)
        assert [each.key for each in store.search(("cache",))] == ["stays"]
