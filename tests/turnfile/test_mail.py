"""What may be done with a message and by whom (F11), composing (F9, F10), escalation (F7)."""

from __future__ import annotations

import difflib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.turnfile.escalation import lock_question, with_question
from holdfast.turnfile.invariants import check
from holdfast.turnfile.mailbox import Mailbox, parse
from holdfast.turnfile.mailbox.cards import OPEN, TERMINAL
from holdfast.turnfile.mailbox.draft import Draft, compose, next_id
from holdfast.turnfile.mailbox.steps import STEPS, Actor, Disposition, Operation, close, open_cards, reply, step
from holdfast.turnfile.model import Lock
from tests.turnfile.mailboxes import BOLD, DIALECTS, EMPTY, MIXED, PLAIN, SAMPLES, TABLE

ADA, BOB = Actor("Ada", "2026-03-04"), Actor("bob", "2026-03-04")
SAM = Actor("sam", "2026-03-04", ("sam",))
DRAFT = Draft("ada", "bob", "A subject", "2026-03-04")


def changed_lines(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---  ", "--- "))]


def errors_of(text: str) -> list[str]:
    return [str(problem) for problem in check({"MAILBOX.md": text}) if problem.level == "error"]


def with_status(status: str, kind: str = "request") -> str:
    """A mailbox with one message from Ada to Bob that stands there."""
    text, _ = compose(EMPTY, msgspec.structs.replace(DRAFT, type=kind))
    return text.replace("**Status:** unread", f"**Status:** {status}")


def rows(box: Mailbox, name: str) -> list[dict[str, str]]:
    table = getattr(box, name)
    return [{column: table.value(row, column) for column in table.columns} for row in table.rows]


ID = "MSG-20260304-001"


@pytest.mark.parametrize("status", [*OPEN, *TERMINAL])
@pytest.mark.parametrize("operation", get_args(Operation))
def test_f11_the_receiver_takes_legal_steps_only(operation: Operation, status: str) -> None:
    legal = {
        ("ack", "unread"): "acknowledged",
        ("action", "unread"): "actioned",
        ("action", "acknowledged"): "actioned",
        ("block", "acknowledged"): "blocked",
        ("ack", "blocked"): "acknowledged",
        ("action", "blocked"): "actioned",
    }
    text = with_status(status)
    if (operation, status) not in legal:
        with pytest.raises(errors.InvalidTransition) as refused:
            step(text, ID, operation, BOB, "because")
        assert refused.value.details["status"] == status
        return
    box = parse(step(text, ID, operation, BOB, "because"))
    card = box.card(ID)
    assert card.status == legal[operation, status]
    assert card.entries("ack") == (f"Bob — 2026-03-04 — {card.status}: because",)
    assert errors_of(box.text) == []


def test_f11_the_table_of_steps_is_the_contract() -> None:
    assert {(source, target) for sources, target in STEPS.values() for source in sources} == {
        ("unread", "acknowledged"),
        ("unread", "actioned"),
        ("acknowledged", "actioned"),
        ("acknowledged", "blocked"),
        ("blocked", "acknowledged"),
        ("blocked", "actioned"),
    }


@pytest.mark.parametrize("actor", [ADA, SAM, Actor("carol", "2026-03-04")], ids=lambda actor: actor.name)
@pytest.mark.parametrize("operation", get_args(Operation))
def test_f11_nobody_but_the_receiver_takes_the_receivers_steps(operation: Operation, actor: Actor) -> None:
    with pytest.raises(errors.NotRecipient):
        step(with_status("acknowledged"), ID, operation, actor, "because")


@pytest.mark.parametrize("status", ["unread", "acknowledged", "actioned", "blocked"])
@pytest.mark.parametrize("actor", [ADA, SAM, Actor("Maintainer", "2026-03-04")], ids=lambda actor: actor.name)
def test_f11_sender_and_maintainer_close_from_anywhere(actor: Actor, status: str) -> None:
    box = parse(close(with_status(status), ID, actor, "done with it").text)
    assert box.cards == ()
    assert rows(box, "closed")[0] == {
        "id": ID,
        "date": "2026-03-04",
        "from_to": "Ada -> Bob",
        "final_status": "closed",
        "outcome": "done with it",
    }
    assert rows(box, "queue") == []
    assert {row["unread"] for row in rows(box, "snapshot")} == {"0"}
    assert errors_of(box.text) == []


def test_f11_the_receiver_closes_only_what_notifies() -> None:
    with pytest.raises(errors.NotSender):
        close(with_status("actioned"), ID, BOB)
    assert parse(close(with_status("unread", "notify"), ID, BOB).text).cards == ()


@pytest.mark.parametrize("status", TERMINAL)
def test_f11_nothing_leaves_a_terminal_status(status: str) -> None:
    with pytest.raises(errors.InvalidTransition):
        close(with_status(status), ID, ADA)


def test_f11_a_block_names_what_it_waits_for() -> None:
    with pytest.raises(errors.InvalidValue):
        step(with_status("acknowledged"), ID, "block", BOB, "  ")


@pytest.mark.parametrize(
    ("disposition", "actor", "refusal"),
    [
        ("withdrawn", SAM, errors.NotSender),
        ("abandoned", ADA, errors.Forbidden),
        ("unread", ADA, errors.InvalidValue),
        ("resolved", ADA, None),
        ("superseded", SAM, None),
        ("withdrawn", ADA, None),
        ("abandoned", SAM, None),
    ],
)
def test_f11_a_disposition_belongs_to_who_may_give_it(disposition: Any, actor: Actor, refusal: Any) -> None:
    if refusal is not None:
        with pytest.raises(refusal):
            close(with_status("unread"), ID, actor, disposition=disposition)
        return
    closed = close(with_status("unread"), ID, actor, disposition=disposition)
    assert rows(parse(closed.text), "closed")[0]["final_status"] == disposition
    assert f"**Disposition:** {disposition}\n" in closed.cards[0]
    assert disposition in get_args(Disposition)


def test_f10_a_closed_card_may_stay_with_a_line_that_says_why() -> None:
    for text, id, actor in (
        (with_status("unread"), ID, ADA),
        (TABLE, "MSG-20260303-001", BOB),
        (PLAIN, "MSG-20260201-002", BOB),
    ):
        closed = close(text, id, actor, keep="the thread goes on")
        card = parse(closed.text).card(id)
        assert (card.status, card.get("retained"), closed.cards) == ("closed", "the thread goes on", ())
        assert errors_of(closed.text) == []
        assert "terminal-active" in str(errors_of(closed.text.replace("Retained", "Sustained")))


def test_f11_an_unknown_or_closed_message_is_not_found() -> None:
    with pytest.raises(errors.MessageNotFound, match="is not in the mailbox"):
        step(BOLD, "MSG-20260302-009", "ack", BOB)
    with pytest.raises(errors.MessageNotFound, match="is closed"):
        step(BOLD, "MSG-20260301-001", "ack", BOB)


@pytest.mark.parametrize(
    ("name", "id", "actor", "wanted"),
    [
        (
            "bold",
            "MSG-20260302-001",
            BOB,
            [
                "-| Bob        | 1      | MSG-20260302-001 | first turn |",
                "+| Bob        | 0      | none | none |",
                "-**Status:** unread",
                "+**Status:** acknowledged",
                "+**Response needed by:** first turn",  # which only the snapshot had
                "+**Ack:** Bob — 2026-03-04 — acknowledged: on it",
            ],
        ),
        (
            "table",
            "MSG-20260303-001",
            ADA,
            [
                "-| Ada | 1 | MSG-20260303-001 | none |",
                "+| Ada | 0 | none | none |",
                "-| MSG-20260303-001 | 2026-03-03 | Bob → Ada | P0 | Unread | soon | Table card |",
                "+| MSG-20260303-001 | 2026-03-03 | Bob → Ada | P0 | acknowledged | soon | Table card |",
                "-| Status | unread |",
                "+| Status | acknowledged |",
                "+- Ada — 2026-03-04 — acknowledged: on it",
            ],
        ),
        (
            "plain",
            "MSG-20260201-002",
            ADA,
            [
                "-| Ada | 1 | MSG-20260201-002 | none |",
                "+| Ada | 0 | none | none |",
                "-Status: unread  ",
                "+Status: acknowledged  ",
                "+Ack:",
                "+Ada — 2026-03-04 — acknowledged: on it",
            ],
        ),
    ],
)
def test_f11_a_step_changes_status_ack_snapshot_and_queue_and_nothing_else(
    name: str, id: str, actor: Actor, wanted: list[str]
) -> None:
    after = step(DIALECTS[name], id, "ack", actor, "on it")
    assert [line for line in changed_lines(DIALECTS[name], after) if line != "+"] == wanted
    assert errors_of(after) == []
    crlf = step(DIALECTS[name].replace("\n", "\r\n"), id, "ack", actor, "on it")
    assert crlf == after.replace("\n", "\r\n")


def test_f11_the_queue_mirrors_the_cards_but_keeps_a_subject_that_somebody_shortened() -> None:
    drifted = BOLD.replace("| Ada -> Bob | P1 | Read the plan |", "| Ada → Bob | P0 | Plan |")
    after = step(drifted, "MSG-20260302-002", "action", ADA)
    assert "| MSG-20260302-001 | Ada → Bob | P1 | Plan |\n" in after
    empty = step(drifted.replace("| Plan |", "| |"), "MSG-20260302-002", "action", ADA)
    assert "| MSG-20260302-001 | Ada → Bob | P1 | Read the plan |\n" in empty


def test_f11_acks_join_the_acks_that_are_there_as_those_are_written() -> None:
    bold = step(BOLD, "MSG-20260302-002", "block", ADA, "the tide")
    assert "seen.\n**Ack:** Ada — 2026-03-04 — blocked: the tide\n" in bold
    table = step(step(TABLE, "MSG-20260303-001", "ack", ADA), "MSG-20260303-001", "action", ADA)
    assert "- Ada — 2026-03-04 — acknowledged.\n- Ada — 2026-03-04 — actioned.\n" in table
    mixed = step(MIXED, "MSG-20260303-001", "ack", ADA)
    assert "- Bob — 2026-03-03: sent.\n- Ada — 2026-03-04 — acknowledged.\n" in mixed
    plain = step(step(PLAIN, "MSG-20260201-002", "ack", ADA), "MSG-20260201-002", "action", ADA, "read")
    assert "Ack:\nAda — 2026-03-04 — acknowledged.\nAda — 2026-03-04 — actioned: read\n" in plain
    assert len(parse(plain).card("MSG-20260201-002").entries("ack")) == 2


def test_f9_a_new_card_in_an_empty_mailbox_has_bold_lines() -> None:
    text, id = compose(EMPTY, msgspec.structs.replace(DRAFT, body="First.\n\n### A heading\n\n| a |\n|---|"))
    assert id == ID
    assert changed_lines(EMPTY, text) == [
        "-| Bob | 0 | none | none |",
        "+| Bob | 1 | MSG-20260304-001 | none |",
        "+| MSG-20260304-001 | Ada -> Bob | P1 | A subject |",
        "+",
        "+---",
        "+",
        "+### MSG-20260304-001",
        "+",
        "+**From:** Ada -> Bob",
        "+**Date:** 2026-03-04",
        "+**Type:** request",
        "+**Priority:** P1",
        "+**Status:** unread",
        "+**Subject:** A subject",
        "+**Closure owner:** Ada",
        "+",
        "+First.",
        "+",
        "+### A heading",
        "+",
        "+| a |",
        "+|---|",
    ]
    assert errors_of(text) == []


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_f9_a_new_card_is_written_as_the_file_writes_its_cards(name: str, ending: str) -> None:
    old = DIALECTS[name].replace("\n", ending) if ending else DIALECTS[name].rstrip("\n")
    text, id = compose(old, msgspec.structs.replace(DRAFT, body="Two\nlines.", response_by="tomorrow"))
    card = parse(text).card(id)
    expected = {"mixed": "bold", "empty": "bold"}.get(name, name)
    assert (card.dialect, card.status, card.body, card.get("response_needed_by")) == (
        expected,
        "unread",
        "Two\nlines.",
        "tomorrow",
    )
    assert (card.sender, card.receivers) == ("Ada", ("Bob",))
    assert errors_of(text) == []
    assert (text.count("\r\n") == text.count("\n")) == (ending == "\r\n")
    removed = [line for line in changed_lines(old, text) if line[0] == "-"]
    assert all("| Bob " in line for line in removed)  # one row of the snapshot
    assert rows(parse(text), "snapshot")[-1 if name in ("table", "mixed") else 1]["needs_response_by"] in (
        "tomorrow",
        "first turn",
    )
    closed = close(text, id, ADA)
    assert id not in [card.id for card in parse(closed.text).cards]
    assert errors_of(closed.text) == []


def test_f9_what_comes_and_goes_leaves_the_file_as_it_was_but_for_its_row() -> None:
    for name in ("bold", "table", "empty"):
        text, id = compose(DIALECTS[name], msgspec.structs.replace(DRAFT, receiver="Ada", sender="Bob", body="x"))
        lines = [line for line in close(text, id, BOB).text.splitlines() if not line.startswith(f"| {id} ")]
        assert lines == DIALECTS[name].splitlines()


def test_f9_a_file_that_ends_in_the_middle_of_a_line_gets_its_newline_first() -> None:
    cut = PLAIN[: PLAIN.rindex("\n---")].rstrip("\n")
    assert cut.endswith("Here it is.")
    text, id = compose(cut, msgspec.structs.replace(DRAFT, body="More."))
    assert text.startswith(cut[: cut.index("| Ada |")])
    assert text.endswith("Here it is.\n\n---\n\n" + text[text.index(f"Message ID: {id}") :])
    assert [card.id for card in parse(text).cards] == ["MSG-20260201-001", "MSG-20260201-002", id]
    assert step(cut, "MSG-20260201-002", "ack", ADA).endswith("Here it is.\n\nAck:\nAda — 2026-03-04 — acknowledged.")
    assert errors_of(text) == errors_of(close(cut, "MSG-20260201-002", BOB).text) == []


def test_f10_tables_are_put_right_from_the_cards_newest_first_and_by_the_oldest_unread() -> None:
    text = EMPTY
    for _ in range(3):
        text, _ = compose(text, DRAFT)
    head, rest = text.split("| MSG-20260304-003 | Ada", 1)
    bare = head + rest[rest.index("\n## Active") :]  # no row is left in the queue
    assert [row["id"][-3:] for row in rows(parse(step(bare, "MSG-20260304-002", "ack", BOB)), "queue")] == [
        "003",
        "002",
        "001",
    ]
    middle = step(text.replace("| MSG-20260304-002 | Ada -> Bob | P1 | A subject |\n", ""), ID, "ack", BOB)
    assert [row["id"][-3:] for row in rows(parse(middle), "queue")] == ["003", "002", "001"]
    rising, _ = compose(PLAIN, msgspec.structs.replace(DRAFT, receiver="Ada", sender="Bob"))
    assert rows(parse(rising), "snapshot")[0]["oldest_unread"] == "MSG-20260201-002"


def test_f9_prose_may_begin_like_a_field() -> None:
    for name in ("bold", "table", "empty"):
        draft = msgspec.structs.replace(DRAFT, body="Status: all is well.\nFrom: here on, more.")
        text, id = compose(DIALECTS[name], draft)
        assert (parse(text).card(id).body, parse(text).card(id).status) == (draft.body, "unread")


def test_f10_the_next_id_is_one_above_the_highest_in_use_on_its_day_whatever_texts_mention() -> None:
    assert next_id("2026-03-02", BOLD) == "MSG-20260302-003"  # a fence mentions 009
    assert next_id("2026-03-01", BOLD) == "MSG-20260301-002"  # a closed row
    assert next_id("2026-03-09", BOLD) == "MSG-20260309-001"
    assert next_id("2026-03-02", BOLD.replace("MSG-20260302-002", "MSG-20260302-006")) == "MSG-20260302-007"
    assert next_id("2026-03-02", "", "in the archive: MSG-20260302-041") == "MSG-20260302-001"
    archive = "# Mailbox Archive\n\n## Closed Summary\n\n---\n\n### MSG-20260302-041\n\n**From:** Ada -> Bob\n"
    assert next_id("2026-03-02", BOLD, archive) == "MSG-20260302-042"
    assert next_id("2026-03-02", BOLD, archive.replace("041", "999")) == "MSG-20260302-1000"
    assert next_id("2026-03-02", BOLD, archive.replace("041", "9" * 9)) == "MSG-20260302-003"  # absurdly high
    top = archive + archive.replace("041", "999999").replace("# Mailbox Archive", "")
    assert next_id("2026-03-02", BOLD, top) == "MSG-20260302-1000000"
    assert next_id("2026-03-02", BOLD, top + top.replace("999999", "1000000")) == "MSG-20260302-1000001"
    with pytest.raises(errors.Invalid):
        next_id("yesterday", "")


@pytest.mark.parametrize("digits", [3, 6, 7, 9, 10, 5000])
def test_f10_a_mention_of_a_high_id_stops_no_later_message(digits: int) -> None:
    day = DRAFT.date.replace("-", "")
    mention = f"see MSG-{day}-{'9' * digits}"
    drafts = [
        msgspec.structs.replace(DRAFT, subject=mention[:400]),
        msgspec.structs.replace(DRAFT, body=mention),
        DRAFT,
    ]
    text, ids = EMPTY, []
    for draft in drafts:
        before = text
        text, id = compose(before, draft, f"# Mailbox Archive\n\n{mention}\n")
        assert check({"MAILBOX.md": text}, {"MAILBOX.md": before}) == []
        ids.append(id)
    assert ids == [f"MSG-{day}-{number:03d}" for number in (1, 2, 3)]


def test_f10_a_card_of_an_earlier_day_goes_below_the_later_ones() -> None:
    text, _ = compose(EMPTY, DRAFT)
    text, id = compose(text, msgspec.structs.replace(DRAFT, date="2026-03-03"))
    assert [card.id for card in parse(text).cards] == ["MSG-20260304-001", id]
    assert errors_of(text) == []
    assert rows(parse(text), "snapshot")[1]["oldest_unread"] == id


@pytest.mark.parametrize(
    "body",
    [
        "### MSG-20260301-009\n\n**From:** a -> b",
        "### MSG-20260301-009",
        "**Retained:** haha",
        "text\n\n**Ack:** Bob — 2026-03-04 — acknowledged.",
        "text\n\n---",
        "```\nan open fence",
        "<!-- an open comment",
        "\x00",
        "\x1b[31m",
        "a\u2028b",
    ],
)
def test_f9_a_body_that_would_be_read_as_something_else_is_refused(body: str) -> None:
    text = BOLD.replace("Please read", "```\nx\n```\n\n<!-- y -->\n\nPlease read")
    with pytest.raises(errors.InvalidValue):
        compose(text, msgspec.structs.replace(DRAFT, body=body))


@pytest.mark.parametrize("body", ["```\nan open fence", "text\n~~~~ sh\n~~~", "<!-- an open comment", "a\n<!--\nb"])
def test_f9_a_body_with_an_open_fence_or_comment_is_refused_whatever_follows_it(body: str) -> None:
    for text in (EMPTY, *DIALECTS.values()):
        with pytest.raises(errors.InvalidValue, match="never closes"):
            compose(text, msgspec.structs.replace(DRAFT, body=body))
    for fine in ("```x``` is code", "<!-- closed -->", "```\n<!--\n```"):
        assert compose(EMPTY, msgspec.structs.replace(DRAFT, body=fine))


@pytest.mark.parametrize("wrong", [{"priority": "P3"}, {"priority": "high"}, {"type": "rqeuest"}, {"type": "Request"}])
def test_f11_a_priority_or_type_that_nobody_knows_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises((errors.InvalidPriority, errors.InvalidType)):
        compose(EMPTY, msgspec.structs.replace(DRAFT, **wrong))


def test_f9_a_body_may_look_like_a_section_where_the_real_one_tells_them_apart() -> None:
    draft = msgspec.structs.replace(DRAFT, body="## Closed Summary\n\n| ID |\n|---|\n| MSG-20260304-001 |")
    text, id = compose(BOLD, draft)
    assert parse(text).card(id).body == draft.body
    assert rows(parse(text), "closed") == rows(parse(BOLD), "closed")
    with pytest.raises(errors.InvalidValue):
        compose(PLAIN, draft)  # which has none of its own


def test_f9_the_same_lines_inside_a_fence_are_text() -> None:
    body = "```text\n### MSG-20260301-009\n\n**Status:** closed\n## Closed Summary\n```\n\nIndeed."
    for name in DIALECTS:
        text, id = compose(DIALECTS[name], msgspec.structs.replace(DRAFT, body=body))
        assert parse(text).card(id).body == body
        assert errors_of(text) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", ""),
        ("sender", "a -> b"),
        ("sender", "a|b"),
        ("sender", "x" * 81),
        ("receiver", "a,,b"),
        ("receiver", "a\nb"),
        ("subject", " "),
        ("subject", "two\nlines"),
        ("subject", "x" * 501),
        ("priority", "urgent"),
        ("type", "a b"),
        ("type", ""),
        ("date", "2026-02-30"),
        ("response_by", "a\nb"),
    ],
)
def test_f9_what_does_not_fit_into_a_card_is_refused(field: str, value: str) -> None:
    with pytest.raises(errors.Invalid):
        compose(EMPTY, msgspec.structs.replace(DRAFT, **{field: value}))


