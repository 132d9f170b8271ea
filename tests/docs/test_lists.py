"""Lists in the documents that repeat a list of the code are complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest

import holdfast
from holdfast.interchange.task_export import FORMAT, TaskLine
from holdfast.operation import REGISTRY
from holdfast.types import EVENT_KINDS
from holdfast.workspace.registry import PROBES
from tests.architecture.test_rooms import DOMAINS
from tests.docs.test_reference import text_of


def between(page: str, begin: str, end: str) -> str:
    """The text of a page between two strings, each of which it has."""
    _, found, rest = text_of(page).partition(begin)
    assert found, f"{page} has no {begin!r}"
    part, found, _ = rest.partition(end)
    assert found, f"{page} has no {end!r} after {begin!r}"
    return part


def code(text: str) -> list[str]:
    """Every piece of inline code, without quotes."""
    return [found.strip('"') for found in re.findall(r"`([^`\n]+)`", text)]


def first_column(table: str) -> Iterable[str]:
    return (name for row in table.strip().splitlines()[2:] for name in code(row.split("|")[1]))


def test_every_kind_of_event_is_listed() -> None:
    assert code(between("python.md", "`kinds` are ", ". `id` is")) == list(EVENT_KINDS)


def test_every_kind_of_condition_is_listed() -> None:
    table = between("python.md", "| `ValueEquals(kind, key, value)` |", "An operation is `Op")
    assert sorted(first_column(table.partition("\n\n")[2])) == sorted(PROBES)


def test_every_attribute_of_a_workspace_is_listed() -> None:
    listed = {re.match(r"ws\.(\w+)", name) for name in first_column(between("python.md", "on a workspace", "\n\n##"))}
    with holdfast.open(":memory:", actor="tester") as ws:
        public = {name for name in dir(ws) if not name.startswith("_")}
    assert {found[1] for found in listed if found} == public


def test_every_domain_is_in_the_glossary() -> None:
    domains = {name.partition(".")[0] for name in REGISTRY if "." in name}
    assert set(code(between("glossary.md", "**domain**", "\n\n"))) == domains


def test_the_order_of_domains_is_that_of_the_import_law() -> None:
    assert code(between("architecture.md", "domains before it: ", ". It reaches")) == DOMAINS


@pytest.fixture
def format_of_a_line() -> str:
    return between("tasks.md", "### The format of a line", "\n## ")


def test_every_field_of_a_task_line_is_listed(format_of_a_line: str) -> None:
    table = format_of_a_line[format_of_a_line.index("| field |") :].partition("\n\n")[0]
    assert sorted(first_column(table)) == sorted(TaskLine.__struct_fields__)


def test_the_task_line_shown_can_be_imported(format_of_a_line: str) -> None:
    shown = re.search(r"^```json\n(.*)\n```$", format_of_a_line, re.MULTILINE)
    assert shown
    other = json.dumps({"format": FORMAT, "id": "hf-3m9x", "title": "What it waits for"})
    with holdfast.open(":memory:", actor="tester") as ws:
        report = ws.tasks.import_([shown[1], other])
        assert (len(report.created["tasks"]), report.warnings) == (2, [])
        assert json.loads(shown[1]).items() <= json.loads(ws.tasks.export()[0]).items()
