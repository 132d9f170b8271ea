"""For every write there is: how to call it so that it succeeds. A new operation needs a new case."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from holdfast import Op, Task, Workspace
from holdfast.types.agents import Message, PathLock
from holdfast.types.stashes import Link, QueueItem, Stash, Trail
from tests.worlds.kinds import World


class Case(NamedTuple):
    """How to call a write so that it succeeds: what must be there first, and the call."""

    call: Callable[[Workspace, Any], Any]
    prepare: Callable[[World, Workspace], Any] = lambda world, ws: ws.cells.set("run", "cell", 1)


def _written(_: World, ws: Workspace) -> int:
    ws.cells.set("undo", "cell", 1)  # which no other case changes
    return ws.cells.get("undo", "cell").revision


def _lease(_: World, ws: Workspace) -> str:
    return ws.leases.create(60).id


def _clock_ahead(world: World, ws: Workspace) -> None:
    ws.cells.set("run", "cell", 1)
    world.clock.jump(-3600)


def _task(_: World, ws: Workspace) -> Task:
    return ws.tasks.create("a task", tags=["old"])


def _two(world: World, ws: Workspace) -> tuple[str, str]:
    return _task(world, ws).id, _task(world, ws).id


def _claimed(world: World, ws: Workspace) -> Task:
    return ws.tasks.claim(_task(world, ws).id)


def _blocked(world: World, ws: Workspace) -> Task:
    return ws.tasks.block(_claimed(world, ws).id)


def _pending(world: World, ws: Workspace) -> Task:
    return ws.tasks.complete(_claimed(world, ws).id, review=True)


def _dependent(world: World, ws: Workspace) -> tuple[str, str]:
    first, second = _two(world, ws)
    ws.tasks.depend(first, second)
    return first, second


def _closed(world: World, ws: Workspace) -> Task:
    return ws.tasks.cancel(_task(world, ws).id)


def _deleted(world: World, ws: Workspace) -> Task:
    task = _task(world, ws)
    ws.tasks.delete(task.id)
    return task


def _template(_: World, ws: Workspace) -> None:
    ws.tasks.set_template("release", {"title": "Release {what}"}, {"what": "it"})


TASKS: dict[str, Case] = {
    "tasks.create": Case(lambda ws, _: ws.tasks.create("another")),
    "tasks.claim": Case(lambda ws, task: ws.tasks.claim(task.id), _task),
    "tasks.claim_next": Case(lambda ws, _: ws.tasks.claim_next(), _task),
    "tasks.reclaim": Case(lambda ws, task: ws.tasks.reclaim(task.id), _claimed),
    "tasks.heartbeat": Case(lambda ws, task: ws.tasks.heartbeat(task.id), _claimed),
    "tasks.park": Case(lambda ws, task: ws.tasks.park(task.id), _claimed),
    "tasks.release": Case(lambda ws, task: ws.tasks.release(task.id), _claimed),
    "tasks.complete": Case(lambda ws, task: ws.tasks.complete(task.id), _claimed),
    "tasks.block": Case(lambda ws, task: ws.tasks.block(task.id), _claimed),
    "tasks.unblock": Case(lambda ws, task: ws.tasks.unblock(task.id), _blocked),
    "tasks.close": Case(lambda ws, task: ws.tasks.close(task.id), _blocked),
    "tasks.approve": Case(lambda ws, task: ws.tasks.approve(task.id), _pending),
    "tasks.reject": Case(lambda ws, task: ws.tasks.reject(task.id), _pending),
    "tasks.cancel": Case(lambda ws, task: ws.tasks.cancel(task.id), _task),
    "tasks.reopen": Case(lambda ws, task: ws.tasks.reopen(task.id), _closed),
    "tasks.set_status": Case(lambda ws, task: ws.tasks.set_status(task.id, "in_progress"), _task),
    "tasks.release_stale_claims": Case(lambda ws, _: ws.tasks.release_stale_claims(0), _claimed),
    "tasks.update": Case(lambda ws, task: ws.tasks.update(task.id, title="new"), _task),
    "tasks.note": Case(lambda ws, task: ws.tasks.note(task.id, "a note"), _task),
    "tasks.add_tags": Case(lambda ws, task: ws.tasks.add_tags(task.id, ["new"]), _task),
    "tasks.assign": Case(lambda ws, task: ws.tasks.assign(task.id, "bob"), _task),
    "tasks.unassign": Case(lambda ws, task: ws.tasks.unassign(task.id), _task),
    "tasks.defer": Case(lambda ws, task: ws.tasks.defer(task.id, datetime(2100, 1, 1, tzinfo=UTC)), _task),
    "tasks.add_ref": Case(lambda ws, task: ws.tasks.add_ref(task.id, "a-branch"), _task),
    "tasks.remove_ref": Case(lambda ws, task: ws.tasks.remove_ref(task.id, "a-branch"), _task),
    "tasks.remove_tags": Case(lambda ws, task: ws.tasks.remove_tags(task.id, ["old"]), _task),
    "tasks.set_tags": Case(lambda ws, task: ws.tasks.set_tags(task.id, []), _task),
    "tasks.reparent": Case(lambda ws, ids: ws.tasks.reparent(*ids), _two),
    "tasks.depend": Case(lambda ws, ids: ws.tasks.depend(*ids), _two),
    "tasks.undepend": Case(lambda ws, ids: ws.tasks.undepend(*ids), _dependent),
    "tasks.delete": Case(lambda ws, task: ws.tasks.delete(task.id), _task),
    "tasks.restore": Case(lambda ws, task: ws.tasks.restore(task.id), _deleted),
    "tasks.purge": Case(lambda ws, task: ws.tasks.purge(task.id), _task),
    "tasks.sweep_retention": Case(lambda ws, _: ws.tasks.sweep_retention(), _task),
    "tasks.bulk": Case(lambda ws, task: ws.tasks.bulk("cancel", [task.id]), _task),
    "tasks.import_": Case(lambda ws, _: ws.tasks.import_([])),
    "tasks.set_sharing": Case(lambda ws, _: ws.tasks.set_sharing(True)),
    "tasks.merge_shared": Case(lambda ws, _: ws.tasks.merge_shared(), _task),
    "tasks.set_template": Case(lambda ws, _: ws.tasks.set_template("new", {"title": "new"})),
    "tasks.delete_template": Case(lambda ws, _: ws.tasks.delete_template("release"), _template),
    "tasks.from_template": Case(lambda ws, _: ws.tasks.from_template("release"), _template),
    "routes.reload": Case(lambda ws, _: ws.routes.reload()),
}


def _message(_: World, ws: Workspace) -> Message:
    return ws.mail.send(ws.actor, "to oneself")


def _acknowledged(world: World, ws: Workspace) -> Message:
    return ws.mail.ack(_message(world, ws).id)


def _path(_: World, ws: Workspace) -> PathLock:
    return ws.paths.lock("src/**", ttl=60)


MAIL: dict[str, Case] = {
    "agents.register": Case(lambda ws, _: ws.agents.register(program="program")),
    "agents.forget": Case(lambda ws, _: ws.agents.forget("gone"), lambda _, ws: ws.agents.register("gone")),
    "mail.send": Case(lambda ws, _: ws.mail.send("other", "subject", "body")),
    "mail.reply": Case(lambda ws, message: ws.mail.reply(message.id, "body"), _message),
    "mail.ack": Case(lambda ws, message: ws.mail.ack(message.id), _message),
    "mail.action": Case(lambda ws, message: ws.mail.action(message.id), _message),
    "mail.block": Case(lambda ws, message: ws.mail.block(message.id, "a reason"), _acknowledged),
    "mail.close": Case(lambda ws, message: ws.mail.close(message.id), _message),
    "paths.lock": Case(lambda ws, _: ws.paths.lock("src/**", ttl=5)),
    "paths.release": Case(lambda ws, lock: ws.paths.release(lock.id), _path),
    "paths.refresh": Case(lambda ws, lock: ws.paths.refresh(lock.id, ttl=5), _path),
}


def _counter(_: World, ws: Workspace) -> Stash:
    return ws.stashes.create("counter", "counter", {"value": 7})


def _lock_stash(_: World, ws: Workspace) -> Stash:
    return ws.stashes.create("free", "lock")


def _held_stash(_: World, ws: Workspace) -> Stash:
    lock = ws.stashes.create("held", "lock")
    ws.stashes.acquire(lock.id)
    return lock


def _queue(_: World, ws: Workspace) -> str:
    queue = ws.stashes.create("jobs", "queue", {"max_deliveries": 1}).id
    ws.queues.put(queue, 1)
    return queue


def _taken(_: World, ws: Workspace) -> QueueItem:
    queue = ws.stashes.create("taken", "queue").id
    ws.queues.put(queue, 1)
    item = ws.queues.take(queue, ttl=86400)
    assert item is not None
    return item


def _dead(_: World, ws: Workspace) -> str:
    queue = ws.stashes.create("dead", "queue", {"max_deliveries": 1}).id
    ws.queues.put_all(queue, [1, 2])
    for _number in range(2):
        item = ws.queues.take(queue)
        assert item is not None
        assert item.token is not None
        ws.queues.nack(queue, item.token)
    return queue


def _channel(_: World, ws: Workspace) -> str:
    channel = ws.stashes.create("news", "channel").id
    ws.channels.publish(channel, 1)
    ws.channels.subscribe(channel, after=0)
    return channel


def _unread(_: World, ws: Workspace) -> str:
    channel = ws.stashes.create("unread", "channel").id
    ws.channels.publish(channel, 1)
    return channel


def _trail(_: World, ws: Workspace) -> Trail:
    return ws.trails.create("a trail")


def _active(_: World, ws: Workspace) -> Trail:
    return ws.trails.create("an active trail", "active")


def _abandoned(world: World, ws: Workspace) -> Trail:
    return ws.trails.abandon(_active(world, ws).id)


def _trail_and_task(world: World, ws: Workspace) -> tuple[str, str]:
    return _trail(world, ws).id, _task(world, ws).id


def _member(world: World, ws: Workspace) -> tuple[str, str]:
    trail, task = _trail_and_task(world, ws)
    ws.trails.add(trail, task)
    return trail, task


def _link(world: World, ws: Workspace) -> Link:
    return ws.links.create("related", *_two(world, ws))


STASHES: dict[str, Case] = {
    "stashes.create": Case(lambda ws, _: ws.stashes.create("new", "context", {"a": 1})),
    "stashes.set_value": Case(lambda ws, stash: ws.stashes.set_value(stash.id, {"value": 8}), _counter),
    "stashes.save": Case(lambda ws, stash: ws.stashes.save(stash.id, 1, 3, "set", {"value": 9}), _counter),
    "stashes.import_": Case(lambda ws, _: ws.stashes.import_({})),
    "stashes.increment": Case(lambda ws, stash: ws.stashes.increment(stash.id), _counter),
    "stashes.acquire": Case(lambda ws, stash: ws.stashes.acquire(stash.id, ttl=5), _lock_stash),
    "stashes.release": Case(lambda ws, stash: ws.stashes.release(stash.id), _held_stash),
    "stashes.refresh": Case(lambda ws, stash: ws.stashes.refresh(stash.id, ttl=5), _held_stash),
    "stashes.restore": Case(lambda ws, stash: ws.stashes.restore(stash.id, 1), _counter),
    "stashes.delete": Case(lambda ws, stash: ws.stashes.delete(stash.id), _counter),
    "queues.put": Case(lambda ws, queue: ws.queues.put(queue, 2), _queue),
    "queues.put_all": Case(lambda ws, queue: ws.queues.put_all(queue, [2, 3]), _queue),
    "queues.take": Case(lambda ws, queue: ws.queues.take(queue, ttl=5), _queue),
    "queues.refresh": Case(lambda ws, item: ws.queues.refresh(item.queue, item.token, ttl=5), _taken),
    "queues.ack": Case(lambda ws, item: ws.queues.ack(item.queue, item.token), _taken),
    "queues.nack": Case(lambda ws, item: ws.queues.nack(item.queue, item.token), _taken),
    "queues.pop": Case(lambda ws, queue: ws.queues.pop(queue), _queue),
    "queues.retry": Case(lambda ws, queue: ws.queues.retry(queue, 1), _dead),
    "queues.discard": Case(lambda ws, queue: ws.queues.discard(queue, 2), _dead),
    "channels.publish": Case(lambda ws, channel: ws.channels.publish(channel, 2), _channel),
    "channels.subscribe": Case(lambda ws, channel: ws.channels.subscribe(channel, after=0), _unread),
    "channels.ack": Case(lambda ws, channel: ws.channels.ack(channel, 1), _channel),
    "channels.unsubscribe": Case(lambda ws, channel: ws.channels.unsubscribe(channel), _channel),
    "trails.create": Case(lambda ws, _: ws.trails.create("new")),
    "trails.set_state": Case(lambda ws, trail: ws.trails.set_state(trail.id, "pending"), _trail),
    "trails.add": Case(lambda ws, ids: ws.trails.add(*ids), _trail_and_task),
    "trails.remove": Case(lambda ws, ids: ws.trails.remove(*ids), _member),
    "trails.complete": Case(lambda ws, trail: ws.trails.complete(trail.id), _active),
    "trails.abandon": Case(lambda ws, trail: ws.trails.abandon(trail.id), _trail),
    "trails.restore": Case(lambda ws, trail: ws.trails.restore(trail.id), _abandoned),
    "trails.delete": Case(lambda ws, trail: ws.trails.delete(trail.id), _trail),
    "links.create": Case(lambda ws, ids: ws.links.create("related", *ids), _two),
    "links.delete": Case(lambda ws, link: ws.links.delete(link.id), _link),
}


def _cycle(_: World, ws: Workspace) -> str:
    return ws.cycles.start(spec="steps").cycle_id


def _planning(world: World, ws: Workspace) -> str:
    return ws.cycles.start_phase(_cycle(world, ws), "plan").cycle_id


def _failed(world: World, ws: Workspace) -> str:
    return ws.cycles.fail_phase(_planning(world, ws), "plan", "a reason").cycle_id


def _changed_elsewhere(world: World, ws: Workspace) -> dict[str, Any]:
    document = ws.cycles.export(_planning(world, ws))
    return {**document, "context": {**document["context"], "changed": True}}


CYCLES: dict[str, Case] = {
    "cycles.start": Case(lambda ws, _: ws.cycles.start(spec="new")),
    "cycles.start_phase": Case(lambda ws, key: ws.cycles.start_phase(key, "plan"), _cycle),
    "cycles.complete_phase": Case(lambda ws, key: ws.cycles.complete_phase(key, "plan", {"a": 1}), _planning),
    "cycles.fail_phase": Case(lambda ws, key: ws.cycles.fail_phase(key, "plan", "why"), _planning),
    "cycles.update_phase": Case(lambda ws, key: ws.cycles.update_phase(key, "plan", {"a": 1}), _planning),
    "cycles.add_error": Case(lambda ws, key: ws.cycles.add_error(key, "plan", "why"), _planning),
    "cycles.finish": Case(lambda ws, key: ws.cycles.finish(key, "why"), _planning),
    "cycles.delete": Case(lambda ws, key: ws.cycles.delete(key), _failed),
    "cycles.recover": Case(lambda ws, key: ws.cycles.recover(key), _cycle),
    "cycles.import_": Case(lambda ws, _: ws.cycles.import_({})),
    "cycles.adopt": Case(lambda ws, document: ws.cycles.adopt(document, 2), _changed_elsewhere),
    "cycles.sent": Case(lambda ws, key: ws.cycles.sent(key, "skip", 1, "a bucket"), _cycle),
}


def _thread(_: World, ws: Workspace) -> str:
    for number in ("01", "02"):
        ws.threads.put("chat", number, {"a": 1}, {"log": number}, {"log": ["hi"]}, run=f"run-{number}")
    return "chat"


def _item(_: World, ws: Workspace) -> tuple[str, str]:
    ws.items.put("users/ada", "theme", {"color": "dark"}, ttl=3600)
    return "users/ada", "theme"


THREADS: dict[str, Case] = {
    "threads.put": Case(lambda ws, id: ws.threads.put(id, "03", None, parent="02"), _thread),
    "threads.put_writes": Case(lambda ws, id: ws.threads.put_writes(id, "02", "task", [["log", "hi"]]), _thread),
    "threads.hold": Case(lambda ws, _: ws.threads.hold("free", ttl=5)),
    "threads.delete": Case(lambda ws, id: ws.threads.delete(id), _thread),
    "threads.delete_runs": Case(lambda ws, _: ws.threads.delete_runs(["run-01"]), _thread),
    "threads.copy": Case(lambda ws, id: ws.threads.copy(id, "another"), _thread),
    "threads.prune": Case(lambda ws, id: ws.threads.prune(id), _thread),
    "items.put": Case(lambda ws, at: ws.items.put(at[0], at[1], {"color": "light"}), _item),
    "items.refresh": Case(lambda ws, at: ws.items.refresh([list(at)]), _item),
    "items.delete": Case(lambda ws, at: ws.items.delete(*at), _item),
}

CASES: dict[str, Case] = {
    "cells.set": Case(lambda ws, _: ws.cells.set("run", "cell", 2)),
    "cells.delete": Case(lambda ws, _: ws.cells.delete("run", "cell")),
    "cells.cas": Case(lambda ws, _: ws.cells.cas("run", "cell", 1, 2)),
    "cells.init": Case(lambda ws, _: ws.cells.init("run", "new", 2)),
    "cells.get_or_init": Case(lambda ws, _: ws.cells.get_or_init("run", "new", 2)),
    "cells.transition": Case(lambda ws, _: ws.cells.transition("run", "cell", lambda value: value + 1)),
    "cells.transition_or_init": Case(lambda ws, _: ws.cells.transition_or_init("run", "new", 1, lambda v: v + 1)),
    "cells.increment": Case(lambda ws, _: ws.cells.increment("run", "cell")),
    "cells.compare_and_delete": Case(lambda ws, _: ws.cells.compare_and_delete("run", "cell", 1)),
    "cells.restore": Case(lambda ws, _: ws.cells.restore("run", "cell", 1)),
    "cells.delete_run": Case(lambda ws, _: ws.cells.delete_run("run")),
    "cells.refresh_ttl": Case(lambda ws, _: ws.cells.refresh_ttl("run", "cell", 5)),
    "cells.acquire_lock": Case(lambda ws, _: ws.cells.acquire_lock("run", "cell")),
    "cells.release_lock": Case(
        lambda ws, _: ws.cells.release_lock("run", "cell"), lambda _, ws: ws.cells.acquire_lock("run", "cell")
    ),
    "cells.refresh_lock": Case(
        lambda ws, _: ws.cells.refresh_lock("run", "cell", ttl=5), lambda _, ws: ws.cells.acquire_lock("run", "cell")
    ),
    "leases.create": Case(lambda ws, _: ws.leases.create(30)),
    "leases.refresh": Case(lambda ws, lease: ws.leases.refresh(lease), _lease),
    "leases.revoke": Case(lambda ws, lease: ws.leases.revoke(lease), _lease),
    "locks.acquire": Case(lambda ws, _: ws.locks.acquire("door", ttl=5)),
    "locks.release": Case(lambda ws, _: ws.locks.release("door"), lambda _, ws: ws.locks.acquire("door")),
    "locks.refresh": Case(lambda ws, _: ws.locks.refresh("door", ttl=5), lambda _, ws: ws.locks.acquire("door")),
    "events.compact": Case(lambda ws, _: ws.events.compact(ws.using().revision)),
    "clock.reset": Case(lambda ws, _: ws.clock.reset(), _clock_ahead),
    **TASKS,
    **MAIL,
    **STASHES,
    **CYCLES,
    **THREADS,
    "undo": Case(lambda ws, revision: ws.undo(revision), _written),
    "txn": Case(lambda ws, _: ws.txn([], [Op("cells.set", {"run": "run", "cell": "cell", "value": 2})])),
}