def test_f11_notes_cannot_write_other_lines() -> None:
    for note in ("a\n**Status:** closed", "a\r## Closed Summary", "x" * 501):
        with pytest.raises(errors.InvalidValue):
            step(with_status("unread"), ID, "ack", BOB, note)
    closed = close(with_status("unread"), ID, ADA, "a | b").text
    assert rows(parse(closed), "closed")[0]["outcome"] == "a | b"


_PIECES = [*"aZ|#*-`~<>!:. \\\n", "**Status:** ", "### MSG-20260304-001", "\n---\n", "```", "## Closed Summary\n"]
_WORDS = st.lists(st.sampled_from(_PIECES), max_size=30).map("".join)


@settings(max_examples=300)
@given(_WORDS, _WORDS, st.sampled_from(sorted(DIALECTS)))
def test_f9_whatever_is_sent_is_read_back_or_refused(subject: str, body: str, name: str) -> None:
    before = parse(DIALECTS[name])
    try:
        text, id = compose(before.text, msgspec.structs.replace(DRAFT, subject=subject, body=body))
    except errors.Invalid:
        return
    after = parse(text)
    card = after.card(id)
    assert (card.get("subject"), card.body) == (subject.strip(), body.strip("\n").rstrip())
    assert [one.id for one in after.cards if one.id != id] == [one.id for one in before.cards]
    assert errors_of(text) == []
    done = step(text, id, "action", BOB, "done")
    assert parse(close(done, id, ADA, "over").text).find(id) is None


