"""Reading a command line (issue 7): words in their order, options anywhere, and mistakes are told."""

from __future__ import annotations

import io
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.faces.cli import times
from holdfast.faces.cli.args import Argument, Usage, convert, nearest, parse, seconds
from holdfast.faces.cli.derive import arguments_of
from holdfast.faces.cli.times import spoken
from holdfast.kernel.tx import Tx
from holdfast.operation import Call
from holdfast.route import Route

TASK = (
    Argument("title", option="--title", word=True, required=True),
    Argument("body", "content", "--body", "-b", word=True),
    Argument("priority", "int", "--priority", "-p"),
    Argument("tags", "texts", "--tag", "-t"),
    Argument("atomic", "flag", "--atomic"),
    Argument("ttl", "seconds", "--ttl"),
    Argument("since", "past", "--since"),
    Argument("value", "json", "--value"),
    Argument("role", option="--role", choices=("agent", "admin")),
)


def read(line: str | list[str], arguments: tuple[Argument, ...] = TASK) -> dict[str, Any]:
    return parse(arguments, line.split() if isinstance(line, str) else line, "create")[0]


def refused(line: str, arguments: tuple[Argument, ...] = TASK) -> Usage:
    with pytest.raises(Usage) as caught:
        read(line, arguments)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    "line",
    ["--priority 1 fix all+of+it", "fix --priority 1 all+of+it", "fix all+of+it --priority 1", "fix all+of+it -p 1"],
)
def test_options_may_stand_anywhere(line: str) -> None:
    assert read([word.replace("+", " ") for word in line.split()]) == {
        "title": "fix",
        "body": "all of it",
        "priority": 1,
    }


def test_an_option_takes_its_value_after_an_equals_sign_also_an_empty_one_or_one_with_more_of_them() -> None:
    assert read("x --priority=1 --tag=a=b --body=") == {"title": "x", "priority": 1, "tags": ["a=b"], "body": ""}


@pytest.mark.parametrize("line", ["x --tag --atomic", "x --tag --unknown", "x --tag --priority 1", "x --tag -p 1"])
def test_an_option_is_not_taken_for_the_value_of_the_one_before(line: str) -> None:
    with pytest.raises(Usage, match="--tag needs a value before -"):
        read(line)


def test_a_value_may_begin_with_dashes() -> None:
    assert read("x --tag=--atomic") == {"title": "x", "tags": ["--atomic"]}
    assert read(["x", "--tag", "- a point"]) == {"title": "x", "tags": ["- a point"]}
    assert read(["x", "--tag", "--- a/file"]) == {"title": "x", "tags": ["--- a/file"]}


def test_after_two_dashes_nothing_is_an_option() -> None:
    assert read("-- --priority -b") == {"title": "--priority", "body": "-b"}
    assert read("x --atomic -- --")["body"] == "--"


def test_a_lone_dash_and_numbers_below_zero_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    number = (Argument("delta", "number", "--delta", word=True, required=True),)
    assert read("-3", number) == {"delta": -3}
    assert read("-.5", number) == {"delta": -0.5}
    assert read("--delta -3", number) == {"delta": -3}
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert read("x -") == {"title": "x", "body": "from a pipe\n"}


def test_repeated_options_gather_or_the_last_counts() -> None:
    assert read("x -t a --tag b -t a")["tags"] == ["a", "b", "a"]
    assert read("x -p 1 -p 3")["priority"] == 3


def test_a_flag_is_set_unset_or_not_given() -> None:
    assert read("x --atomic")["atomic"] is True
    assert read("x --no-atomic")["atomic"] is False
    assert read("x --no-atomic --atomic")["atomic"] is True
    assert "atomic" not in read("x")
    assert "takes no value" in refused("x --atomic=yes").message
    assert "takes no value" in refused("x --no-atomic=1").message


def test_only_flags_can_be_negated() -> None:
    assert "no option --no-priority" in refused("x --no-priority").message


def test_a_required_word_may_be_given_as_its_option_but_not_twice() -> None:
    assert read("--title x") == {"title": "x"}
    assert read("x --body y") == {"title": "x", "body": "y"}
    assert "'x y z' the title" in refused("x y z").message


def test_an_unknown_option_is_refused_with_what_was_probably_meant() -> None:
    error = refused("x --prioritty 1")
    assert "--prioritty" in error.message
    assert "--priority" in error.hint
    assert "did you mean" not in refused("x --zzz").hint
    assert nearest("creat", ["create", "claim"]) == "create"
    assert nearest("zzz", ["create", "claim"]) is None


def test_an_option_is_never_cut_short_to_guess_it() -> None:
    assert "--prio" in refused("x --prio 1").message


