"""Fencing tokens that the command line remembers (issue 7): a zombie is refused there too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast.workspace.tokens import FileTokens
from tests.cli.calling import Answer

Cli = Callable[..., Answer]
SHORT = "0.2"  # seconds: what is granted so long is soon lost
LONG = "180"  # seconds that a waiter waits at most for it


class Thing(NamedTuple):
    """Something that can be held: how it is taken, taken by somebody who waits, renewed and given back."""

    take: str
    wait: str
    renew: str
    free: str


THINGS = {
    "task": Thing("claim {task}", "next", "heartbeat {task}", "done {task}"),
    "lock": Thing("lock acquire deploy", "lock acquire deploy", "lock refresh deploy", "lock release deploy"),
    "cell lock": Thing("cell lock r c", "cell lock r c", "cell refresh-lock r c", "cell unlock r c"),
    "path lock": Thing("path lock src/**", "path lock src/x", "path refresh {id}", "path release {id}"),
}


@pytest.fixture(params=THINGS)
def thing(request: pytest.FixtureRequest) -> Thing:
    return THINGS[request.param]


class Holding:
    """A thing in a workspace, and the names that its lines need."""

    def __init__(self, cli: Cli, thing: Thing) -> None:
        self.cli = cli
        self.thing = thing
        self.names = {"task": cli("create", "x", "-q").id, "id": ""}

    def call(self, line: str, actor: str, *more: str) -> Answer:
        return self.cli(*line.format(**self.names).split(), "--actor", actor, "--json", *more)

    def take(self, actor: str, *more: str, line: str = "") -> int:
        """Take it; answers the token."""
        answer = self.call(line or self.thing.take, actor, *more)
        assert answer.code == 0, answer.err
        self.names["id"] = answer.data.get("id", "")
        token: int = answer.data["token"]
        return token

    def lost_by(self, actor: str, to: str) -> int:
        """It expires in one's hand, and another, who waits for that, has it; answers the token of the first."""
        token = self.take(actor, "--ttl", SHORT)
        mine = dict(self.names)
        self.take(to, "--wait", LONG, "--ttl", "60", line=self.thing.wait)
        self.names = mine
        return token


@pytest.fixture
def holding(made: Cli, thing: Thing) -> Holding:
    return Holding(made, thing)


def test_what_one_holds_one_can_renew_and_give_back_without_a_token(holding: Holding) -> None:
    holding.take("a", "--ttl", "60")
    assert holding.call(holding.thing.renew, "a").code == 0
    assert holding.call(holding.thing.free, "a").code == 0


def test_a_zombie_is_refused_after_somebody_else_has_taken_it(holding: Holding) -> None:
    holding.lost_by("a", to="b")
    for line in (holding.thing.renew, holding.thing.free):
        answer = holding.call(line, "a")
        assert (answer.code, answer.error["code"]) == (15, "FENCED"), line


def test_a_zombie_does_not_disturb_who_has_it_now(holding: Holding) -> None:
    holding.lost_by("a", to="b")
    before = holding.names
    holding.call(holding.thing.free, "a")
    if holding.thing is THINGS["path lock"]:
        assert [lock["holder"] for lock in holding.call("path list", "c").data] == ["b"]
    else:
        holding.names = before
        assert holding.call(holding.thing.free, "b").code == 0


def test_a_token_that_is_given_overrides_the_remembered_one(holding: Holding) -> None:
    token = holding.take("a", "--ttl", "60")
    wrong = holding.call(holding.thing.free, "a", "--token", "1")
    assert (wrong.code, wrong.error["code"]) == (15, "FENCED")
    assert holding.call(holding.thing.free, "a", "--token", str(token)).code == 0


def test_a_remembered_token_is_forgotten_when_the_thing_is_given_back(holding: Holding, project: Path) -> None:
    holding.take("a", "--ttl", "60")
    assert len(remembered(project)) == 1
    assert holding.call(holding.thing.free, "a").code == 0
    assert remembered(project) == []


def test_two_actors_do_not_see_each_others_tokens(holding: Holding) -> None:
    holding.take("a", "--ttl", "60")
    answer = holding.call(holding.thing.free, "b")
    assert answer.code != 15, "it was not fenced: no token was sent for b"
    if holding.thing is THINGS["path lock"]:
        assert answer.code in (0, 13), answer
        assert [lock["holder"] for lock in holding.call("path list", "c").data] == ["a"]
    else:
        assert answer.code == 13
    assert holding.call(holding.thing.renew, "a").code == 0


def remembered(project: Path) -> list[Path]:
    """The files in which tokens are remembered."""
    return [path for path in (project / ".holdfast" / "held").rglob("*") if path.is_file()]


# --- tasks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["done {}", "release {}", "block {} why", "heartbeat {}", "park {}", "update {} --title y"]
)
def test_every_step_of_a_zombie_on_its_task_is_refused(made: Cli, line: str) -> None:
    holding = Holding(made, THINGS["task"])
    holding.lost_by("a", to="b")
    task = holding.names["task"]
    assert made(*line.format(task).split(), "--actor", "a").code == 15
    assert made("show", task, "--json").data["claimed_by"] == "b"


def test_a_namesake_on_another_machine_does_not_bring_a_zombie_back(made: Cli, project: Path) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", "a", "--ttl", SHORT)
    made("lock", "acquire", "deploy", "--actor", "a", "--ttl", SHORT)
    assert made("next", "--actor", "b", "--wait", LONG).code == 0
    assert made("lock", "acquire", "deploy", "--actor", "b", "--wait", LONG).code == 0
    made("release", task, "--actor", "b")
    made("lock", "release", "deploy", "--actor", "b")
    with holdfast.open(project / ".holdfast", actor="a") as elsewhere:  # which knows nothing of our files
        elsewhere.tasks.claim(task)
        elsewhere.locks.acquire("deploy")
    assert made("done", task, "--actor", "a").code == 15
    assert made("lock", "release", "deploy", "--actor", "a").code == 15