def test_f11_a_mailbox_without_a_place_for_cards_is_refused_and_one_without_a_closed_summary_gets_it() -> None:
    with pytest.raises(errors.Invalid, match="Active Messages"):
        compose("# Mailbox\n", DRAFT)
    closed = close(PLAIN, "MSG-20260201-001", ADA, "over").text
    assert rows(parse(closed), "closed")[0]["outcome"] == "over"
    assert [card.id for card in parse(closed).cards] == ["MSG-20260201-002"]
    assert errors_of(closed) == []
    bare = EMPTY[: EMPTY.index("| ID | Date")]
    text, id = compose(bare, DRAFT)
    assert rows(parse(close(text, id, ADA).text), "closed")[0]["id"] == id


def test_f11_messages_to_several_or_all_are_theirs() -> None:
    text, id = compose(EMPTY, msgspec.structs.replace(DRAFT, receiver="bob, carol"))
    assert {row["agent"]: row["unread"] for row in rows(parse(text), "snapshot")} == {
        "Ada": "0",
        "Bob": "1",
        "Maintainer": "0",
        "carol": "1",
    }
    assert errors_of(step(text, id, "ack", Actor("carol", "2026-03-04"))) == []
    text, id = compose(EMPTY, msgspec.structs.replace(DRAFT, receiver="all"))
    assert parse(step(text, id, "ack", BOB)).card(id).status == "acknowledged"
    with pytest.raises(errors.NotRecipient):
        step(text, id, "ack", ADA)