def test_what_is_missing_and_what_is_too_much_is_told() -> None:
    assert "TITLE" in refused("").message
    assert "needs a value" in refused("x --priority").message
    done = (Argument("id", word=True, required=True), Argument("summary", "content", word=True))
    error = refused("hf-1 the parser now", done)
    assert "'parser now'" in error.message
    assert "quote" in error.hint


def test_all_missing_words_are_told_at_once() -> None:
    both = tuple(Argument(name, option=f"--{name}", word=True, required=True) for name in ("run", "cell"))
    assert "RUN and CELL" in refused("", both).message
    assert "needs CELL" in refused("r", both).message


def test_the_last_word_may_take_all_that_are_left() -> None:
    text = (
        Argument("id", option="--id", word=True, required=True),
        Argument("text", option="--text", rest=True, word=True),
    )
    assert read("hf-1 three words -- --here", text) == {"id": "hf-1", "text": "three words --here"}
    tags = (text[0], Argument("tags", "texts", "--tag", rest=True, word=True))
    assert read("hf-1 a b --tag c", tags)["tags"] == ["c", "a", "b"]


def test_a_number_is_one_or_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    limit = (Argument("limit", "int", "--limit"),)
    assert "a whole number, not 'high'" in refused("--limit high", limit).message
    assert "a whole number, not '1.5'" in refused("--limit=1.5", limit).message
    assert len(refused(f"--limit {'a' * 5000}", limit).message) < 200, "what was given is told, but not all of it"


def test_choices_are_told() -> None:
    assert read("x --role admin")["role"] == "admin"
    assert "agent, admin" in refused("x --role root").message


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("1w", 604800), ("0", 0)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, value: float) -> None:
    assert seconds(text) == value
    assert read(f"x --ttl {text}")["ttl"] == value


def test_a_duration_below_zero_says_what_was_meant() -> None:
    with pytest.raises(Usage, match="--ttl is a length of time, which cannot be '-5m'") as caught:
        convert(Argument("ttl", "seconds", "--ttl"), "-5m")
    assert caught.value.hint == "did you mean 5m?"


