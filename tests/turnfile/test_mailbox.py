"""Reading MAILBOX.md in its three dialects, and editing it by spans (F9)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.turnfile.invariants import check
from holdfast.turnfile.mailbox import add_entry, parse, remove_card, set_field
from holdfast.turnfile.mailbox.markdown import Edit, apply, cells_of, lines_of, row_text, table_in
from holdfast.turnfile.mailbox.projection import refresh
from tests.turnfile.mailboxes import BOLD, DIALECTS, MIXED, PLAIN, SAMPLES, TABLE


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("form", ["as it is", "CRLF", "no final newline"])
def test_f9_a_mailbox_that_nobody_changed_is_the_same_bytes(name: str, form: str) -> None:
    text = DIALECTS[name]
    text = crlf(text) if form == "CRLF" else text.rstrip("\n") if form == "no final newline" else text
    box = parse(text)
    assert box.text == text
    assert box.edited([]).text == text
    assert "".join(text[line.start : line.after] for line in box.lines) == text
    # Writing each field as it is changes nothing either: every value stands where its span says.
    edits = [field.set(text[field.start : field.end]) for card in box.cards for field in card.fields if field.value]
    assert box.edited(edits).text == text
    assert [card.id for card in parse(crlf(DIALECTS[name])).cards] == [card.id for card in box.cards]


def test_f9_samples_are_read_and_given_back_byte_for_byte() -> None:
    paths = sorted(SAMPLES.rglob("*.md")) if SAMPLES.is_dir() else []
    if not paths:
        pytest.skip("the samples are not here")
    for path in paths:
        text = Path(path).read_bytes().decode()
        assert parse(text).edited([]).text == text


def test_f9_bold_cards_have_all_their_fields_and_text_stays_text() -> None:
    newest, oldest = parse(BOLD).cards
    assert (newest.id, newest.dialect, newest.status) == ("MSG-20260302-002", "bold", "acknowledged")
    assert (newest.sender, newest.receivers) == ("Bob", ("Ada",))
    assert newest.get("subject") == "Pipes | and such"
    assert newest.entries("ack") == ("Ada — 2026-03-02. acknowledged: seen.",)
    assert newest.body.startswith("A body with structure")
    assert newest.body.endswith("**Note:** this is text.")
    assert "### MSG-20260301-001 again" in newest.body
    assert "### MSG-20260302-009" in newest.body
    assert newest.get("note") == ""
    assert oldest.body == "Please read `plan.md`.\n\n## A heading of the document\n\nThe end."
    assert oldest.get("review_scope") == "full"


def test_f9_table_cards_have_fields_summary_and_ack() -> None:
    (card,) = parse(TABLE).cards
    assert (card.dialect, card.sender, card.receiver, card.get("priority")) == ("table", "Bob", "Ada", "P0")
    assert card.entries("summary") == ("One thing.", "Another thing over two lines.")
    assert card.entries("ack") == ("Bob — 2026-03-03: sent.",)
    assert card.body == ""


def test_f9_a_card_may_mix_dialects_and_a_change_reaches_both() -> None:
    box = parse(MIXED)
    (card,) = box.cards
    assert [(field.dialect, field.value) for field in card.fields if field.key == "status"] == [
        ("table", "unread"),
        ("bold", "unread"),
    ]
    assert (card.sender, card.receiver, card.get("type"), card.get("closure_owner")) == ("Bob", "Ada", "request", "Bob")
    after = box.edited(set_field(box, card, "status", "Status", "acknowledged"))
    assert after.text == MIXED.replace("| Status | unread |", "| Status | acknowledged |").replace(
        "**Status:** unread", "**Status:** acknowledged"
    )


def test_f9_plain_cards_of_v0_are_read() -> None:
    box = parse(PLAIN)
    first, second = box.cards
    assert (first.id, first.dialect, first.status) == ("MSG-20260201-001", "plain", "actioned")
    assert (first.sender, first.receivers, first.get("related")) == ("Ada", ("Bob",), "`plan.md`")
    assert first.body == "Please read:\n1) the plan,\n\nMessage ID: is only a word here."
    assert first.entries("ack") == ("Bob — 2026-02-01. Read and accepted.",)
    assert second.status == "unread"
    assert [field.key for field in box.metadata] == ["date_initialized", "protocol"]
    assert box.snapshot is not None
    assert len(box.snapshot.rows) == 2
    assert box.queue is None
    # Two spaces at the end of a line stay when its value changes.
    assert "Status: blocked  \n" in box.edited(set_field(box, second, "status", "Status", "blocked")).text


def test_f9_a_heading_may_stand_above_plain_lines() -> None:
    plain = "Message ID: MSG-20260302-002\nFrom: Bob\nTo: Ada\nStatus: acknowledged\nContext: mixed\n\nBody:\nText.\n"
    start, end = BOLD.index("**From:** Bob"), BOLD.index("---\n\n### MSG-20260302-001\n")
    box = parse(BOLD[:start] + plain + "\n" + BOLD[end:])
    assert [card.id for card in box.cards] == ["MSG-20260302-002", "MSG-20260302-001"]
    card = box.cards[0]
    assert (card.sender, card.receiver, card.status, card.body) == ("Bob", "Ada", "acknowledged", "Text.")
    assert card.get("context") == "mixed"


def test_f9_acks_and_answers_are_told_apart_however_they_are_signed() -> None:
    said = """\