def test_f11_a_maintainer_answers_to_every_name_it_has() -> None:
    text, id = compose(EMPTY, msgspec.structs.replace(DRAFT, receiver="maintainer"))
    assert parse(text).card(id).receiver == "Maintainer"
    assert parse(step(text, id, "ack", SAM)).card(id).status == "acknowledged"
    assert [card.id for card in open_cards(parse(text), SAM)] == [id]
    assert open_cards(parse(text), BOB) == []
    assert [card.id for card in open_cards(parse(text), ADA, "unread")] == [id]
    assert open_cards(parse(text), ADA, "blocked") == []


def test_f11_a_message_to_the_maintainer_goes_to_whom_the_mailbox_calls_so() -> None:
    named = EMPTY.replace("| Maintainer |", "| Sam |")
    for to in ("maintainer", "sam"):
        text, id = compose(named, msgspec.structs.replace(DRAFT, receiver=to), maintainers=("sam",))
        assert parse(text).card(id).receiver == "Sam"
        text, id = compose(EMPTY, msgspec.structs.replace(DRAFT, receiver=to), maintainers=("sam",))
        assert parse(text).card(id).receiver == "Maintainer"
    text, id = with_question(named, lock_question(LOCK, 9, "bob"), "bob", "2026-03-04", maintainers=("sam",))
    assert parse(text).card(id).receiver == "Sam"


