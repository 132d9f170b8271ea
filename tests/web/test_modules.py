"""The pure modules of the page, table-tested inside Chromium (W14)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from holdfast.faces.web import digest
from tests.http.running import Running


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Any]:
    """A function that runs an expression over a module of the page: `m` is the module, `a` the argument."""
    server = Running(tmp_path_factory.mktemp("modules") / "store")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/ui/")

    def run(name: str, expression: str, argument: Any = None) -> Any:
        load = f"const m = await import('/ui/{digest()}/{name}')"
        return page.evaluate(f"async (a) => {{ {load}; return {expression}; }}", argument)

    yield run
    context.close()
    server.end()


def graph(*edges: str) -> dict[str, Any]:
    """Nodes and edges of words such as "ab": a comes before b."""
    return {
        "nodes": [{"id": id} for id in sorted(set("".join(edges)))],
        "edges": [{"from": e[0], "to": e[1]} for e in edges],
    }


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        (["ab", "bc"], {"a": 0, "b": 1, "c": 2}),
        (["ab", "bc", "ac", "dc"], {"a": 0, "b": 1, "c": 2, "d": 0}),
        (["ab", "ba"], {"a": 1, "b": 0}),
    ],
)
def test_w14_a_node_stands_behind_the_longest_chain_before_it(module: Any, edges: list[str], expected: Any) -> None:
    assert module("layout.js", "Object.fromEntries(m.layers(a.nodes, a.edges))", graph(*edges)) == expected


def test_w14_nodes_of_a_layout_do_not_overlap_and_edges_lead_to_the_right(module: Any) -> None:
    given = graph(*(f"{a}{b}" for a, b in zip("aabbcdeffghij", "bcdefgfghijkk", strict=True)))
    found = module("layout.js", "m.layout(a.nodes, a.edges)", given)
    nodes = {node["id"]: node for node in found["nodes"]}
    for one in nodes.values():
        for other in nodes.values():
            assert one is other or one["x"] != other["x"] or abs(one["y"] - other["y"]) >= 58, (one, other)
    assert all(nodes[edge["from"]]["x"] < nodes[edge["to"]]["x"] for edge in found["edges"])
    assert len(found["edges"]) == len(given["edges"])
    assert found["height"] >= max(node["y"] for node in nodes.values()) + 58


def test_w14_a_tree_is_read_from_its_top_left_and_each_task_has_a_place_of_its_own(module: Any) -> None:
    call = "m.treeLayout(a.nodes, a.edges).nodes.map((n) => [n.id, n.layer, n.y])"
    found = module("layout.js", call, graph("ab", "ac", "cd", "ce", "xy"))
    rows = {id: (layer, y / 72) for id, layer, y in found}
    assert rows == {"a": (0, 0), "b": (1, 0), "c": (1, 1), "d": (2, 1), "e": (2, 2), "x": (0, 3), "y": (1, 3)}


def test_w14_a_folded_subtree_is_one_node_with_the_edges_of_all(module: Any) -> None:
    given = graph("ab", "bc", "cd", "be") | {"parent": [["b", "p"], ["c", "p"], ["e", "b"]]}
    given["nodes"].append({"id": "p"})
    call = "(({nodes, edges, hidden}) => ({ids: nodes.map((n) => n.id), edges: edges.map((e) => e.from + e.to), "
    call += "hidden: [...hidden]}))(m.fold(a.nodes, a.edges, new Map(a.parent), new Set(['p'])))"
    assert module("layout.js", call, given) == {"ids": ["a", "d", "p"], "edges": ["ap", "pd"], "hidden": [["p", 3]]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], []), ([0], [[0, 29, 1]]), ([1, 4], [[0, 22.5, 7.5], [10, 0, 30]])],
)
def test_w14_bars_fill_the_height(module: Any, values: list[int], expected: list[list[float]]) -> None:
    assert module("chart.js", "m.bars(a, 20, 30).map((b) => [b.x, b.y, b.height])", values) == expected


def test_w14_ticks_are_round_and_few(module: Any) -> None:
    assert module("chart.js", "m.ticks(1000, 61000, 8)") == [10000, 20000, 30000, 40000, 50000, 60000]
    for span in (60, 900, 3600, 10_800, 86_400, 604_800):
        found = module("chart.js", "m.ticks(0, a * 1000, 8)", span)
        assert 2 <= len(found) <= 9, span


def test_w14_short_stretches_share_a_bar_and_what_runs_is_open(module: Any) -> None:
    many = [{"id": f"t{n}", "start": n, "end": n + 1, "how": "closed"} for n in range(0, 1000, 2)]
    many[7]["how"] = "expired"
    found = module("chart.js", "m.spans(a, 0, 1000, 100)", many)
    assert len(found) == 1
    assert (len(found[0]["items"]), found[0]["how"]) == (500, "expired")
    (held,) = module("chart.js", "m.spans(a, 0, 1000, 100)", [{"id": "t", "start": -5, "end": None, "how": None}])
    assert (held["x"], held["width"], held["open"], held["before"]) == (0, 100, True, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ad\u200bmin", "ad⟨U+200B⟩min"),
        ("soft\u00adhyphen\u2060 \u3164", "soft⟨U+00AD⟩hyphen⟨U+2060⟩ ⟨U+3164⟩"),
        ("tag\U000e0041", "tag⟨U+E0041⟩"),
        ("a\u200db \u200cend", "a⟨U+200D⟩b ⟨U+200C⟩end"),
        ("\U0001f469\u200d\U0001f4bb می\u200cخواهم ❤\ufe0f", "\U0001f469\u200d\U0001f4bb می\u200cخواهم ❤\ufe0f"),
        ("user\u202egnp.exe\x07", "user⟨U+202E⟩gnp.exe␇"),
    ],
)
def test_w16_characters_that_are_not_seen_are_named(module: Any, text: str, expected: str) -> None:
    assert module("dom.js", "m.visible(a)", text) == expected


@pytest.mark.parametrize(
    ("typed", "filters", "text"),
    [
        ("move the lexer", {}, "move the lexer"),
        ("status:blocked tag:ci", {"status": "blocked", "tag": "ci"}, ""),
        ("HOLDER:ada lexer priority:P1", {"holder": "ada", "priority": "P1"}, "lexer"),
        ("http://x status:", {}, "http://x status:"),
    ],
)
def test_w15_a_search_has_words_and_filters(module: Any, typed: str, filters: dict[str, str], text: str) -> None:
    assert module("search.js", "m.parseSearch(a)", typed) == {"filters": filters, "text": text}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            {"message": "there is no task 'hf-x'", "hint": "GET /api/tasks lists the tasks", "code": "TASK_NOT_FOUND"},
            "There is no task 'hf-x'. The search finds tasks by words or id.",
        ),
        (
            {
                "message": "a request may have 128 headers, and 9 bytes",
                "hint": "send fewer",
                "code": "HEADERS_TOO_LARGE",
            },
            "It is too long for the server: shorten it.",
        ),
        ({"message": "bob has a=b", "hint": "wait=60 waits", "code": "HELD"}, None),
        ({"message": "no", "hint": "POST /api/x", "code": "ELSE"}, "No."),
        ({"message": "a title is text", "hint": "give it one", "code": "INVALID"}, "A title is text. Give it one."),
    ],
)
def test_w15_an_error_is_told_to_a_person(module: Any, error: dict[str, str], said: str | None) -> None:
    assert module("api.js", "m.explain(a)", error) == (said or "Bob has a=b. Wait for it, or write to its holder.")


@pytest.mark.parametrize(
    ("patterns", "rows"),
    [
        (["a/b/c/d.py"], ["0 a/b/c/d.py"]),
        (["a/b/x/**", "a/b/y/*.py"], ["0 a/b/", "1 x/**", "1 y/*.py"]),
        (["a/b/x", "a/z"], ["0 a/", "1 b/x", "1 z"]),
        (["*.md", "web/[id]/p.tsx"], ["0 web/[id]/p.tsx", "0 *.md"]),
        (["a/b/c/x", "a/b/c/y", "a/k/m/n"], ["0 a/", "1 b/c/", "2 x", "2 y", "1 k/m/n"]),
    ],
)
def test_w9_folders_that_hold_one_thing_are_one_line_with_it(module: Any, patterns: list[str], rows: list[str]) -> None:
    locks = [{"name": str(n), "holder": "ada", "patterns": [each], "waiters": []} for n, each in enumerate(patterns)]
    call = "m.tree(a, new Set()).map((row) => `${row.depth} ${row.lock ? row.name : `${row.folder}/`}`)"
    assert module("views/locks.js", call, locks) == rows


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**a** and `b`", "a and b"),
        ("# head\n- one\n> said", "head\none\nsaid"),
        ("[x](https://e.org) 2*3*4", "x 2*3*4"),
    ],
)
def test_w8_a_preview_has_no_marks(module: Any, text: str, plain: str) -> None:
    assert module("markdown.js", "m.plain(a)", text) == plain
