"""Items: values under keys of namespaces, found by what they are, gone at their time or when they are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Workspace, errors
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World


def keys(ws: Workspace, namespace: str = "", **more: Any) -> list[str]:
    """The keys of the items that a search finds."""
    return [each.key for each in ws.items.search(namespace, **more)]


def test_an_item_is_put_changed_and_deleted(world: World) -> None:
    ws = world.open()
    first = ws.items.put("users/ada", "theme", {"color": "dark", "raw": b"\0"})
    second = ws.items.put("users/ada", "theme", {"color": "light"})
    assert (first.version, second.version, first.created_at) == (1, 2, second.created_at)
    assert ws.items.get("users/ada", "theme") == second
    assert ws.items.find("users", "theme") is None
    assert ws.items.find_all([["users/ada", "theme"], ["users/ada", "none"]]) == [second, None]
    assert ws.items.delete("users/ada", "theme")
    assert not ws.items.delete("users/ada", "theme")
    with pytest.raises(errors.NotFound):
        ws.items.get("users/ada", "theme")
    assert ws.items.put("users/ada", "theme", {}).version == 4


def test_a_search_finds_a_namespace_and_those_below_it(world: World) -> None:
    ws = world.open()
    for namespace in ("users", "users/ada", "users/ada/old", "users-x", "users.x", "userz"):
        ws.items.put(namespace, namespace, {"n": len(namespace)})
    assert keys(ws, "users") == ["users", "users/ada", "users/ada/old"]
    assert keys(ws, "users/ada") == ["users/ada", "users/ada/old"]
    assert len(keys(ws)) == 6
    assert keys(ws, "users", offset=1, limit=1) == ["users/ada"]
    assert ws.items.namespaces() == ["users", "users-x", "users.x", "users/ada", "users/ada/old", "userz"]
    assert ws.items.namespaces(["users/*"]) == ["users/ada", "users/ada/old"]
    assert ws.items.namespaces(suffixes=["old"]) == ["users/ada/old"]
    assert ws.items.namespaces(["users"], depth=1, limit=1) == ["users"]


def test_a_search_compares_fields(world: World) -> None:
    ws = world.open()
    for number, color in enumerate(("red", "blue", "red")):
        ws.items.put("things", str(number), {"n": number, "color": color})
    assert keys(ws, where={"color": "red"}) == ["0", "2"]
    assert keys(ws, where={"color": "red", "n": {"$gt": 0}}) == ["2"]
    assert keys(ws, where={"n": {"$gte": 1, "$lt": 2}}) == ["1"]
    assert keys(ws, where={"n": {"$ne": 1}}) == ["0", "2"]
    assert keys(ws, where={"none": {"$lte": 5}}) == []
    refused(ws, errors.InvalidFilter, lambda: ws.items.search(where={"n": {"$near": 1}}))


def test_an_item_expires_unless_it_is_renewed(world: World) -> None:
    ws = world.open()
    for key in ("one", "two"):
        ws.items.put("cache", key, {"x": 1}, ttl=10)
    ws.items.put("cache", "stays", {})
    world.clock.advance(8)
    before = ws.revision
    assert ws.items.refresh([["cache", "two"], ["cache", "stays"], ["cache", "none"]]) == 1
    assert ws.revision == before, "renewals emit nothing"
    world.clock.advance(5)
    assert ws.items.find("cache", "one") is None
    assert keys(ws, "cache") == ["stays", "two"]
    assert [each.op for each in ws.events.list(kinds=["item"], id="cache//one")] == ["create", "expire"]
    kept = ws.items.put("cache", "two", {"x": 2})
    assert (kept.ttl, kept.expires_at) == (None, None)
    world.clock.advance(100)
    assert keys(ws, "cache") == ["stays", "two"]