def test_f11_a_reply_is_a_message_that_says_what_it_answers_and_acknowledges_it() -> None:
    draft = Draft("bob", "", "", "2026-03-04", "notify", body="Fine.")
    text, new = reply(BOLD, "MSG-20260302-001", BOB, draft)
    box = parse(text)
    card = box.card(new)
    assert (card.sender, card.receiver, card.get("subject")) == ("Bob", "Ada", "Re: Read the plan")
    assert card.get("in_reply_to") == "MSG-20260302-001"
    answered = box.card("MSG-20260302-001")
    assert answered.status == "acknowledged"
    assert answered.entries("ack") == (f"Bob — 2026-03-04 — acknowledged: answered in {new}",)
    assert errors_of(text) == []
    again, third = reply(text, new, ADA, Draft("ada", "", "", "2026-03-04"))
    assert parse(again).card(third).get("subject") == "Re: Read the plan"
    with pytest.raises(errors.NotRecipient):
        reply(BOLD, "MSG-20260302-001", Actor("carol", "2026-03-04"), draft)


LOCK = Lock("LOCK-ada-001", ("working-session/WORKLOG.md",), "ada", 7, 2, "tidy\nup")


def test_f7_an_escalation_is_a_decision_for_the_maintainer_with_all_that_it_needs() -> None:
    text, id = with_question(EMPTY, lock_question(LOCK, 9, "bob"), "bob", "2026-03-04")
    card = parse(text).card(id)
    assert (card.sender, card.receiver, card.get("type"), card.get("priority")) == (
        "Bob",
        "Maintainer",
        "decision-required",
        "P0",
    )
    for fact in (
        "- lock_id: LOCK-ada-001",
        "- holder: ada",
        "- acquired_rev: 7",
        "- last seen coordination.revision: 9",
        "- reason: tidy up",
    ):
        assert fact in card.body.splitlines()
    for part in ("**Decision needed:**", "**Options:**", "**Recommended:**", "**If delayed:**"):
        assert part in card.body
    assert errors_of(text) == []