def test_a_zombie_that_claims_again_is_none_any_more(made: Cli) -> None:
    holding = Holding(made, THINGS["task"])
    holding.lost_by("a", to="b")
    task = holding.names["task"]
    assert made("release", task, "--actor", "b").code == 0
    assert made("done", task, "--actor", "a").code == 15
    assert made("claim", task, "--actor", "a").code == 0
    assert made("done", task, "--actor", "a").code == 0


def test_a_claim_that_expired_and_nobody_took_is_lost_too(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("next", "--actor", "a", "--ttl", SHORT)
    assert made("watch", "--for", f"task.{task}", "--once", "--timeout", LONG).code == 0
    assert made("show", task, "--json").data["status"] == "open"
    assert made("done", task, "--actor", "a").code == 15


@pytest.mark.parametrize("line", ["done {}", "done {} --review", "release {}", "block {} why"])
def test_the_token_of_a_task_is_forgotten_with_the_claim(made: Cli, project: Path, line: str) -> None:
    task = made("create", "x", "-q").id
    made("next", "--actor", "a")
    assert len(remembered(project)) == 1
    assert made(*line.format(task).split(), "--actor", "a").code == 0
    assert remembered(project) == []


def test_a_claim_made_for_an_agent_is_remembered_for_the_agent(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--agent", "b", "--actor", "a", "--ttl", SHORT)
    assert made("next", "--agent", "c", "--actor", "a", "--wait", LONG).code == 0
    assert made("done", task, "--actor", "b").code == 15


def test_tokens_are_private_and_whole(made: Cli, project: Path) -> None:
    made("create", "x")
    made("next", "--actor", "../../a b\u202e")
    (file,) = remembered(project)
    assert file.read_text().isdigit()
    assert os.stat(file.parent).st_mode & 0o077 == 0, "nobody else looks into the folder of an actor"
    assert file.resolve().is_relative_to(project / ".holdfast" / "held"), "a name is never a path"


@pytest.mark.parametrize("name", ["x" * 512, "é" * 256, "a/../b", "..", ".", "a\u202eb", "A", "a"])
def test_a_thing_may_have_any_name_that_is_one(made: Cli, name: str) -> None:
    for take, renew, free in (
        (("lock", "acquire", name), ("lock", "refresh", name), ("lock", "release", name)),
        (("cell", "lock", name, name), ("cell", "refresh-lock", name, name), ("cell", "unlock", name, name)),
    ):
        for words in (take, renew, free):
            answer = made(*words, "--actor", name)
            assert answer.code == 0, answer.err


def test_names_that_differ_only_in_case_are_two(made: Cli) -> None:
    made("lock", "acquire", "deploy", "--actor", "a")
    made("lock", "acquire", "Deploy", "--actor", "a")
    made("lock", "acquire", "deploy2", "--actor", "A")
    for name, actor in (("deploy", "a"), ("Deploy", "a"), ("deploy2", "A")):
        assert made("lock", "release", name, "--actor", actor).code == 0


def test_a_token_file_that_was_cut_short_is_as_if_it_were_not_there(made: Cli, project: Path) -> None:
    task = made("create", "x", "-q").id
    made("next", "--actor", "a")
    remembered(project)[0].write_text("")
    assert made("done", task, "--actor", "a").code == 0, "the name alone is still good while the claim lives"


def test_what_was_granted_after_a_backup_is_void_after_its_restore(made: Cli, project: Path) -> None:
    early, late = (made("create", f"task {n}", "-q").id for n in range(2))
    made("claim", early, "--actor", "a")
    assert made("backup", "copy").code == 0
    made("claim", late, "--actor", "a")
    for path in (project / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    assert made("restore", "copy").code == 0
    assert made("claim", late, "--actor", "b").code == 0
    assert made("done", late, "--actor", "a").code == 15, "it was granted in the time that is lost"
    assert made("done", early, "--actor", "a").code == 0, "the backup has this one"


def test_who_lost_a_claim_is_not_told_of_a_token_that_nobody_typed(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", "ada")
    made("release", task, "--force", "--actor", "ben")
    lost = made("heartbeat", task, "--actor", "ada")
    assert lost.code == 15
    assert lost.err.startswith(
        f"holdfast: your claim on task {task} has ended: it expired, was released or was taken\n"
    )
    made("claim", task, "--actor", "ben")
    taken = made("done", task, "--actor", "ada")
    assert (taken.code, "token" in taken.err) == (15, False)
    assert (
        f"your claim on task {task} has ended: it expired, was released or was taken; ben holds the task now"
        in taken.err
    )
    typed = made("done", task, "--actor", "ada", "--token", "1")
    assert "the token 1 is not that of the current claim" in typed.err


def test_who_lost_a_lock_is_not_told_of_a_token_that_nobody_typed(holding: Holding) -> None:
    holding.lost_by("a", to="b")
    answer = holding.call(holding.thing.renew, "a")
    assert (answer.code, "token" in answer.error["error"]) == (15, False), answer.err


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_remembered_tokens_are_for_their_owner_alone_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        FileTokens(str(tmp_path / "state"), "ada").remember(7, "lock", "deploy")
    finally:
        os.umask(before)
    assert FileTokens(str(tmp_path / "state"), "ada").token("lock", "deploy") == 7
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("*") if path.is_file()} == {0}
