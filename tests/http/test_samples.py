"""The HTTP API that our tasks come from: its requests are accepted byte for byte, our answers have all that its have.

A table has a body of each shape in words of our own, with what it takes to provoke it. Where the original samples lie
beside the repository, the same table is driven by their files. The ids that a body names are imported first, so
nothing in it has to be replaced. Each case has a workspace of its own behind one server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from tests.http.running import PATIENCE, Running

SAMPLES: Final = Path(__file__).resolve().parents[2] / "../shared/samples/tasks/http"
TASK: Final = "the-task"
ALL: Final = "/api/tasks"
ONE: Final = f"{ALL}/{TASK}"
WHEN: Final = "2020-02-03T04:05:06Z"
AGENT: Final = "agent-123"
WORDS: Final = {"error", "reason"}  # for people: every server has its own
TIMES: Final = {"claimed_at", "changed_at", "created_at", "updated_at"}
Body = dict[str, Any]
Served = tuple[Running, httpx.Client]


class Place:
    """A workspace of its own, and calls of an agent."""

    def __init__(self, served: Served, name: str) -> None:
        server, self._client = served
        self.folder = server.folder / "workspaces" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.yaml").write_text("parents: independent\n")  # as that API has them
        self._base = f"/{name}"

    def send(self, where: str, content: bytes = b"", agent: str = AGENT) -> httpx.Response:
        """A request with these bytes for its body."""
        method, path = where.split()
        headers = {"x-agent-id": agent, **({"content-type": "application/json"} if content else {})}
        return self._client.request(method, self._base + path, headers=headers, content=content)

    def call(self, where: str, body: Any = None, agent: str = AGENT) -> Any:
        """A request that must succeed, and its answer."""
        answer = self.send(where, b"" if body is None else json.dumps(body).encode(), agent)
        assert answer.is_success, answer.text
        return answer.json()

    def plant(self, *tasks: Body) -> None:
        """Import tasks with just these ids."""
        lines = [json.dumps({"format": "holdfast.task/1", "title": "planted", **task}) for task in tasks]
        assert len(self.call("POST /api/tasks/import", {"lines": lines})["created"]["tasks"]) == len(tasks)

    def claimed(self, task: Body, agent: str = AGENT) -> None:
        """A task that somebody works on."""
        self.plant(task)
        self.call(f"POST /api/tasks/{task['id']}/claim", agent=agent)


# --- requests --------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request: where it goes, a body of this shape, the tasks it needs, and what it makes of those it is about."""

    where: str
    body: Body
    made: Callable[[Body], Body]
    planted: Callable[[Body], list[Body]] = lambda body: [{"id": TASK}]
    status: int = 200
    claimed: bool = False  # the task is in progress, in the hands of who asks
    kept: tuple[str, ...] = ()  # what of the body the history must tell


def idle(status: str) -> Callable[[Body], Body]:
    return lambda body: {"status": status, "claimed_by": None}