def test_f7_a_lock_is_escalated_once_until_that_is_decided() -> None:
    text, id = with_question(EMPTY, lock_question(LOCK, 9, "bob"), "bob", "2026-03-04")
    assert with_question(text, lock_question(LOCK, 9, "carol"), "carol", "2026-03-05") == (text, id)
    later = msgspec.structs.replace(LOCK, acquired_rev=20)
    _, other = with_question(text, lock_question(later, 22, "bob"), "bob", "2026-03-04")
    assert other != id
    closed = close(text, id, SAM, "wait").text
    assert with_question(closed, lock_question(LOCK, 9, "bob"), "bob", "2026-03-04")[1] == "MSG-20260304-002"


@pytest.mark.parametrize(
    ("text", "id", "typed"), [(BOLD, "MSG-20260302-001", "first turn"), (TABLE, "MSG-20260303-001", "soon")]
)
def test_f11_a_time_of_response_that_only_a_table_has_moves_to_the_card(text: str, id: str, typed: str) -> None:
    [card] = [card for card in parse(text).cards if card.id == id]
    assert card.get("response_needed_by") == ""
    archived = close(text, id, Actor(card.sender, "2026-03-04")).cards[0]
    assert parse(archived).cards[0].get("response_needed_by") == typed
    if text == BOLD:
        acknowledged = step(text, id, "ack", BOB)
        assert parse(acknowledged).card(id).get("response_needed_by") == typed
        assert close(acknowledged, id, ADA).cards[0].count(typed) == 1
        bare = text.replace("Please read `plan.md`.\n\n## A heading of the document\n\nThe end.\n\n", "")
        assert parse(step(bare, id, "ack", BOB)).card(id).get("response_needed_by") == typed


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
def test_f11_the_typed_cell_of_a_real_snapshot_is_kept() -> None:
    text = (SAMPLES / "tokenese-session0" / "MAILBOX.md").read_text()
    typed = "first Codex session turn"
    [row] = [row for row in rows(parse(text), "snapshot") if row["needs_response_by"] == typed]
    done = step(text, row["oldest_unread"], "ack", Actor(row["agent"], "2026-03-04"))
    assert parse(done).card(row["oldest_unread"]).get("response_needed_by") == typed
