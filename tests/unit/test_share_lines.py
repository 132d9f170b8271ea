"""The lines of holdfast.jsonl (issue 25): what joins them is a join, and a record has one line."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.interchange.share_lines import (
    DEFAULTS,
    FORMAT,
    Cell,
    Entry,
    Stamp,
    from_line,
    is_record,
    join,
    left_out,
    longer_ids,
    new_key,
    normal,
    read_lines,
    to_line,
    trusted,
)
from tests.amounts import amount

KEY = "hf-7k2q~abcdefgh1234"
STAMPS = st.builds(Stamp, st.integers(1, 4), st.sampled_from(["aaaa", "bbbb"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "title": st.sampled_from(["", "one", "\u202eé\n"]),
    "priority": st.integers(0, 4),
    "parent": st.sampled_from([None, "a~111111", "b~222222"]),
    "tags": st.lists(st.sampled_from(["x", "y"]), max_size=2),
    "result": st.sampled_from([None, {"b": 1, "a": [{"d": 2, "c": 3}]}]),
    "of_a_newer_program": st.sampled_from([None, 1, "two"]),
}
CELLS = st.fixed_dictionaries({}, optional={name: st.builds(Cell, STAMPS, value) for name, value in VALUES.items()})
TIMES = st.sampled_from(["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00"])
NOTES = st.dictionaries(st.tuples(TIMES, st.text(max_size=2)), st.sampled_from([None, "ada", "bob"]))
ENTRIES = st.builds(
    lambda made, cells, notes, gone: normal(Entry(KEY, made, cells, notes, gone)),
    st.sampled_from([Stamp(1, "aaaa"), Stamp(2, "aaaa")]),
    CELLS,
    NOTES,
    st.sampled_from([False, False, False, True]),
)


@given(ENTRIES, ENTRIES, ENTRIES)
@settings(max_examples=amount(300, 20_000))
def test_joining_is_commutative_associative_and_idempotent(a: Entry, b: Entry, c: Entry) -> None:
    assert to_line(join(a, b)) == to_line(join(b, a))
    assert to_line(join(join(a, b), c)) == to_line(join(a, join(b, c)))
    assert to_line(join(a, a)) == to_line(a)
    assert to_line(join(join(a, b), b)) == to_line(join(a, b))


@given(ENTRIES)
@settings(max_examples=amount(300, 20_000))
def test_a_line_is_read_as_what_was_written(entry: Entry) -> None:
    line = to_line(entry)
    assert "\n" not in line
    assert from_line(line) == trusted(line) == entry
    assert to_line(from_line(line)) == line
    assert to_line(from_line(json.dumps(dict(reversed(json.loads(line).items()))))) == line  # whatever the order


def test_a_line_has_no_more_than_it_needs() -> None:
    made = Stamp(5, "aaaa")
    entry = Entry(KEY, made, {name: Cell(made, value) for name, value in DEFAULTS.items()})
    assert json.loads(to_line(normal(entry))) == {
        "format": FORMAT,
        "id": "hf-7k2q",
        "uid": "abcdefgh1234",
        "made": "5@aaaa",
    }
    changed = normal(entry).write("title", "one", 7, "bbbb")
    assert json.loads(to_line(changed))["stamps"] == {"title": "7@bbbb"}


def test_a_slow_clock_loses_nothing() -> None:
    entry = Entry(KEY, Stamp(1_000, "aaaa"), {})
    later = entry.write("title", "from a clock that is slow", 10, "bbbb")
    assert later.cell("title").stamp == Stamp(1_001, "bbbb")
    assert join(entry, later).value("title") == "from a clock that is slow"
    assert later.write("title", "again", 5, "aaaa").cell("title").stamp == Stamp(1_002, "aaaa")


def test_what_was_purged_says_no_more() -> None:
    entry = Entry(KEY, Stamp(1, "aaaa"), {"body": Cell(Stamp(9, "aaaa"), "secret")})
    gone = normal(Entry(KEY, Stamp(1, "aaaa"), {}, {}, True))
    assert "secret" not in to_line(join(entry, gone))
    assert join(join(gone, entry), entry).gone


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "invalid JSON"),
        ("[]", "not a JSON object"),
        ('{"format": "holdfast.shared/1", "format": "x"}', "duplicate"),
        ("{}", '"format" is missing'),
        ('{"format": "holdfast.task/1"}', "\"format\" is 'holdfast.task/1'"),
        ('{"format": "holdfast.shared/1", "id": "a b", "uid": "abcdef", "made": "1@aaaa"}', "the id 'a b'"),
        ('{"format": "holdfast.shared/1", "id": "a", "uid": "~", "made": "1@aaaa"}', "the uid '~'"),
        ('{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef"}', "made is TIME@SITE"),
        ('{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef", "made": "1@aaaa", "title": 7}', "title"),
        ('{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef", "made": "1@aaaa", "stamps": []}', "stamps"),
        ('{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef", "made": "1@aaaa", "gone": 1}', "gone"),
        (
            '{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef", "made": "1@aaaa", "stamps": {"title": "x"}}',
            "the stamp of title",
        ),
        (
            '{"format": "holdfast.shared/1", "id": "a", "uid": "abcdef", "made": "1@aaaa", "deferred_until": "soon"}',
            "'soon' is not a time",
        ),
        ("[" * 100_000, "JSON"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(line: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        from_line(line)
    assert said in refused.value.message


def test_repeated_lines_are_folded_and_both_sides_of_a_conflict_count() -> None:
    first = Entry(KEY, Stamp(1, "aaaa"), {"title": Cell(Stamp(1, "aaaa"), "one")})
    ours, theirs = first.write("title", "ours", 5, "aaaa"), first.write("body", "theirs", 4, "bbbb")
    text = "\n".join(
        ["<<<<<<< HEAD", to_line(ours), "||||||| base", to_line(first), "=======", to_line(theirs), ">>>>>>> x", ""]
    )
    lines = [*enumerate(text.split("\n"), 1)]
    found, problems = read_lines((number, line) for number, line in lines if is_record(line))
    assert not problems
    assert (found[KEY].value("title"), found[KEY].value("body")) == ("ours", "theirs")
    assert found[KEY] == join(join(first, theirs), ours)
    _, (problem,) = read_lines([(1, to_line(ours)), (2, to_line(theirs)[:-5])])
    assert problem.line == 2


def test_of_a_circle_the_youngest_edge_is_left_out_whatever_the_order() -> None:
    rng = random.Random(7)
    for _ in range(amount(200, 20_000)):
        nodes = [f"n{number}" for number in range(7)]
        edges = {node: sorted(rng.sample(nodes, rng.randrange(4))) for node in nodes}
        ages = {node: Stamp(rng.randrange(4), "aaaa") for node in nodes}
        out = left_out(edges, ages.__getitem__)
        shuffled = {node: rng.sample(edges[node], len(edges[node])) for node in rng.sample(nodes, len(nodes))}
        assert left_out(shuffled, ages.__getitem__) == out
        left = {node: [end for end in ends if (node, end) not in out] for node, ends in edges.items()}
        assert left_out(left, ages.__getitem__) == set()
        for node, end in out:  # each would close a circle of edges that are not younger
            older = {
                one: [two for two in ends if (ages[one], one, two) < (ages[node], node, end)]
                for one, ends in left.items()
            }
            assert left_out({**older, node: [*older[node], end]}, ages.__getitem__) != set()


def test_a_uid_is_that_of_one_task() -> None:
    keys = [new_key("hf-7k2q", *made) for made in itertools.product("ab", range(30), range(30))]
    assert len({*keys}) == len(keys)
    assert longer_ids(KEY)[0] == "hf-7k2qabcd"
    assert longer_ids(f"{'x' * 64}~abcdefgh1234")[0] == f"{'x' * 60}abcd"
