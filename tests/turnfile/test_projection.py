"""MAILBOX.json (F12): complete in every dialect, deterministic, and stale only where it says something else."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.projection import is_stale, project, render
from tests.turnfile.mailboxes import BOLD, DIALECTS, EMPTY, MIXED, PLAIN, TABLE

NOON, LATER = "2026-03-04T12:00:00Z", "2026-03-04T13:00:00Z"
SOURCE = "working-session/MAILBOX.md"


def test_f12_a_projection_has_all_its_parts_in_their_order() -> None:
    said = json.loads(render(BOLD, SOURCE, NOON))
    assert list(said) == [
        "schema_id",
        "schema_version",
        "projection_kind",
        "generated_at",
        "source_file",
        "format_version",
        "metadata",
        "inbox_snapshot",
        "open_queue",
        "active_messages",
        "closed_summary",
    ]
    assert (said["generated_at"], said["source_file"]) == (NOON, SOURCE)
    assert said["metadata"] == {
        "date_initialized": "2026-03-01",
        "protocol": "docs/PROTOCOL.md",
        "last_format_migration": None,
        "full_history": "`working-session/MAILBOX_ARCHIVE.md` (made on the first close)",
    }
    assert said["inbox_snapshot"][1] == {
        "agent": "Bob",
        "unread": 1,
        "oldest_unread": "MSG-20260302-001",
        "needs_response_by": "first turn",
    }
    assert said["open_queue"][0]["subject"] == "Pipes | and such"
    assert list(said["open_queue"][0]) == [
        *("id", "date", "from_to", "type", "priority", "due", "status", "subject", "final_status", "outcome")
    ]
    assert said["closed_summary"][0]["outcome"] == "agreed"


def test_f12_every_field_of_every_dialect_is_there() -> None:
    bold = project(parse(BOLD))["active_messages"][0]
    assert bold["fields"] == {
        "from": "Bob",
        "to": "Ada",
        "date": "2026-03-02",
        "type": "notify",
        "priority": "P2",
        "status": "acknowledged",
        "subject": "Pipes | and such",
        "closure_owner": "Bob",
    }
    assert bold["ack"] == ["Ada — 2026-03-02. acknowledged: seen."]
    assert bold["body"].startswith("A body with structure")
    (table,) = project(parse(TABLE))["active_messages"]
    assert table["fields"]["priority"] == "P0"
    assert table["summary"] == ["One thing.", "Another thing over two lines."]
    (mixed,) = project(parse(MIXED))["active_messages"]
    assert mixed["fields"] == {**table["fields"], "date": "2026-03-03", "closure_owner": "Bob"}
    plain = project(parse(PLAIN))["active_messages"][0]
    assert plain["id"] == "MSG-20260201-001"
    assert plain["fields"]["related"] == "`plan.md`"
    assert plain["ack"] == ["Bob — 2026-02-01. Read and accepted."]
    for text in DIALECTS.values():
        for card, said in zip(parse(text).cards, project(parse(text))["active_messages"], strict=True):
            assert {field.key for field in card.fields} - {"message_id"} <= said["fields"].keys()


def test_f12_columns_of_a_files_own_are_kept() -> None:
    text = TABLE.replace(
        "|----|------------|---------|--------------|-----------|\n",
        "|----|------------|---------|--------------|-----------|\n| MSG-20260302-001 | a -> b | s | closed | a |\n",
    )
    (row,) = project(parse(text))["closed_summary"]
    assert (row["closed_by"], row["subject"], row["outcome"]) == ("a", "s", "")
    assert project(parse(TABLE))["open_queue"][0]["pri"] == "P0"


@pytest.mark.parametrize("name", DIALECTS)
def test_f12_nothing_but_the_time_differs_and_an_unchanged_projection_stays_as_it_is(name: str) -> None:
    first = render(DIALECTS[name], SOURCE, NOON)
    assert render(DIALECTS[name], SOURCE, LATER) == first.replace(NOON, LATER)
    assert render(DIALECTS[name], SOURCE, LATER, previous=first) == first
    assert NOON not in render(DIALECTS[name] + "\nMore: text\n", SOURCE, LATER, previous="{}")
    assert LATER in render(DIALECTS[name], "elsewhere/MAILBOX.md", LATER, previous=first)
    assert LATER in render(DIALECTS[name], SOURCE, LATER, previous="no json")


def test_f12_stale_is_what_says_something_else_not_what_is_older_or_from_elsewhere() -> None:
    first = render(BOLD, SOURCE, NOON)
    assert not is_stale(BOLD, first)
    assert not is_stale(BOLD, first.replace(NOON, LATER).replace(SOURCE, "/somewhere/MAILBOX.md"))
    assert not is_stale(BOLD, json.dumps(json.loads(first)))
    assert not is_stale(BOLD.replace("\n", "\r\n"), first)
    for old, new in (("| Bob        | 1 ", "| Bob        | 2 "), ("unread", "blocked"), ("The end.", "The start.")):
        assert is_stale(BOLD.replace(old, new, 1), first)
    for broken in ("", "[]", "null", "{", '{"schema_id": 1}', "\ud800", "[" * 100_000):
        assert is_stale(EMPTY, broken)


@pytest.mark.parametrize("name", DIALECTS)
def test_f12_a_projection_is_formatted_as_one_document(name: str) -> None:
    for text in (DIALECTS[name], ""):
        for lost in ([], [{"id": "MSG-20260301-001", "body": 'a\n"b"', "fields": {}}, {}]):
            found = render(text, SOURCE, NOON, lost=lost)
            assert found == f"{msgspec.json.format(found, indent=2).strip()}\n"
            assert ("lost_messages" in json.loads(found)) == bool(lost)


@given(st.text("#-|`*: \nABMSG-20260301é\u2028", max_size=200))
def test_f12_any_text_has_a_projection_that_is_fresh(text: str) -> None:
    assert not is_stale(text, render(text, SOURCE, NOON))
