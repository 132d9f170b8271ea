"""Words that people type who come from beads, git, Taskwarrior, GitHub's issues and Agent Mail (issue 23)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import HoldfastError
from holdfast.faces.cli import understood
from holdfast.faces.cli.args import Usage, nearest
from holdfast.faces.cli.command import all_commands, find
from holdfast.faces.cli.synonyms import ALIASES, ELSEWHERE, INSTEAD, OPTIONS, SUBCOMMANDS
from tests.cli.calling import Answer

Cli = Callable[..., Answer]
# What is typed, and the command that runs; or what the refusal proposes, after ?.
WORDS = {
    **{"add": "create", "new": "create", "ls": "list", "tasks": "list", "issues": "list", "list": "list"},
    **{"view": "show", "info": "show", "start": "claim", "take": "claim", "finish": "done", "complete": "done"},
    **{"stop": "release", "unclaim": "release", "comment": "note", "annotate": "note", "modify": "update"},
    **{"find": "search", "grep": "search", "todo": "ready", "stats": "status", "status": "status", "edit": "edit"},
    **{"deps": "dep list", "agents": "agent list", "inbox": "mail inbox", "send": "mail send", "ack": "mail ack"},
    **{"reply": "mail reply", "register": "agent register", "whois": "agent get"},
    **{"reserve": "path lock", "reservations": "path list", "locks": "lock list", "events": "event list"},
    **{"pick": "next", "why": "explain", "log": "log", "undelete": "undelete", "history": "history"},
    **{"rm": "?cancel", "remove": "?cancel", "mine": "?list --mine", "closed": "?list --closed", "all": "?list --all"},
    **{"completed": "?list --closed", "blocked": "?list --status blocked", "waiting": "?holdfast graph"},
    **{"label": "?tag add", "tags": "?tag add", "comments": "?history", "rename": "?update ID --title"},
    **{"mv": "?update ID --title", "merge": "?approve", "duplicate": "?cancel", "epic": "?--type epic"},
    **{"branch": "?ref add", "checkout": "?ref add", "diff": "?history", "blame": "?history", "sync": "?one store"},
    **{"push": "?one store", "commit": "?one store", "undefer": "?defer ID none"},
    **{"count": "?status", "config": "?config.yaml", "whoami": "?where", "unlock": "?path release"},
    **{"quickstart": "?help", "task": "?no group", "issue": "?no group", "priority": "?update ID --priority"},
    **{"lsit": "?did you mean list?", "creat": "?did you mean create?", "shwo": "?did you mean show?"},
    **{"stauts": "?did you mean status?", "complet": "?did you mean done?", "inbx": "?did you mean mail inbox?"},
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_another_program_runs_or_says_what_does_it(word: str) -> None:
    wanted = WORDS[word]
    if not wanted.startswith("?"):
        command, count = find([word])
        assert (command.name, count) == (wanted, 1)
        return
    with pytest.raises(Usage) as caught:
        find([word])
    assert wanted[1:] in caught.value.hint


@pytest.mark.parametrize("word", ["zzz", "frobnicate", "x", "banana", "42"])
def test_nothing_is_proposed_when_nothing_is_near(word: str) -> None:
    with pytest.raises(Usage) as caught:
        find([word])
    assert caught.value.hint == "holdfast help lists all"


def test_the_group_of_another_program_names_the_command_without_it() -> None:
    for words, wanted in ((["issue", "create", "x"], "holdfast create?"), (["task", "ls"], "holdfast list?")):
        with pytest.raises(Usage, match="there is no command") as caught:
            find(words)
        assert wanted in caught.value.hint


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("ready --mine", "holdfast list --mine"),
        ("list --me", "--mine"),
        ("list --label x", "--tag"),
        ("list --state open", "--status"),
        ("list -n 5", "--limit"),
        ("list --done", "--closed"),
        ("create x --description y", "--body"),
        ("create x -m y", "--body"),
        ("create x --assignee bob", "--assign"),
        ("create x --blocked-by hf-1", "--depends-on"),
        ("create x --epic hf-1", "--parent"),
        ("create x --prio 1", "--priority"),
        ("create x --format json", "--json"),
        ("claim hf-1 --as bob", "--actor"),
        ("close hf-1 --comment y", "--reason"),
    ],
)
def test_an_option_of_another_program_names_ours(line: str, meant: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        understood(line.split())
    assert f"did you mean {meant}?" in caught.value.hint or meant in caught.value.hint.partition(";")[0]


def test_an_option_that_is_like_none_proposes_none() -> None:
    for line in ("list --frobnicate", "create x --colour", "show hf-1 --mien"):
        with pytest.raises(HoldfastError) as caught:
            understood(line.split())
        assert "did you mean" not in caught.value.hint


def test_every_word_leads_to_a_command_that_exists() -> None:
    names = {command.name for command in all_commands()}
    first = {name.partition(" ")[0] for name in names}
    members = {name.partition(" ")[2] for name in names}
    assert {*ALIASES.values()} <= names
    assert not {*ALIASES, *INSTEAD} & first, "a command is no word for another"
    assert not {*ALIASES} & {*INSTEAD}
    assert {each for meant in SUBCOMMANDS.values() for each in meant} <= members
    options = {argument.option for command in all_commands() for argument in command.arguments}
    known = options | {"--actor", "--json", "--quiet"}
    assert {each for meant in OPTIONS.values() for each in meant} <= known
    assert {text.split()[1] for text in ELSEWHERE.values()} <= first


def test_aliases_do_what_their_commands_do(made: Cli) -> None:
    id = made("add", "Fix login", "-q").id
    assert made("ls", "-q").out.split() == [id]
    assert made("start", id, "--actor", "ann").code == 0
    assert made("finish", id, "--actor", "ann").code == 0
    assert made("view", id, "--json").data["status"] == "closed"
    made("send", "bob", "hello", "text", "--actor", "ann")
    assert len(made("inbox", "--json", "--actor", "bob").data) == 1
    assert made("help", "add").out == made("help", "create").out


def test_the_nearest_word_is_at_most_two_slips_away_or_begins_so() -> None:
    known = ["create", "claim", "close", "list", "lock", "status", "stash", "search"]
    for typed, meant in (("craete", "create"), ("statsu", "status"), ("lst", "list"), ("sear", "search")):
        assert nearest(typed, known) == meant
    for typed in ("l", "zzz", "mine", "stop"):
        assert nearest(typed, known) is None
