"""Messages that MAILBOX.json alone still has: no write drops them or gives their ids again, `tidy` brings them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors, turnfile
from holdfast.turnfile import Session, mail
from holdfast.turnfile.locks import acquire, lock_request, override, unlock
from holdfast.turnfile.mail import Mail
from holdfast.turnfile.mailbox import parse, remove_card
from holdfast.turnfile.model import MAILBOX, PROJECTION, QUESTIONS
from tests.turnfile.mailboxes import DIALECTS
from tests.turnfile.sessions import new_session, text_of


def path_of(session: Session, name: str = MAILBOX) -> Path:
    return Path(session.folder.path, name)


def without(session: Session, *ids: str) -> None:
    """Remove cards from the mailbox as an editor does, and leave the tables and the projection as they are."""
    box = parse(text_of(session, MAILBOX))
    for id in ids:
        box = box.edited([remove_card(box, box.card(id))])
    path_of(session).write_bytes(box.text.encode())


def projected(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(session, PROJECTION))
    return found


def kept(session: Session) -> list[str]:
    return [message["subject"] for message in (each["fields"] for each in projected(session).get("lost_messages", ()))]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = new_session(tmp_path)
    for subject in ("first", "second", "third"):
        Mail(made, "ada").send("bob", subject, body=f"{subject} body")
    return made


def send(session: Session) -> None:
    assert Mail(session, "ada").send("bob", "fourth").id == "MSG-20260612-004"


def acknowledge(session: Session) -> None:
    Mail(session, "bob").ack("MSG-20260612-001")


def export(session: Session) -> None:
    mail.export(path_of(session), path_of(session, PROJECTION))


def unlock_by_hand(session: Session) -> None:
    lock = acquire(session, lock_request(session, [MAILBOX], "ada", "by hand"))
    unlock(session, lock.id, "ada")


def override_a_lock(session: Session) -> None:
    lock = acquire(session, lock_request(session, [MAILBOX], "ada", "by hand"))
    override(session, lock.id, "P0: the release waits", "mia")


def escalate(session: Session) -> None:
    acquire(session, lock_request(session, [QUESTIONS], "ada", "by hand", 100))
    policy = turnfile.WaitPolicy(interval=0)
    with pytest.raises(errors.Escalated):
        turnfile.transact([QUESTIONS], "bob", "x", lambda edit: edit.write(QUESTIONS, "x"), folder=session, wait=policy)


WRITES = (send, acknowledge, export, unlock_by_hand, override_a_lock, escalate)


@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__)
def test_f12_a_message_that_the_projection_alone_has_survives_every_write(
    session: Session, write: Callable[[Session], None]
) -> None:
    without(session, "MSG-20260612-003", "MSG-20260612-002")
    write(session)
    assert sorted(kept(session)) == ["second", "third"]
    found = [problem for problem in turnfile.check(session) if problem.rule == "only-projected"]
    assert [problem.message.split()[0] for problem in found] == ["MSG-20260612-002", "MSG-20260612-003"]
    Mail(session, "ada").send("bob", "last")
    assert sorted(kept(session)) == ["second", "third"]


def test_f12_no_id_that_the_projection_alone_has_is_given_again(session: Session) -> None:
    without(session, "MSG-20260612-003")
    assert Mail(session, "ada").send("bob", "x").id == "MSG-20260612-004"
    without(session, "MSG-20260612-004")
    assert Mail(session, "bob").reply("MSG-20260612-001").id == "MSG-20260612-005"


def test_f12_tidy_brings_back_what_the_projection_alone_has(session: Session) -> None:
    Mail(session, "bob").ack("MSG-20260612-002", "seen")
    before = {each["id"]: each for each in projected(session)["active_messages"]}
    without(session, "MSG-20260612-003", "MSG-20260612-002")
    export(session)
    with pytest.raises(errors.MessageNotFound, match="alone has it") as refused:
        Mail(session, "bob").ack("MSG-20260612-003")
    assert "tidy" in refused.value.hint
    with pytest.raises(errors.MessageNotFound, match="alone has it"):
        mail.message(session, "MSG-20260612-003")
    dry = turnfile.tidy(session, "ada", dry_run=True)
    done = turnfile.tidy(session, "ada")
    assert done.repairs == dry.repairs
    assert f"brought back MSG-20260612-002 from {PROJECTION}" in "\n".join(map(str, done.repairs))
    assert turnfile.check(session) == []
    assert {each["id"]: each for each in projected(session)["active_messages"]} == before
    assert kept(session) == []
    Mail(session, "bob").ack("MSG-20260612-003")


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - {"empty"}))
def test_f12_cards_of_every_dialect_come_back_with_what_they_say(tmp_path: Path, name: str) -> None:
    session = new_session(tmp_path)
    path_of(session).write_bytes(DIALECTS[name].encode())
    turnfile.tidy(session, "ada")
    before = projected(session)["active_messages"]
    path_of(session).unlink()
    turnfile.restore(session)
    turnfile.tidy(session, "ada")
    assert [problem for problem in turnfile.check(session) if problem.level == "error"] == []
    after = {each["id"]: each for each in projected(session)["active_messages"]}
    for message in before:
        found = after[message["id"]]
        for key in ("status", "body", "ack", "reply", "summary"):
            assert found[key] == message[key], (key, message["id"])
        assert {**found["fields"], **message["fields"]} == found["fields"]


def test_f12_a_message_that_was_closed_by_hand_is_not_lost(session: Session) -> None:
    text = text_of(session, MAILBOX)
    box = parse(text)
    card = box.card("MSG-20260612-003")
    row = "| MSG-20260612-003 | 2026-06-12 | ada -> bob | closed | done |\n"
    path_of(session).write_text(box.edited([remove_card(box, card)]).text + row)
    box = parse(text_of(session, MAILBOX))
    archived = box.card("MSG-20260612-002").content.text
    path_of(session, "MAILBOX_ARCHIVE.md").write_text(f"# Mailbox Archive\n\n---\n\n{archived}")
    without(session, "MSG-20260612-002")
    assert [problem.rule for problem in turnfile.check(session) if problem.rule == "only-projected"] == []
    export(session)
    assert kept(session) == []


@pytest.mark.parametrize(
    "found",
    [
        {"id": "MSG-20260612-009"},
        {"id": "MSG-20260612-009", "fields": 5, "body": ["x"], "ack": "y", "status": None},
        {
            "id": "MSG-20260612-009",
            "fields": {"from": "ada", "to": "bob", "x\n### y": "a\nb"},
            "body": "```\n### MSG-1",
        },
        {"id": "MSG-20260612-009", "fields": {"from": "ada"}, "body": "### MSG-20260612-001\n\n**From:** x -> y"},
        {"id": "MSG-20260612-009", "fields": {"from": "ada"}, "body": "<!-- \n## Closed Summary\n", "ack": ["a\n## b"]},
    ],
)
def test_f12_a_message_of_another_tool_comes_back_without_harm(session: Session, found: dict[str, Any]) -> None:
    said = projected(session)
    path_of(session, PROJECTION).write_text(json.dumps({**said, "active_messages": [*said["active_messages"], found]}))
    before = {card.id: card.content.text for card in parse(text_of(session, MAILBOX)).cards}
    turnfile.tidy(session, "ada")
    assert [problem for problem in turnfile.check(session) if problem.level == "error"] == []
    after = {card.id: card.content.text for card in parse(text_of(session, MAILBOX)).cards}
    assert {id: text.rstrip() for id, text in after.items() if id in before} == {
        id: text.rstrip() for id, text in before.items()
    }
    assert "MSG-20260612-009" in after
    assert turnfile.tidy(session, "ada").repairs == ()


def test_f12_a_card_that_got_another_id_by_hand_is_not_lost(session: Session) -> None:
    path = path_of(session)
    path.write_text(path.read_text().replace("### MSG-20260612-003", "### MSG-20260612-001"))
    assert "only-projected" not in [problem.rule for problem in turnfile.check(session)]
    done = turnfile.tidy(session, "ada")
    assert not [each for each in done.repairs if "brought back" in each.what]
    assert len(parse(text_of(session, MAILBOX)).cards) == 3


def test_f12_two_lost_messages_of_one_id_come_back_both(session: Session) -> None:
    path = path_of(session)
    path.write_text(path.read_text().replace("### MSG-20260612-003", "### MSG-20260612-001"))
    export(session)
    path.unlink()
    turnfile.restore(session)
    Mail(session, "ada").send("bob", "fourth")
    assert sorted(kept(session)) == ["first", "second", "third"]
    turnfile.tidy(session, "ada")
    assert turnfile.check(session) == []
    assert sorted(each["fields"]["subject"] for each in mail.messages(session)) == [
        "first",
        "fourth",
        "second",
        "third",
    ]


def test_f12_what_cannot_become_a_card_is_kept_and_reported(session: Session) -> None:
    said = projected(session)
    odd = {"id": "no id of ours", "fields": {"subject": "odd"}}
    path_of(session, PROJECTION).write_text(json.dumps({**said, "active_messages": [*said["active_messages"], odd]}))
    result = turnfile.tidy(session, "ada")
    assert kept(session) == ["odd"]
    assert [problem.rule for problem in result.problems] == ["only-projected"]
    send(session)
    assert kept(session) == ["odd"]
