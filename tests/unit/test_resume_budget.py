"""`tasks.resume` within its budget (A7), for any texts and any budget: hypothesis looks for those that burst it.

An answer is held against all there is by `assert_right`: as JSON it is no longer than the budget, cut texts say so, and
what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import errors
from holdfast.domains.tasks.resume import MAX_BUDGET, MIN_BUDGET
from holdfast.testing import ManualClock
from tests.conformance.test_resume import AWKWARD, CUT, Facts, assert_right, facts_of, size_of

# Characters that take from one to four bytes, or up to six once JSON has escaped them; and those that combine.
CHARACTERS = st.sampled_from(
    'a "\\/\n\t\x01\x1f\x7f\x80é\u0301ß\u2028漢\ufeff\ufffd😀\u200d\U0010ffff…()'
) | st.characters(codec="utf-8", exclude_characters="\0")
PIECES = st.text(CHARACTERS, max_size=40)
LINES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z")), min_size=1, max_size=60)
PATTERNS = st.builds(
    lambda number, what: f"dir-{number}/{what}", st.integers(0, 99), st.sampled_from(["**", "é/*.漢", "q"])
)
BUDGETS = st.integers(MIN_BUDGET, 3000) | st.integers(MIN_BUDGET, 40_000) | st.sampled_from([MIN_BUDGET, MAX_BUDGET])


class Text(msgspec.Struct, frozen=True):
    """A text that need not be written out to be shown."""

    piece: str
    times: int = 1

    def __str__(self) -> str:
        return (self.piece * self.times).encode()[:MOST].decode(errors="ignore")


MOST = 60_000  # bytes: less than a note may have
TEXTS = st.builds(Text, PIECES, st.sampled_from([1, 1, 7, 60, 900]))


class Work(msgspec.Struct, frozen=True):
    """What there is to tell of one task."""

    title: str
    body: Text
    tags: list[str]
    locks: list[list[str]]
    notes: list[Text]
    mails: list[tuple[str, Text]]
    result: Any
    ended: bool


WORKS = st.builds(
    Work,
    title=LINES,
    body=TEXTS,
    tags=st.lists(st.from_regex(r"[a-z]{1,40}", fullmatch=True), max_size=8, unique=True),
    locks=st.lists(st.lists(PATTERNS, min_size=1, max_size=3), max_size=5),
    notes=st.lists(TEXTS.filter(lambda text: bool(text.piece.strip())), max_size=5),
    mails=st.lists(st.tuples(LINES, TEXTS), max_size=5),
    result=st.none() | PIECES | st.dictionaries(PIECES, st.integers(-(2**63), 2**63 - 1) | PIECES, max_size=3),
    ended=st.booleans(),
)


@pytest.fixture(scope="module")
def ws() -> Iterator[holdfast.Workspace]:
    """A workspace in memory, in which every example has a task of its own."""
    with holdfast.open(":memory:", actor="ann", clock=ManualClock()) as workspace:
        yield workspace


def done(ws: holdfast.Workspace, work: Work) -> tuple[str, Facts]:
    """Do it; answers the task's id and all there is to tell of it."""

    def body(tx: holdfast.Transaction) -> str:
        id = tx.tasks.create(work.title, str(work.body), tags=work.tags).id
        tx.tasks.claim(id)
        for patterns in work.locks:
            tx.paths.lock(patterns, task=id)
        for note in work.notes:
            tx.tasks.note(id, str(note))
        for subject, text in work.mails:
            tx.mail.send(["bob", "carl"], subject, str(text), task=id)
        return id

    id = ws.transact(body)
    if not work.ended:
        return id, facts_of(ws, id)
    ws.tasks.complete(id, result=work.result, summary=str(work.body))
    return id, facts_of(ws, id, sorted({pattern for patterns in work.locks for pattern in patterns}))


@settings(deadline=None, max_examples=120)
@given(work=WORKS, budgets=st.lists(BUDGETS, min_size=1, max_size=8))
@example(
    Work("t", Text('"', 50_000), [], [], [Text("\x01", 9000)], [("s", Text("\\", 9000))], None, False),
    [MIN_BUDGET, 1200, 2000],
)
@example(
    Work("t", Text(CUT, 900), [], [["a"]], [Text(CUT, 90)], [("s", Text(CUT, 90))], AWKWARD, True),
    [MIN_BUDGET, 1100, 5000],
)
@example(
    Work("漢" * 500, Text("😀", 9000), ["x"], [["a", "b"]] * 3, [Text("é")] * 3, [("s", Text(""))], b"\xff", True),
    [3000, 9000],
)
def test_a7_no_text_and_no_budget_makes_the_answer_too_long(
    ws: holdfast.Workspace, work: Work, budgets: list[int]
) -> None:
    id, facts = done(ws, work)
    try:
        for budget in budgets:
            try:
                answer = ws.tasks.resume(id, budget=budget)
            except errors.Invalid as refusal:
                budget = needed(refusal)
                assert budget > MIN_BUDGET
                answer = ws.tasks.resume(id, budget=budget)
            assert_right(answer, budget, facts)
            assert (answer.task.id, answer.task.title, answer.last_holder) == (
                id,
                work.title,
                "ann" if work.ended else None,
            )
        whole = ws.tasks.resume(id, budget=MAX_BUDGET)
        assert_right(whole, MAX_BUDGET, facts)
        if size_of(whole) < MAX_BUDGET // 4:
            assert whole.omitted == {}
    finally:
        if not work.ended:
            ws.tasks.release(id)


def needed(refusal: errors.Invalid) -> int:
    """How many bytes a refusal asks for."""
    assert refusal.hint is not None
    return int(refusal.hint.rpartition(" ")[2])


@pytest.mark.parametrize("length", [0, 1, 8, 9, 10, 30])
@pytest.mark.parametrize("piece", ["x", "é", '"', AWKWARD])
def test_a7_every_budget_around_the_smallest_that_is_enough_is_kept(
    ws: holdfast.Workspace, piece: str, length: int
) -> None:
    tags = [f"tag-{number}" for number in range(30)]
    notes, mails = [Text("n")], [("s", Text("b"))]
    work = Work("漢" * 300, Text(piece, length), tags, [["a"], ["b"]], notes, mails, 1, True)
    id, facts = done(ws, work)
    with pytest.raises(errors.Invalid) as refused:
        ws.tasks.resume(id, budget=MIN_BUDGET)
    least = needed(refused.value)
    with pytest.raises(errors.Invalid, match=str(least)):
        ws.tasks.resume(id, budget=least - 1)
    for budget in range(least, least + 400):
        assert_right(ws.tasks.resume(id, budget=budget), budget, facts)