**Ack:** Ada | 2026-03-02 | all of it,
with one addition.
**Ack (Bob):** Bob 2026-03-02 — fine.

**Reply (Ada, at length):**
First, an introduction.

1. One thing,
   explained.
2. Another thing.

---

**Context:** more text.

**Ack:** Ada - 2026-03-03 - done:
- this,
- and that.
"""
    card = parse(BOLD.replace("**Ack:** Ada — 2026-03-02. acknowledged: seen.\n", said)).cards[0]
    assert card.entries("ack") == (
        "Ada | 2026-03-02 | all of it, with one addition.",
        "Bob 2026-03-02 — fine.",
        "Ada - 2026-03-03 - done: - this, - and that.",
    )
    assert card.entries("reply") == ("First, an introduction.", "One thing, explained.", "Another thing.")
    assert card.body.endswith("**Context:** more text.")


def test_f9_an_ack_may_stand_right_below_the_fields() -> None:
    box = parse(
        BOLD.replace("**Review scope:** full\n", "**Review scope:** full\n**Ack (Bob):** Bob 2026-03-02 — on it.\n")
    )
    card = box.card("MSG-20260302-001")
    assert card.fields[-1].key == "review_scope"
    assert card.entries("ack") == ("Bob 2026-03-02 — on it.",)
    assert card.body.startswith("Please read `plan.md`.")
    assert "on it.\n**Ack:** x\n\nPlease read" in box.edited([add_entry(box, card, "ack", "Ack", "x")]).text


def test_f9_what_a_fence_or_a_comment_hides_is_no_card() -> None:
    comment = BOLD.replace(
        "---\n\n### MSG-20260302-002", "<!--\n\n### MSG-20260302-007\n\n-->\n\n---\n\n### MSG-20260302-002"
    )
    assert [card.id for card in parse(comment).cards] == ["MSG-20260302-002", "MSG-20260302-001"]
    for fence in ("```", "~~~~", "   ```"):
        assert lines_of(f"{fence} text\n## Active Messages\n{fence}\nafter\n")[1].hidden
    assert not lines_of("```` text\n## Active Messages\n```\nafter\n")[1].hidden  # the fence is never closed
    assert not lines_of("<!-- open\n### MSG-20260302-007\n")[1].hidden
    assert lines_of("<!-- one -->\nafter\n")[0].hidden
    assert not lines_of("<!-- one -->\nafter\n")[1].hidden


def test_f9_only_sections_of_a_mailbox_end_a_card_and_the_last_closed_summary_is_the_real_one() -> None:
    text = BOLD.replace("The end.", "## Closed Summary\n\n## Open Queue\n\n## Appendix\n\nThe end.")
    box = parse(text)
    assert box.cards[-1].body.endswith("## Closed Summary\n\n## Open Queue\n\n## Appendix\n\nThe end.")
    assert box.closed is not None
    assert [box.closed.value(row, "id") for row in box.closed.rows] == ["MSG-20260301-001"]
    assert box.queue is not None
    assert len(box.queue.rows) == 2


def test_f9_an_example_row_in_a_comment_is_no_row() -> None:
    lines = lines_of("| ID | Subject |\n|----|----|\n\n<!--\n| MSG-20260302-001 | x |\n-->\n")
    table = table_in(lines)
    assert table is not None
    assert table.rows == ()
    assert table.columns == ("id", "subject")


@pytest.mark.parametrize("name", ["bold", "plain"])
@pytest.mark.parametrize("place", [0, 1])
def test_f9_a_card_leaves_no_trace_and_its_neighbour_stays(name: str, place: int) -> None:
    box = parse(DIALECTS[name])
    stays = box.cards[1 - place]
    after = box.edited([remove_card(box, box.cards[place])])
    assert [card.id for card in after.cards] == [stays.id]
    assert after.text.count("\n---\n") == box.text.count("\n---\n") - 1
    assert "\n\n\n" not in after.text
    assert after.text[after.cards[0].start : after.cards[0].end] == box.text[stays.start : stays.end]
    last = after.edited([remove_card(after, after.cards[0])])
    assert "\n\n\n" not in last.text
    assert last.cards == ()


@given(st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"])), min_size=1))
def test_f9_a_row_gives_back_what_was_put_into_its_cells(values: list[str]) -> None:
    (line,) = lines_of(row_text(values))
    assert [cell.text for cell in cells_of(line)] == [value.strip() for value in values]


@given(st.text("#-|`~<!>*: \n\rABCMSG-20260301", max_size=300))
def test_f9_any_text_is_a_mailbox_and_loses_no_byte(text: str) -> None:
    box = parse(text)
    assert "".join(text[line.start : line.after] for line in box.lines) == text
    for card in box.cards:
        assert text[card.start : card.end].startswith(card.lines[0].text)


def test_edits_that_overlap_are_refused() -> None:
    assert apply("abc", [Edit(1, 1, "x"), Edit(1, 2, "y")]) == "axyc"
    with pytest.raises(ValueError, match="overlap"):
        apply("abc", [Edit(0, 2, "x"), Edit(1, 3, "y")])


@pytest.mark.parametrize(
    "piece",
    [
        "```a\n",
        "<!--\n",
        "~~~~~ x\n",
        "### MSG-20260301-001\n",
        "| a |\n|---|\n",
        "**a",
        "## Open Queue\n",
        "Message ID: x\nFrom: y\n\n",
    ],
)
def test_a_large_hostile_mailbox_is_read_at_once(piece: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are for people; a reader whose work grows with the square of the size would meet the timeout."""
    steps = []
    for size in (2_000, 40_000):
        started = time.process_time()
        parse(piece * size)
        steps.append(time.process_time() - started)
    with capsys.disabled():
        print(f"\n{piece[:12]!r} × 2,000 and × 40,000: {steps[0]:.3f} s, {steps[1]:.3f} s")
    assert parse(piece * 3).text == piece * 3


@pytest.mark.parametrize("long", [" ", "-", "|", "`", "*", "#", "a -> ", "(", "\\", "2026-", "| ", "- ", "\t:"])
def test_a_long_hostile_line_is_read_and_judged_at_once(long: str) -> None:
    """A pattern that tries every way to split such a line would meet the timeout."""
    fill = long * (200_000 // len(long))
    for start in (
        "**Ack:** a",
        "|---",
        "| MSG-20260302-001 | a",
        "**From:** a",
        "### MSG-20260302-001 a",
        "",
        "```",
        "Ack: a",
    ):
        text = BOLD.replace("**Note:** this is text.", f"{start}{fill}b").replace("P1 | Read", f"P1{fill}b | Read")
        box = parse(text)
        assert box.text == text
        check({"MAILBOX.md": text})
        refresh(box)