REQUESTS: Final = {
    "create-task-via-api": Asked(
        f"POST {ALL}",
        {"title": "Count", "body": "All", "type": "feature", "priority": 3, "parent_id": "fleet", "tags": ["a", "b"]}
        | {"grimoire_hint": "counting"},
        planted=lambda body: [{"id": body["parent_id"]}],
        made=lambda body: {**body, "depth": 1},
        status=201,
    ),
    "create-subtask-via-api": Asked(
        f"POST {ONE}/subtasks",
        {"title": "Count the masts", "type": "chore"},
        lambda body: {**body, "parent_id": TASK, "depth": 1},
        status=201,
    ),
    "update-task-via-api": Asked(
        f"PATCH {ONE}", {"title": "Count again", "body": "From the left.", "priority": 4}, made=lambda body: body
    ),
    "update-task-status-via-api": Asked(
        f"PATCH {ONE}/status", {"status": "blocked", "reason": "Fog"}, idle("blocked"), claimed=True, kept=("reason",)
    ),
    "block-task-via-api": Asked(
        f"POST {ONE}/block", {"reason": "No wind"}, idle("blocked"), claimed=True, kept=("reason",)
    ),
    "complete-task-with-result": Asked(
        f"POST {ONE}/complete",
        {"result": "counted", "summary": "Seven ships", "skip_review": False},
        idle("closed"),
        claimed=True,
        kept=("result", "summary"),
    ),
    "add-tags-via-api": Asked(
        f"POST {ONE}/tags",
        {"tags": ["wood", "rope"]},
        planted=lambda body: [{"id": TASK, "tags": ["old"]}],
        made=lambda body: {"tags": ["old", *body["tags"]]},
    ),
    "remove-tags-via-api": Asked(
        f"DELETE {ONE}/tags",
        {"tags": ["rope"]},
        planted=lambda body: [{"id": TASK, "tags": ["old", *body["tags"]]}],
        made=lambda body: {"tags": ["old"]},
    ),
    "replace-all-tags-via-api": Asked(
        f"PUT {ONE}/tags",
        {"tags": ["iron", "steam"]},
        planted=lambda body: [{"id": TASK, "tags": ["old"]}],
        made=lambda body: body,
    ),
    "reparent-task-via-api": Asked(
        f"POST {ONE}/reparent",
        {"new_parent_id": "another-fleet"},
        planted=lambda body: [{"id": TASK}, {"id": body["new_parent_id"]}],
        made=lambda body: {"parent_id": body["new_parent_id"], "depth": 1},
    ),
    "reparent-to-root-via-api": Asked(
        f"POST {ONE}/reparent",
        {"new_parent_id": None},
        planted=lambda body: [{"id": "fleet"}, {"id": TASK, "parent_id": "fleet"}],
        made=lambda body: {"parent_id": None, "depth": 0},
    ),
    "bulk-update-tasks-via-api-1": Asked(
        f"POST {ALL}/bulk",
        {"action": "add_tags", "task_ids": ["s1", "s2", "s3"], "tags": ["counted"]},
        planted=lambda body: [{"id": id} for id in body["task_ids"]],
        made=lambda body: {"tags": body["tags"]},
    ),
    "bulk-close-tasks-via-api": Asked(
        f"POST {ALL}/bulk",
        {"action": "close", "task_ids": ["s1", "s2"], "reason": "Sunk"},
        planted=lambda body: [{"id": id, "status": "blocked"} for id in body["task_ids"]],
        made=lambda body: {"status": "closed"},
        kept=("reason",),
    ),
}


def is_accepted(place: Place, asked: Asked, content: bytes) -> None:
    """Send a body as it is, and see that it did what it says."""
    body = json.loads(content)
    place.plant(*asked.planted(body))
    if asked.claimed:
        place.call(f"POST {ONE}/claim")
    answer = place.send(asked.where, content)
    assert answer.status_code == asked.status, answer.text
    assert (answer.content == b"") is (asked.status == 204)
    if "task_ids" in body:
        told = [{"id": id, "success": True, "error": None, "code": None} for id in body["task_ids"]]
        assert answer.json() == {"results": told}
    for id in body.get("task_ids") or [answer.json()["id"] if asked.status == 201 else TASK]:
        task, expected = place.call(f"GET {ALL}/{id}"), asked.made(body)
        assert {name: ordered(task[name]) for name in expected} == {n: ordered(v) for n, v in expected.items()}
        history = place.call(f"GET {ALL}/{id}/history")
        words = [str(entry[part]) for entry in history for part in ("note", "new_value")]
        assert {body[name] for name in asked.kept} <= set(words)


