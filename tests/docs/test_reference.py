"""The reference says what the code says: its generated parts are up to date and no name is left out."""

from __future__ import annotations

import inspect
import re

import pytest

import holdfast
import holdfast.testing
from holdfast.operation import REGISTRY
from tests.docs.generate import ALIASES, PARTS, ROOT, error_classes, split

# The vocabulary of the product. A word of the second group must be explained once its domain has operations.
WORDS = (
    "workspace",
    "revision",
    "version",
    "event",
    "cursor",
    "actor",
    "holder",
    "lease",
    "token",
    "cell",
    "operation",
)
WORDS_OF_DOMAINS = {
    "claim": "tasks",
    "task": "tasks",
    "matcher": "routes",
    "route": "routes",
    "stash": "stashes",
    "trail": "trails",
    "link": "links",
    "cycle": "cycles",
    "phase": "cycles",
    "message": "mail",
}


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def is_mentioned(name: str, text: str) -> bool:
    """Whether a name stands in code, in a sentence or in an example."""
    fenced = re.findall(r"^```python$(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return any(re.search(rf"\b{re.escape(name)}\b", code) for code in (*re.findall(r"`[^`]+`", prose), *fenced))


@pytest.mark.parametrize("part", PARTS)
def test_a_generated_part_is_up_to_date(part: str) -> None:
    path, make = PARTS[part]
    _, found, _ = split(path.read_text(encoding="utf-8"), part)
    assert found.strip() == make(), "run: python -m tests.docs.generate"


def test_every_operation_is_in_the_python_reference() -> None:
    _, reference, _ = split(text_of("python.md"), "operations")
    assert {"cells.set", "locks.acquire", "txn", "watch"} <= set(REGISTRY)
    assert [name for name in REGISTRY if f"`ws.{name}(" not in reference] == []


@pytest.mark.parametrize("name", sorted({*holdfast.__all__, *holdfast.testing.__all__}))
def test_every_public_name_is_in_the_python_reference(name: str) -> None:
    before, _, after = split(text_of("python.md"), "operations")
    assert is_mentioned(name, before + after)


@pytest.mark.parametrize("name", [each.__name__ for each in error_classes()])
def test_every_error_is_in_the_error_reference(name: str) -> None:
    assert f"`{name}`" in text_of("errors.md")


def test_every_alias_belongs_to_an_error() -> None:
    assert set(ALIASES) <= {each.__name__ for each in error_classes()}


def present_words() -> list[str]:
    domains = {name.partition(".")[0] for name in REGISTRY}
    return [*WORDS, *(word for word, domain in WORDS_OF_DOMAINS.items() if domain in domains)]


@pytest.mark.parametrize("word", present_words())
def test_every_word_of_the_vocabulary_is_in_the_glossary(word: str) -> None:
    assert re.search(rf"^\*\*{word}\*\*", text_of("glossary.md"), re.MULTILINE)


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = re.findall(r"^\*\*([^*]+)\*\*", text_of("glossary.md"), re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("name", ["open", "restore", "upgrade", "replicate", "detach", "rebuild", "salvage"])
def test_a_function_that_opens_or_moves_a_store_is_written_with_all_its_arguments(name: str) -> None:
    """Those are not operations, so nothing generates them."""
    said = re.search(rf"`holdfast\.{name}\((.*?)\) -> \w+`", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    assert said is not None
    wanted = [
        each.name if each.default is each.empty else f"{each.name}={each.default!r}"
        for each in inspect.signature(getattr(holdfast, name)).parameters.values()
    ]
    assert [each for each in said[1].split(", ") if each != "*"] == wanted
