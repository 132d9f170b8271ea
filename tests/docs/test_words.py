"""The prose of documents, docstrings and messages keeps to words that a tired reader can skim.

`words.txt` lists the files that still have banned turns of phrase, and how many. The list can only shrink: a count that
is too low fails, and so does one that is too high (`python -m tests.docs.words` lowers it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.words import counts, listed, places

COUNTS = counts()


def test_no_file_has_more_banned_words_than_it_had() -> None:
    assert {name: number for name, number in COUNTS.items() if number > listed().get(name, 0)} == {}


def test_the_list_says_what_the_files_have_now() -> None:
    stale = {name: number for name, number in listed().items() if number > COUNTS.get(name, 0)}
    assert stale == {}, "fewer now: python -m tests.docs.words"


@pytest.mark.parametrize(
    "sentence",
    [
        "The caller is told.",
        "It waited in vain.",
        "It gives no sign of life.",
        "--actor is followed by a name",
        "The other steps are for who received it.",
        "Who waits is served.",
        "Raises Invalid for what is none, such as a folder.",
        "`find` answers None.",
    ],
)
def test_each_banned_phrase_is_found_on_a_page(sentence: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{sentence}\n", encoding="utf-8")
    assert [place.line for place in places(page)] == [3]


def test_docstrings_and_messages_are_read_and_code_is_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""One line.\n\nAnswers a number; answers None."""\ntold = 1\nraise Error(f"{told} was told")\n',
        encoding="utf-8",
    )
    assert [place.line for place in places(module)] == [3, 3, 5]
    page = tmp_path / "page.md"
    page.write_text("Its attribute `told`. Who holds it?\n", encoding="utf-8")
    assert places(page) == []