@pytest.mark.parametrize("text", ["", "h", "2y", "1h30m", "soon", "--2"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="15m"):
        convert(TASK[5], text)


def moment(text: str, future: bool = False) -> datetime:
    found = convert(Argument("until", "future", "--until") if future else TASK[6], text)
    assert isinstance(found, datetime)
    assert found.tzinfo is not None
    return found


def test_a_moment_is_rfc_3339_or_a_duration_before_or_after_now() -> None:
    assert moment("2026-03-01T12:00:00Z") == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert moment("2026-03-01T12:00:00+02:00") == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert moment("2026-03-01") == datetime(2026, 3, 1).astimezone(), "without a zone it is the user's own"
    began = datetime.now(UTC)
    near = timedelta(minutes=2)
    for text, future, distance in (("2h", False, -2), ("2h", True, 2), ("-2h", True, -2), ("+2h", False, 2)):
        assert abs(moment(text, future) - (began + timedelta(hours=distance))) < near, (text, future)


@pytest.mark.parametrize(
    ("text", "future", "past"),
    [
        ("today", "2026-03-04 00:00", "2026-03-04 00:00"),
        ("tomorrow", "2026-03-05 00:00", "2026-03-05 00:00"),
        ("Yesterday", "2026-03-03 00:00", "2026-03-03 00:00"),
        ("tomorrow at 9:30", "2026-03-05 09:30", "2026-03-05 09:30"),
        ("today 17:00", "2026-03-04 17:00", "2026-03-04 17:00"),
        ("monday 9:00", "2026-03-09 09:00", "2026-03-02 09:00"),
        ("next friday noon", "2026-03-06 12:00", "2026-02-27 12:00"),
        ("wed", "2026-03-11 00:00", "2026-03-04 00:00"),
        ("wednesday 14:00", "2026-03-04 14:00", "2026-02-25 14:00"),
        ("9am", "2026-03-05 09:00", "2026-03-04 09:00"),
        ("12 am", "2026-03-05 00:00", "2026-03-04 00:00"),
        ("12:30pm", "2026-03-04 12:30", "2026-03-03 12:30"),
        ("18:45", "2026-03-04 18:45", "2026-03-03 18:45"),
        ("in 2 days", "2026-03-06 12:00", "2026-03-06 12:00"),
        ("3 hours ago", "2026-03-04 09:00", "2026-03-04 09:00"),
        ("last night", "2026-03-03 18:00", "2026-03-03 18:00"),
        ("1 week", "2026-03-11 12:00", "2026-02-25 12:00"),
    ],
)
def test_a_moment_as_people_say_it_is_the_next_one_or_the_last(text: str, future: str, past: str) -> None:
    now = datetime(2026, 3, 4, 12).astimezone()  # a Wednesday
    for plain, expected in ((1, future), (-1, past)):
        assert spoken(text, now, plain) == datetime.fromisoformat(expected).astimezone(), plain


def test_options_take_a_moment_as_people_say_it() -> None:
    for text in ("yesterday", "monday 9:00", "9am", "2 days ago"):
        assert (
            moment(text) < datetime.now(UTC) < moment(text.replace("yesterday", "tomorrow").replace(" ago", ""), True)
        )


@pytest.mark.parametrize(
    "text", ["someday", "", "2026-13-01", "+", "25:00", "9:60", "13pm", "monday tuesday", "next", "at", "tomorrow soon"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="a moment such as"):
        moment(text)


@pytest.mark.parametrize("text", ["9999999d", "99999999999d", "+99999999999d", "-9999999d", "infs", "nans", "1e400d"])
@pytest.mark.parametrize("future", [False, True])
def test_a_moment_beyond_all_calendars_is_refused_not_a_crash(text: str, future: bool) -> None:
    with pytest.raises(HoldfastError):
        moment(text, future)


@pytest.mark.parametrize("zone", ["JST-9", "EST+5"])
def test_the_ends_of_the_calendar_can_be_shown_in_every_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    try:
        with monkeypatch.context() as patched:
            patched.setenv("TZ", zone)
            time.tzset()
            times.show_exact(True)
            shown = {times.moment(end.replace(tzinfo=UTC)) for end in (datetime.min, datetime.max)}
    finally:
        time.tzset()
        times.show_exact(False)
    assert len(shown & {"9999-12-31 23:59:59Z", "0001-01-01 00:00:00Z"}) == 1, shown


def test_json_is_read_from_the_line_or_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read('x --value {"a":[1,null]}')["value"] == {"a": [1, None]}
    assert read('x --value {"$bytes":"aGk="}')["value"] == b"hi"
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"from": "a pipe"}\n'))
    assert read("x --value -")["value"] == {"from": "a pipe"}


def test_json_with_a_key_that_stands_twice_is_refused() -> None:
    assert "duplicate key 'a'" in refused('x --value {"a":1,"a":2}').message
    assert read('x --value {"a":"a:1","b":{"a":2}}')["value"] == {"a": "a:1", "b": {"a": 2}}


def test_what_is_no_json_is_refused_with_how_to_quote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused("x --value hello")
    assert "'hello'" in error.message
    assert "quote it" in error.hint
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "not JSON" in refused("x --value -").message


def test_standard_input_that_is_not_utf_8_is_refused_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("--value", "--body"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"\xff"'), encoding="utf-8"))
        with pytest.raises(HoldfastError):
            read(f"x {option} -")


def test_pairs_and_lists_of_names() -> None:
    several = (Argument("values", "pairs", "--value"), Argument("to", "names", "--to"))
    assert read("--value a=1 --value b=x=y", several)["values"] == [("a", "1"), ("b", "x=y")]
    assert "NAME=VALUE" in refused("--value a", several).message
    assert read("--to bob", several)["to"] == "bob"
    assert read("--to bob,eve", several)["to"] == ["bob", "eve"]


def test_none_means_nothing_only_where_nothing_is_a_value() -> None:
    expected = (Argument("expected", "int", "--expected", nothing=True),)
    assert read("--expected none", expected) == {"expected": None}
    refused("x --priority none")


# --- an argument whose name no other operation has -------------------------------------------------------------------


def escalate(tx: Tx, id: str, by: int, why: str | None = None, how: Any = None, at: datetime | None = None) -> None:
    """Escalate it."""


def test_an_argument_of_a_new_name_is_derived_from_its_name_and_annotation() -> None:
    derived = arguments_of(Call("write", escalate, Route(cli="escalate")))
    assert [(each.option, each.kind, each.required, each.help) for each in derived] == [
        ("--id", "text", True, "its id"),
        ("--by", "int", True, ""),
        ("--why", "text", False, ""),
        ("--how", "json", False, ""),
        ("--at", "past", False, ""),
    ]


def test_the_line_of_an_operation_describes_an_argument_of_a_new_name() -> None:
    derived = arguments_of(Call("write", escalate, Route(cli="escalate", arguments={"by": "how many steps"})))
    assert (derived[1].kind, derived[1].help) == ("int", "how many steps")


def test_a_mistake_is_told_of_the_option_that_was_typed_or_of_the_place() -> None:
    until = (Argument("id", word=True, required=True), Argument("until", "future", word=True))
    assert refused("x --until soon", until).message.startswith("--until must be a moment")
    assert refused("x soon", until).message.startswith("UNTIL must be a moment")


def test_who_may_say_none_is_told_so() -> None:
    expected = (Argument("expected", "int", word=True, required=True, nothing=True, help="the version"),)
    wrong = refused("x", expected)
    assert (wrong.message, wrong.hint) == ("EXPECTED must be a whole number, or none, not 'x'", "the version")
    assert read("none", expected) == {"expected": None}