def ordered(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


# --- answers ---------------------------------------------------------------------------------------------------------

Provoke = Callable[[Place, Any], httpx.Response]


class Told(NamedTuple):
    """An answer: one of this shape, its status, and how to provoke it."""

    answer: Any
    status: int
    provoke: Provoke
    shape_only: bool = False  # the values stand for others


def existing_task(place: Place, told: Body) -> httpx.Response:
    place.plant({name: value for name, value in told.items() if name not in TIMES})
    return place.send(f"GET /api/tasks/{told['id']}")


def history_of_a_claim(place: Place, told: list[Body]) -> httpx.Response:
    place.claimed({"id": TASK}, agent=told[0]["changed_by"])
    return place.send(f"GET {ONE}/history")


def by_another(step: str) -> Provoke:
    def provoke(place: Place, told: Body) -> httpx.Response:
        place.claimed({"id": TASK}, agent=told["claimed_by"])
        return place.send(f"POST {ONE}/{step}")

    return provoke


def illegal_step(place: Place, told: Body) -> httpx.Response:
    place.plant({"id": TASK, "status": told.get("status") or told["current_status"]})
    if "requested_status" not in told:
        return place.send(f"POST {ONE}/claim")
    return place.send(f"PATCH {ONE}/status", json.dumps({"status": told["requested_status"]}).encode())


def move_below_itself(place: Place, told: Body) -> httpx.Response:
    place.plant({"id": TASK}, {"id": "child", "parent_id": TASK}, {"id": "grandchild", "parent_id": "child"})
    return place.send(f"POST {ONE}/reparent", b'{"new_parent_id": "grandchild"}')


def delete_while_busy(place: Place, told: Body) -> httpx.Response:
    busy = told.get("active_children", [])
    place.plant({"id": TASK}, *({"id": id, "parent_id": TASK} for id in busy))
    for id in busy or [TASK]:
        place.call(f"POST {ALL}/{id}/claim")
    return place.send(f"DELETE {ONE}")


def bulk_with_a_missing_task(place: Place, told: Body) -> httpx.Response:
    place.plant(*({"id": each["id"]} for each in told["results"] if each["success"]))
    asked = {"action": "add_tags", "task_ids": [each["id"] for each in told["results"]], "tags": ["counted"]}
    return place.send("POST /api/tasks/bulk", json.dumps(asked).encode())


def dry_run(place: Place, told: Body) -> httpx.Response:
    """Both ways to ask must answer the same: for a task that is there, and for one that is not."""
    properties, (first, second) = told["task_properties"], (each["name"] for each in told["evaluation"])
    glob = f"{properties['tags'][0][:4]}*"
    (place.folder / "grimoire-matchers.yaml").write_text(
        f"matchers:\n"
        f"  - {{name: {first}, grimoire: {told['selected_grimoire']}, match: {{any_tags: ['{glob}']}}}}\n"
        f"  - {{name: {second}, grimoire: another, match: {{priority: [0, 1]}}}}\n"
    )
    task = {name: properties[name] for name in ("tags", "priority", "type")}
    place.plant({"id": TASK, **task})
    imagined = place.send("POST /api/routes/decide", json.dumps({"task": task}).encode())
    existing = place.send(f"GET {ONE}/route")
    assert imagined.json() == existing.json()
    return existing


def verdict(name: str, matched: bool) -> Body:
    return {"name": name, "matched": matched, "reason": "so"}


ANSWERS: Final = {
    "api-error-response-format": Told(
        {"error": "so", "code": "CODE", "details": {}}, 404, lambda place, _: place.send(f"GET {ALL}/none"), True
    ),
    "get-task-via-api": Told(
        {"id": "ship-1", "title": "Paint it", "body": "Twice", "type": "bug", "status": "open", "priority": 1}
        | {"parent_id": None, "depth": 0, "tags": ["paint"], "claimed_by": None, "claimed_at": None}
        | {"grimoire_hint": None, "created_at": WHEN, "updated_at": WHEN},
        200,
        existing_task,
    ),
    "get-task-history-via-api": Told(
        [{"field": "status", "old_value": "open", "new_value": "in_progress", "changed_at": WHEN, "changed_by": "bob"}],
        200,
        history_of_a_claim,
    ),
    "claim-task-already-claimed": Told(
        {"error": "no", "code": "ALREADY_CLAIMED", "claimed_by": "bob", "claimed_at": WHEN}, 409, by_another("claim")
    ),
    "claim-task-wrong-status": Told({"error": "no", "code": "INVALID_STATUS", "status": "closed"}, 409, illegal_step),
    "release-task-not-owner": Told(
        {"error": "not yours", "code": "NOT_CLAIM_OWNER", "claimed_by": "painter"}, 403, by_another("release")
    ),
    "update-task-status-invalid-transition": Told(
        {"error": "no", "code": "INVALID_TRANSITION", "current_status": "blocked", "requested_status": "pending_merge"}
        | {"valid_transitions": ["open", "closed"]},
        400,
        illegal_step,
    ),
    "reparent-would-create-cycle": Told({"error": "a ring", "code": "WOULD_CREATE_CYCLE"}, 400, move_below_itself),
    "delete-active-task-via-api": Told(
        {"error": "busy", "code": "TASK_ACTIVE", "status": "in_progress"}, 409, delete_while_busy
    ),
    "delete-task-with-active-children-via-api": Told(
        {"error": "no", "code": "HAS_ACTIVE_CHILDREN", "active_children": ["mast-1", "mast-2"]}, 409, delete_while_busy
    ),
    "bulk-update-tasks-via-api-2": Told(
        {"results": [{"id": "s1", "success": True}, {"id": "s2", "success": False, "error": "there is none"}]},
        200,
        bulk_with_a_missing_task,
    ),
    "dry-run-matcher-evaluation": Told(
        {"selected_grimoire": "shipwright", "matched_by": "wooden"}
        | {"evaluation": [verdict("wooden", True), verdict("urgent", False)]}
        | {"task_properties": {"tags": ["wood", "old"], "priority": 3, "type": "chore", "has_parent": False}},
        200,
        dry_run,
    ),
}


def is_answered(place: Place, told: Told, theirs: Any) -> None:
    """Provoke an answer and see that nothing of theirs is missing in it."""
    answer = told.provoke(place, theirs)
    assert answer.status_code == told.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert missing(theirs, answer.json(), told.shape_only) == [], answer.text


def missing(theirs: Any, ours: Any, shape_only: bool, name: str = "") -> list[str]:
    """What an answer has that ours does not cover: a key, a type, or a value that is no word for people."""
    if type(theirs) is not type(ours):
        return [f"{name}: {theirs!r} became {ours!r}"]
    if isinstance(theirs, dict):
        gone = [f"{name}.{key}" for key in theirs.keys() - ours.keys()]
        return gone + [
            each for key in theirs.keys() & ours.keys() for each in missing(theirs[key], ours[key], shape_only, key)
        ]
    if isinstance(theirs, list):
        return [f"{name}: {each!r}" for each in theirs if all(missing(each, own, shape_only, name) for own in ours)]
    if name in TIMES and isinstance(theirs, str):
        return [] if ours.endswith("Z") and datetime.fromisoformat(ours).tzinfo == UTC else [f"{name}: {ours!r}"]
    return [] if shape_only or name in WORDS or theirs == ours else [f"{name}: {theirs!r} became {ours!r}"]


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Running(tmp_path_factory.mktemp("samples") / "store")
    headers = {"authorization": f"Bearer {running.token}"}
    try:
        with httpx.Client(base_url=running.url, headers=headers, timeout=PATIENCE) as client:
            yield running, client
    finally:
        running.end()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_the_original_api_is_accepted_and_does_what_it_says(served: Served, name: str) -> None:
    is_accepted(Place(served, f"own-{name}"), REQUESTS[name], json.dumps(REQUESTS[name].body).encode())


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_all_that_the_original_api_answers(served: Served, name: str) -> None:
    is_answered(Place(served, f"own-{name}"), ANSWERS[name], ANSWERS[name].answer)


def test_what_an_answer_lacks_is_noticed() -> None:
    theirs = {"code": "X", "since": [1], "claimed_at": WHEN}
    assert missing(theirs, {**theirs, "more": 1}, False) == []
    wrongs: list[Body] = [{"code": "Y"}, {"code": None}, {"since": []}, {"since": ["1"]}, {"claimed_at": "yesterday"}]
    for wrong in wrongs:
        assert len(missing(theirs, {**theirs, **wrong}, False)) == 1
    assert missing(theirs, {}, True) != []


@pytest.mark.parametrize(("skip", "status"), [(False, "pending_merge"), (True, "closed")])
def test_a_review_that_the_route_demands_is_skipped_only_when_asked(served: Served, skip: bool, status: str) -> None:
    place = Place(served, f"review-{status}".replace("_", "-"))
    rules = "matchers:\n  - {name: all, grimoire: careful, require_review: true, match: {}}\n"
    (place.folder / "grimoire-matchers.yaml").write_text(rules)
    place.claimed({"id": TASK})
    body = {"result": "counted", "summary": "Seven ships", "skip_review": skip}
    assert place.call(f"POST {ONE}/complete", body)["status"] == status


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
class TestTheSamplesThemselves:
    """The bodies of the original API, byte for byte."""

    def test_none_of_them_is_left_out(self) -> None:
        assert {path.stem for path in SAMPLES.iterdir()} == REQUESTS.keys() | ANSWERS.keys()

    @pytest.mark.parametrize("name", REQUESTS)
    def test_a_sample_request_is_accepted_byte_for_byte(self, served: Served, name: str) -> None:
        content = (SAMPLES / f"{name}.json").read_bytes()
        assert json.loads(content).keys() == REQUESTS[name].body.keys()
        is_accepted(Place(served, f"sample-{name}"), REQUESTS[name], content)

    @pytest.mark.parametrize("name", ANSWERS)
    def test_an_answer_covers_the_sample(self, served: Served, name: str) -> None:
        theirs = json.loads((SAMPLES / f"{name}.json").read_bytes())
        is_answered(Place(served, f"sample-{name}"), ANSWERS[name], theirs)
