"""Stashes, trails and links on the command line (issue 8): what names a stash, remembered tokens, lines for people."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.calling import Answer
from tests.cli.test_held import LONG, SHORT, remembered

Cli = Callable[..., Answer]


@pytest.fixture
def trail(made: Cli) -> str:
    return made("trail", "create", "parser", "--state", "active", "-q").id


def count(cli: Cli, name: str) -> int:
    value: int = cli("stash", "get", name, "--json").data["value"]["value"]
    return value


# --- what names a stash ----------------------------------------------------------------------------------------------


def test_s3_a_stash_is_named_by_its_id_its_trail_and_name_or_its_name_alone(made: Cli, trail: str) -> None:
    of_all = made("stash", "create", "hits", "--type", "counter", "-q").id
    scoped = made("stash", "create", "hits", "--type", "counter", "--trail", trail, "-q").id
    for name in (of_all, "hits", "/hits"):
        assert made("stash", "increment", name).code == 0
    for name in (scoped, f"{trail}/hits"):
        assert made("stash", "increment", name, "10").code == 0
    assert (count(made, of_all), count(made, scoped)) == (3, 20)


def test_s3_a_global_stash_that_is_named_like_an_id_is_reached_with_a_slash(made: Cli, trail: str) -> None:
    made("stash", "create", trail, "--type", "counter")
    assert made("stash", "get", trail).code == 10
    assert made("stash", "increment", f"/{trail}").out == "1\n"


def test_s3_a_name_may_have_slashes_of_its_own(made: Cli) -> None:
    made("stash", "create", "a/b", "--type", "context")
    assert made("stash", "get", "a/b").code == 10, "that is b in the trail a"
    assert made("stash", "get", "/a/b", "--json").data["name"] == "a/b"


def test_s4_a_type_that_is_missing_or_none_is_refused(made: Cli) -> None:
    missing = made("stash", "create", "limits")
    assert (missing.code, "needs --type TYPE" in missing.err) == (2, True)
    wrong = made("stash", "create", "limits", "--type", "heap", "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "INVALID_STASH_TYPE")


# --- locks -----------------------------------------------------------------------------------------------------------


def test_s10_the_token_of_a_lock_is_remembered_by_whatever_name_it_is_taken_and_given_back(
    made: Cli, project: Path
) -> None:
    gate = made("stash", "create", "gate", "--type", "lock", "-q").id
    for taken, freed in (("gate", gate), (gate, "/gate"), ("/gate", "gate")):
        assert made("stash", "acquire", taken, "--actor", "a").code == 0
        assert len(remembered(project)) == 1
        assert made("stash", "release", freed, "--actor", "a").code == 0
        assert remembered(project) == []


@pytest.mark.parametrize("by_name", [True, False])
def test_s10_a_zombie_is_refused_and_disturbs_nobody(made: Cli, by_name: bool) -> None:
    gate = made("stash", "create", "gate", "--type", "lock", "-q").id
    name = "gate" if by_name else gate
    assert made("stash", "acquire", "gate", "--ttl", SHORT, "--actor", "a").code == 0
    assert made("stash", "acquire", "gate", "--ttl", "60", "--wait", LONG, "--actor", "b").code == 0
    zombie = made("stash", "release", name, "--actor", "a", "--json")
    assert (zombie.code, zombie.error["code"]) == (15, "FENCED")
    assert made("stash", "release", name, "--actor", "b").code == 0


def test_s10_who_holds_a_lock_is_told_to_others(made: Cli) -> None:
    made("stash", "create", "gate", "--type", "lock")
    made("stash", "acquire", "gate", "--actor", "a")
    assert made("stash", "acquire", "gate", "--actor", "b").code == 12
    assert made("stash", "release", "gate", "--actor", "b").code == 13
    assert made("stash", "delete", "gate", "--yes", "--actor", "b").code == 12


def test_s10_c15_a_fence_names_a_lock_stash_as_every_other_command_does(made: Cli, trail: str) -> None:
    for scope, given in ((trail, ["--trail", trail]), ("", [])):
        gate = made("stash", "create", "gate", "--type", "lock", *given, "-q").id
        token = made("stash", "acquire", gate, "--actor", "a", "--json").data["token"]
        for name in (gate, f"{scope}/gate"):
            assert made("cell", "set", "run", "x", "1", "--fence", f"{name}:{token}").code == 0
        made("stash", "release", gate, "--actor", "a")
        lost = made("cell", "set", "run", "x", "2", "--fence", f"{scope}/gate:{token}")
        assert (lost.code, "no longer held" in lost.err) == (15, True)
    never = made("cell", "set", "run", "x", "2", "--fence", f"{trail}/gat:{token}")
    assert (never.code, "there is no lock" in never.err, "lost" in never.err) == (15, True, False)


# --- lines for people ------------------------------------------------------------------------------------------------


def test_i7_stashes_trails_links_and_entries_are_told_in_a_line_each(made: Cli, trail: str) -> None:
    task = made("create", "x", "-q").id
    stash = made("stash", "create", "hits", "--type", "counter", "--trail", trail, "-q").id
    made("stash", "increment", stash, "2", "--changed-by", task)
    made("trail", "add", trail, task)
    assert made("stash", "list").out == f'{stash}  counter  hits  version 2  [{trail}]  {{"value":2}}\n'
    assert made("trail", "list").out == f"{trail}  active  parser\n"
    first, second = made("stash", "history", stash).out.splitlines()
    assert re.fullmatch(r'1  \S+ \S+  create  \{"value":0\}', first)
    assert re.fullmatch(rf'2  \S+ \S+  increment  \[{task}\]  {{"value":2}}', second)
    link = made("link", "list", "--type", "belongs_to", "-q").id
    assert made("link", "list", "--type", "belongs_to").out == f"{link}  {task} belongs_to {trail}\n"
    assert made("trail", "tasks", trail).out == f"{task}\n"


def test_s13_an_import_that_leaves_a_conflict_alone_ends_with_9(made: Cli) -> None:
    made("stash", "create", "limits", "--type", "context", "--value", '{"depth": 1}')
    made("stash", "export", "folder")
    assert made("stash", "import", "folder", "--dir", "copy").code == 0
    made("stash", "set", "limits", '{"depth": 2}')
    made("stash", "set", "limits", '{"depth": 3}', "--dir", "copy")
    made("stash", "export", "folder")
    assert made("stash", "import", "folder", "--dir", "copy", "--dry-run", "--json").code == 9
    left = made("stash", "import", "folder", "--dir", "copy")
    assert left.code == 9
    assert "in conflict; they stay as they are here" in left.err
    assert made("stash", "get", "limits", "--dir", "copy", "--json").data["value"] == {"depth": 3}


def test_s9_what_is_no_tasks_id_is_refused_by_changed_by(made: Cli) -> None:
    made("stash", "create", "hits", "--type", "counter")
    refused = made("stash", "increment", "hits", "--changed-by", "nobody's task")
    assert refused.code == 10
    assert 'changed_by "nobody\'s task" is not the id of a task' in refused.err
    assert "leave it out" in refused.err
    assert made("stash", "get", "hits", "--json").data["version"] == 1


def test_i7_a_record_that_is_asked_for_is_told_field_by_field(made: Cli, trail: str) -> None:
    stash = made("stash", "create", "limits", "--type", "context", "--value", '{"depth": 3}', "-q").id
    told = made("stash", "get", "limits").out.splitlines()
    assert {f"id: {stash}", "stash type: context", 'value: {"depth":3}', "version: 1"} <= set(told)
    assert "state: active" in made("trail", "get", trail).out.splitlines()
    assert made("stash", "find", "nothing").out == ""


def test_i7_a_name_that_a_terminal_would_obey_is_shown_and_not_obeyed(made: Cli) -> None:
    made("stash", "create", "a\u202eb", "--type", "context", "--value", '{"x": "\\u001b[2J"}')
    shown = made("stash", "list").out
    assert "\u202e" not in shown
    assert "\x1b" not in shown


def test_i7_events_of_the_new_kinds_can_be_asked_for(made: Cli, trail: str) -> None:
    made("stash", "create", "gate", "--type", "lock", "--trail", trail)
    made("stash", "acquire", f"{trail}/gate", "--actor", "a")
    for kind, ops in {"stash": ["create", "acquire"], "trail": ["create"], "link": ["create"]}.items():
        assert [event["op"] for event in made("event", "list", "--kind", kind, "--json").data] == ops
    assert made("event", "list", "--kind", "stash-lock", "--json").data[0]["kind"] == "stash-lock"


@pytest.mark.parametrize("words", [["trail", "--help"], ["stash", "-h"], ["token", "--json", "--help"]])
def test_i7_help_is_an_option_of_every_word_that_begins_a_command(cli: Cli, words: list[str]) -> None:
    told = cli(*words)
    assert (told.code, told.err) == (0, "")
    assert told.out == cli("help", words[0]).out
    assert cli(words[0]).code == 2
    assert cli(words[0], "--", "--help").code == 2


def test_s8_a_queue_is_deleted_with_its_items_only_when_that_is_meant(made: Cli) -> None:
    made("stash", "create", "jobs", "--type", "queue")
    made("queue", "put", "jobs", "1")
    refused = made("stash", "delete", "jobs")
    assert refused.code == 2
    assert "this removes the stash /jobs, what its history says, and all that a queue or a channel has" in refused.err
    assert "--yes" in refused.err
    assert made("queue", "size", "jobs", "--json").data["ready"] == 1
    assert made("stash", "delete", "jobs", "--yes").code == 0
    assert made("queue", "size", "jobs").code == 10


def test_s4_a_subscriber_who_lost_messages_is_told_the_call_with_its_channel(made: Cli) -> None:
    made("stash", "create", "news", "--type", "channel", "--value", '{"keep": 1}')
    made("channel", "subscribe", "news", "--actor", "ann")
    for value in ("1", "2", "3"):
        made("channel", "publish", "news", value)
    lost = made("channel", "read", "news", "--actor", "ann")
    [command] = re.findall(r"holdfast (channel ack .*)", lost.err)
    assert made(*command.split(), "--actor", "ann").code == 0, lost.err
    assert [each["value"] for each in made("channel", "read", "news", "--json", "--actor", "ann").data] == [3]


@pytest.mark.parametrize("subscriber", ["bob", "bob (2) a=b", 'ann\'s "own"'])
def test_s4_the_hint_of_a_channel_acts_for_the_subscriber_it_speaks_of(made: Cli, subscriber: str) -> None:
    made("stash", "create", "news", "--type", "channel", "--value", '{"keep": 1}')
    bob = ("--subscriber", subscriber, "--actor", "ann")

    def follow(refused: Answer) -> None:
        """Do what the hint says, as ann."""
        [command] = re.findall(r"holdfast (channel (?:ack|subscribe) .*?)(?: does that)?\n", refused.err)
        assert made(*shlex.split(command), "--actor", "ann").code == 0, refused.err

    follow(made("channel", "read", "news", *bob))
    assert [each["subscriber"] for each in made("channel", "subscribers", "news", "--json").data] == [subscriber]
    made("channel", "subscribe", "news", "--actor", "ann")
    for value in ("1", "2", "3"):
        made("channel", "publish", "news", value)
    follow(made("channel", "read", "news", *bob))
    assert [each["value"] for each in made("channel", "read", "news", "--json", *bob).data] == [3]
    assert made("channel", "read", "news", "--actor", "ann").code == 17, "the loss of ann is its own"
    follow(made("channel", "read", "news", "--actor", "ann"))


def test_s4_a_channel_without_news_or_subscribers_says_so(made: Cli) -> None:
    made("stash", "create", "news", "--type", "channel")

    def told(*words: str) -> str:
        answer = made("channel", *words)
        assert (answer.code, answer.out) == (0, ""), answer.err
        return answer.err.strip().removeprefix("holdfast: ")

    assert told("subscribers", "news") == "nobody has subscribed"
    made("channel", "subscribe", "news", "--actor", "ann")
    assert told("subscribers", "news", "--after", "ann") == "nobody after ann has subscribed"
    assert told("read", "news", "--actor", "ann") == "nothing new"
    assert told("read", "news", "--actor", "ann", "--wait", "0.01s") == "nothing new"
    assert told("read", "news", "--subscriber", "ann") == "nothing new"


def test_s4_a_page_of_a_channel_proposes_only_what_the_command_takes(made: Cli) -> None:
    made("stash", "create", "news", "--type", "channel")
    made("channel", "subscribe", "news", "--actor", "ann")
    for value in ("1", "2"):
        made("channel", "publish", "news", value)
    told = made("channel", "read", "news", "--limit", "1", "--actor", "ann").out
    [more] = re.findall(r"more: (.*)", told)
    assert [
        each["value"] for each in made("channel", "read", "news", *more.split(), "--actor", "ann", "--json").data
    ] == [2]


def test_times_of_a_stash_and_its_history_are_rfc_3339(made: Cli) -> None:
    stash = made("stash", "create", "hits", "--type", "counter", "--json").data
    [entry] = made("stash", "history", "hits", "--json").data
    times = [value for each in (stash, entry) for name, value in each.items() if name.endswith("_at") and value]
    assert len(times) >= 2
    for time in times:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", time), time


def test_s4_queues_and_channels_are_named_in_errors_and_the_hint_can_be_typed(made: Cli) -> None:
    for name, kind in (("jobs", "queue"), ("news", "channel")):
        made("stash", "create", name, "--type", kind)
    first, again = (made("queue", "put", "jobs", value, "--item-key", "k") for value in ('"x"', '"y"'))
    assert (first.code, first.out.strip()) == (0, "put in item 1 with the key k")
    assert (again.code, again.out.strip()) == (0, "item 1 already has the key k: nothing was added")
    assert json.loads(made("queue", "put", "jobs", '"y"', "--item-key", "k", "--json").out) == {
        "schema_version": 1,
        "data": 1,
        "existed": True,
    }
    assert "existed" not in json.loads(made("queue", "put", "jobs", '"y"', "--item-key", "k2", "--json").out)
    assert made("queue", "put", "jobs", '"y"', "--item-key", "k", "-q").out.strip() == "1"
    assert made("queue", "put", "jobs", '"z"').out.strip() == "put in item 3"
    assert "no item to put in" in made("queue", "put-all", "jobs", "[]").err
    for line, told in (
        ("queue retry jobs 5", "the queue 'jobs' has no dead letter 5"),
        ("channel read news --subscriber ann", "ann has not subscribed to the channel 'news'"),
    ):
        refused = made(*line.split())
        assert (refused.code, told in refused.err) == (10, True), refused.err
        (hinted,) = re.findall(r"holdfast ((?:queue|channel) \w+ \S+)", refused.err)
        assert made(*hinted.split(), "--actor", "ann").code == 0
    assert "'max_deliveries'" not in made("stash", "create", "q", "--type", "queue", "--value", '{"x": 1}').err
