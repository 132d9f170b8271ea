"""F11: what is closed leaves a mailbox beyond the newest 200 and is found in its archives; cards are parsed by text."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors, turnfile
from holdfast.turnfile import Session, archive, mail, mailbox
from holdfast.turnfile.mail import Mail
from holdfast.turnfile.mailbox import cards, parse, projection, steps
from holdfast.turnfile.mailbox.content import Content
from holdfast.turnfile.mailbox.draft import Draft, compose, next_id
from holdfast.turnfile.mailbox.markdown import spliced_table
from holdfast.turnfile.model import ARCHIVE, CLOSED, MAILBOX
from tests.amounts import amount
from tests.turnfile.mailboxes import BOLD, DIALECTS, EMPTY, HEAD
from tests.turnfile.sessions import is_whole, new_session, text_of

ADA = steps.Actor("Ada", "2026-03-04")


def closed_rows(count: int) -> str:
    """A mailbox with so many rows in its closed summary, the newest first."""
    rows = [f"| MSG-20260101-{n:03} | 2026-01-01 | Ada -> Bob | closed | no. {n} |\n" for n in range(count, 0, -1)]
    return EMPTY + "".join(rows)


def with_mailbox(session: Session, text: str) -> Path:
    path = Path(session.folder.path, MAILBOX)
    path.write_text(projection.refresh(parse(text)).text)
    return path


def test_f11_rows_of_the_closed_summary_beyond_the_newest_200_move_to_their_archive_and_are_found(
    tmp_path: Path,
) -> None:
    session = new_session(tmp_path)
    with_mailbox(session, closed_rows(203))
    ada = Mail(session, "Ada", wait=None)
    sent = ada.send("Bob", "one more")
    done = ada.close(sent.id, "read")
    assert set(done.completion.files) == {MAILBOX, ARCHIVE, CLOSED}
    box = parse(text_of(session, MAILBOX))
    assert box.closed is not None
    kept = [box.closed.value(row, "id") for row in box.closed.rows]
    assert kept == [sent.id, *(f"MSG-20260101-{n:03}" for n in range(203, 4, -1))]
    moved = text_of(session, CLOSED)
    assert [line for line in closed_rows(4).splitlines() if line not in moved.splitlines() and "no." in line] == []
    assert mail.message(session, "MSG-20260101-002")["fields"]["outcome"] == "no. 2"
    with pytest.raises(errors.MessageNotFound):
        mail.message(session, "MSG-20260101-900")
    ada.close(ada.send("Bob", "and another").id)
    assert text_of(session, CLOSED) == f"{moved}| MSG-20260101-005 | 2026-01-01 | Ada -> Bob | closed | no. 5 |\n"
    is_whole(session)


def test_f11_an_id_that_only_an_archived_row_has_is_not_given_again() -> None:
    rows = archive.with_rows(None, ("| ID | Outcome |", "|----|------|"), ("| MSG-20260304-007 | agreed |",))
    assert next_id("2026-03-04", EMPTY, rows) == "MSG-20260304-008"
    again = archive.with_rows(rows, ("| ID | Outcome |", "|----|------|"), ("| MSG-20260304-009 | agreed |",))
    assert again == rows + "| MSG-20260304-009 | agreed |\n"
    other = archive.with_rows(again, ("| Id | What |", "|---|---|"), ("| MSG-20260304-010 | x |",))
    assert other.count("## Rows") == 2
    assert next_id("2026-03-04", EMPTY, other) == "MSG-20260304-011"
    mention = "### MSG-20260304-001\n\n**From:** a -> b\n\n| MSG-20260304-900 | only a table in a text |\n"
    assert next_id("2026-03-04", EMPTY, archive.with_card(None, mention)) == "MSG-20260304-002"


def test_f11_closed_cards_that_stay_leave_beyond_the_newest_200() -> None:
    card = "### MSG-20260301-{:03}\n\n**From:** Ada -> Bob\n**Status:** {}\n**Retained:** a record\n\n---\n\n"
    cards = [card.format(203, "unread"), *(card.format(n, "closed") for n in range(202, 0, -1))]
    text = EMPTY.replace("## Closed Summary", f"{''.join(cards)}## Closed Summary")
    done = steps.close(projection.refresh(parse(text)).text, "MSG-20260301-203", ADA, keep="a record")
    old = [f"MSG-20260301-{n:03}" for n in (1, 2, 3)]
    assert [parse(card).cards[0].id for card in done.cards] == old
    left = parse(done.text)
    assert len([card for card in left.cards if card.status == "closed"]) == steps.KEPT
    assert left.closed is not None
    assert {left.closed.value(row, "id") for row in left.closed.rows} == set(old)


def test_f11_a_full_archive_is_followed_by_the_next_and_all_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_FULL", 600)
    session = new_session(tmp_path)
    ada = Mail(session, "ada", wait=None)
    sent = [ada.send("bob", f"no. {n}", body=f"text {n}").id for n in range(6)]
    for id in sent:
        ada.close(id)
    names = sorted(path.name for path in Path(session.folder.path).glob("MAILBOX_ARCHIVE*"))
    assert len(names) > 1
    assert [mail.message(session, id)["body"] for id in sent] == [f"text {n}" for n in range(6)]
    assert ada.send("bob", "next").id == "MSG-20260612-007"
    Path(session.folder.path, MAILBOX).write_text(
        text_of(session, MAILBOX).replace("Status:** unread", "Status:** closed")
    )
    turnfile.tidy(session, "ada", wait=None)
    assert mail.message(session, "MSG-20260612-007")["status"] == "closed"
    is_whole(session)


# --- parsing ---------------------------------------------------------------------------------------------------------


def general(text: str) -> Content:
    """A card parsed without the short way for usual ones."""
    content = Content(text)
    content.__dict__.clear()
    content.text, content._below = text, 0
    return content


def said(content: Content) -> tuple[object, ...]:
    return (
        *(content.said, content.values, content.dialect, content.body, content.status, content.route),
        *(content.blocks, content.payload),
    )


LINES = (
    *("**From:** a -> b", "**Status:** unread", "**Ack:** Ada — 2026-03-04. read", "**Summary**", "- point", ""),
    *("| Field | Value |", "|---|---|", "| To | b |", "```", "---", "Plain: words", "**Note** no field", "  **To:** x"),
    *("**Reply:** yes", "**Subject:** one", "**Subject:**", "<!-- hidden", "-->", "### Deeper", "text", "Ack: me"),
)


def test_f11_a_card_in_the_usual_form_is_parsed_as_any_other() -> None:
    rng = random.Random(3)
    texts = [card.content.text for box in DIALECTS.values() for card in parse(box).cards]
    for _ in range(amount(3000, 100_000)):
        lines = [rng.choice(LINES) for _ in range(rng.randrange(12))]
        texts.append("### MSG-20260304-001\n\n**From:** a -> b\n**Status:** unread\n" + "\n".join(lines))
    usual = 0
    for text in texts:
        content = Content(text)
        usual += content._below > 0
        assert said(content) == said(general(text)), text
    assert usual > 100


def test_f11_a_card_says_the_same_wherever_it_stands() -> None:
    for box in (parse(text) for text in DIALECTS.values()):
        for card in box.cards:
            elsewhere = parse(f"{HEAD}## Active Messages\n\nText.\n\n---\n\n{card.content.text}")
            moved = elsewhere.cards[0]
            assert moved.content is card.content
            for one, text in ((card, box.text), (moved, elsewhere.text)):
                assert [text[field.start : field.end] for field in one.fields if field.dialect != "table"] == [
                    field.value for field in card.content.fields if field.dialect != "table"
                ]
                assert [text.split("\n")[line.number - 1].rstrip("\r") for line in one.lines] == [
                    line.text for line in one.lines
                ]


def test_f11_a_step_leaves_all_other_cards_as_they_are() -> None:
    text = BOLD
    ids = []
    for n in range(40):
        text, id = compose(text, Draft("Ada", "Bob", f"no. {n}", "2026-03-05", body=f"text {n}\n\n- point"))
        ids.append(id)
    after = steps.step(text, ids[20], "ack", steps.Actor("Bob", "2026-03-06"), "seen")
    before_cards, after_cards = ({card.id: card for card in parse(one).cards} for one in (text, after))
    assert [id for id in before_cards if before_cards[id].content is not after_cards[id].content] == [ids[20]]


PIECES = (
    *("### MSG-20260304-001\n\n**From:** a -> b\n**Status:** unread\n\ntext\n\n---\n\n", "```\n", "~~~ dense\n"),
    *("<!-- ", "-->\n", "### MSG-20260304-0", "### MSG-20260305-001 and words\n", "\n", "---\n", "**To:** x\n"),
    *("Message ID: MSG-20260301-001\nFrom: a\nTo: b\n", "| MSG-20260304-009 | a -> b |\n", "|", "| a | b |\n"),
    *("## Notes\n", "\r\n", "words", " "),
)


def one_change(rng: random.Random, text: str) -> str:
    """A text with a part of it taken away, written twice, or replaced by a piece."""
    start = rng.randrange(len(text))
    stop = min(len(text), start + rng.choice((0, 0, 1, 5, 40, 400)))
    new = rng.choice((*PIECES, *PIECES, "", text[start:stop] * 2))
    if rng.random() < 0.5:  # at the beginning of a line
        start = text.rfind("\n", 0, start) + 1
        stop = max(start, stop)
    return text[:start] + new + text[stop:]


def forget() -> None:
    """Forget what was parsed before."""
    for cache in (mailbox.parse, mailbox._table_of, cards.cards_of):
        cache.cache_clear()
    cards._latest.clear()
    mailbox._latest.clear()


def test_f11_what_is_parsed_again_near_a_change_is_what_a_parse_of_the_whole_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large files are parsed that way: here every file is large."""
    rng = random.Random(11)
    monkeypatch.setattr(mailbox, "_LARGE", 0)
    monkeypatch.setattr(cards, "_LARGE", 0)
    kept = Counter[bool]()

    def counted(splice: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            found = splice(*args)
            kept[found is not None] += 1
            return found

        return call

    monkeypatch.setattr(cards, "_spliced", counted(cards._spliced))
    monkeypatch.setattr(mailbox, "spliced_table", counted(spliced_table))
    card = "### MSG-20260101-{:03}\n\n**From:** a -> b\n**Status:** read\n\n---\n\n"
    more = "".join(card.format(number) for number in range(9, 0, -1))
    for _ in range(amount(150, 1_500)):
        text = rng.choice([*DIALECTS.values()]).replace("\n### ", f"\n{more}### ", 1)
        for _ in range(6):
            before, text = text, one_change(rng, text)
            forget()
            parse(before)
            near = parse(text)
            forget()
            assert near == parse(text), text
    assert kept[True] > 200
    assert kept[False] > 20
