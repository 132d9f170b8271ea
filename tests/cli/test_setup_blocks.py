"""Marked blocks in texts of others (issue 7): put in and taken out to the byte, whatever the text ends with."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.clients import CLIENTS, TEXT, ShellBlock
from holdfast.faces.cli.setup.files import Block

BLOCKS = {name: edit for client in CLIENTS.values() for name, edit in client.files.items() if isinstance(edit, Block)}
MARKDOWN = Block("one\ntwo\n")
texts = st.lists(
    st.sampled_from(["a", "# b", "", "\n", "\r\n", "\r", "\ufeff", "<!-- holdfast:begin", " ", "é", "holdfast:end -->"])
).map("".join)


@given(text=texts)
@example(text="")
@example(text="\ufeff")
@example(text="no line end")
@example(text="no line end\r")
@example(text="crlf\r\nno line end")
@example(text="mixed\r\nends\n")
@example(text="see `<!-- holdfast:begin v1 sep=1 -->` and\n  <!-- holdfast:end -->\n")
def test_i7_a_block_comes_and_goes_to_the_byte(text: str) -> None:
    put = MARKDOWN.put(text)
    assert put.startswith(text)
    assert put.count("one") == 1
    assert MARKDOWN.put(put) == put
    assert MARKDOWN.drop(put) == text
    assert MARKDOWN.drop(text) == text


@given(first=st.sampled_from(["#!/bin/sh", "#!/usr/bin/env bash", "#! /bin/zsh -e", "#!/bin/dash\r"]), rest=texts)
def test_i7_a_block_in_a_script_comes_below_its_first_line_and_goes_to_the_byte(first: str, rest: str) -> None:
    block, text = ShellBlock("guard\n", opening="# ", closing=""), f"{first}\n{rest}"
    put = block.put(text)
    assert [line.strip() for line in put.split("\n")][1:3:1] == [
        "# holdfast:begin v1 sep=0 (written by holdfast setup)",
        "guard",
    ]
    assert block.put(put) == put
    assert block.drop(put) == text


def test_i7_a_script_of_one_line_without_a_line_end_comes_back() -> None:
    block = ShellBlock("guard\n", opening="# ", closing="")
    assert block.drop(block.put("#!/bin/sh")) == "#!/bin/sh"


@pytest.mark.parametrize("name", BLOCKS)
def test_i7_a_file_that_was_not_there_goes_again_unless_somebody_has_added_to_it(name: str) -> None:
    block = BLOCKS[name]
    made = block.put(None)
    assert made.startswith(block.preamble)
    assert block.put(made) == made
    assert block.drop(made) is None
    assert block.drop(made.replace("\n", "\r\n")) is None  # as git checks it out on Windows
    assert block.drop(made + "theirs\n") == block.preamble + "theirs\n"
    assert block.drop("") == ""


def test_i7_the_block_of_another_version_is_replaced_where_it_stands() -> None:
    now = MARKDOWN.put("above\r\n")
    old = now.replace("v1", "v0").replace("one\r\ntwo", "another")
    assert "another" in old
    assert MARKDOWN.put(old + "below") == now + "below"
    assert MARKDOWN.drop(old + "below") == "above\r\nbelow"


def test_i7_lines_written_below_a_block_stay_lines_when_it_goes() -> None:
    assert MARKDOWN.drop(MARKDOWN.put("above") + "below") == "above\nbelow"
    assert MARKDOWN.drop(MARKDOWN.put("") + "below") == "below"


def test_i7_a_block_at_the_end_of_a_file_that_lost_its_last_line_end_is_still_up_to_date() -> None:
    put = MARKDOWN.put("above\n").removesuffix("\n")
    assert MARKDOWN.put(put) == put
    assert MARKDOWN.drop(put) == "above\n"


@pytest.mark.parametrize("broken", ["begin", "end", "twice", "turned"])
def test_i7_a_block_whose_markers_are_not_a_pair_is_refused(broken: str) -> None:
    begin, *body, end, _ = MARKDOWN.put("").split("\n")
    lines = {
        "begin": [begin, *body],
        "end": [*body, end],
        "twice": [begin, *body, end, begin, *body, end],
        "turned": [end, *body, begin],
    }[broken]
    text = "\n".join(["theirs", *lines, "theirs", ""])
    for change in (MARKDOWN.put, MARKDOWN.drop):
        with pytest.raises(Invalid, match="holdfast:begin") as caught:
            change(text)
        assert caught.value.hint


@pytest.mark.parametrize("text", ["", "echo no shebang\n", "#!/usr/bin/env python3\n", "#!/usr/bin/fish\n", "\x7fELF"])
def test_i7_what_is_no_shell_script_takes_no_block(text: str) -> None:
    with pytest.raises(Invalid, match="not a shell script"):
        BLOCKS["pre-commit"].put(text)


def test_i7_the_text_that_agents_read_is_short_and_says_what_they_need() -> None:
    assert len(TEXT.encode()) < 900
    for said in (
        "holdfast prime",
        "holdfast next",
        "holdfast done",
        "holdfast block",
        "path lock",
        "mail",
        "holdfast help",
    ):
        assert said in TEXT
    assert "--actor" in TEXT
    assert "HOLDFAST_ACTOR" in TEXT
    assert "`.holdfast`" in TEXT
