"""What somebody calls who has seen nothing but the list of tools: every call that its schemas allow is accepted.

The calls were written from that list, without a look at the documents or the source. A caller gets at most one refusal
in twenty that the list does not explain; here there is none.
"""

from __future__ import annotations

import holdfast
from tests.mcp.clients import Agent, inside, played

VALUES = [1, 0, -5, 1.5, "text", "", True, False, None, [], {}, {"a": [1, {"b": None}]}, "☃", 2**53, [None], {"": ""}]
KINDS = ["task", "cell", "lock", "path", "message", "agent", "tasks", "locks", "paths", "mail", "claim"]
STATES = ["ready", "open", "in_progress", "pending_merge", "blocked", "closed", "any"]


@played
async def test_i22_what_the_schemas_of_tools_allow_is_not_refused(ws: holdfast.Workspace) -> None:
    async with inside(ws) as ann, inside(ws.using(actor="bob")) as bob:
        await tasks(ann, bob)
        await cells_and_locks(ann, bob)
        await paths(ann, bob)
        await mail(ann, bob)
        await watches(ann, bob)


async def tasks(ann: Agent, bob: Agent) -> None:
    epic = (await ann.call("task_create", title="Checkout", type="epic", priority=1, tags=["shop", "2025/q3"]))["id"]
    api = (await ann.call("task_create", title="Cart API", parent_id=epic, body="The **API**.\n\n- [ ] get"))["id"]
    page = (await ann.call("task_create", title="Cart page", parent_id=epic, depends_on=[api], type="feature"))["id"]
    bug = (await bob.call("task_create", title="Crash on an empty cart", type="bug", priority=0))["id"]
    odd = (await bob.call("task_create", title='Ünïcode ☃ <tags> & "quotes"', body="", tags=[], priority=4))["id"]
    await ann.call("task_create", title="long", body="x" * 20_000, type="chore", depends_on=[api, page])
    for status in STATES:
        await ann.call("task_list", status=status)
        await bob.call("task_list", status=status, limit=5, mine=status == "in_progress")
    for narrowed in (
        {"tag": "shop"},
        {"text": 'crash "empty"', "limit": 1},
        {"parent_id": epic},
        {"text": "C++ (or?)"},
    ):
        await ann.call("task_list", **narrowed)
        await ann.call("task_list", **narrowed, status="any")
    first = await ann.call("task_list", status="any", limit=2)
    while first.get("cursor"):
        first = await ann.call("task_list", status="any", limit=2, cursor=first["cursor"])
    for id in (epic, api, page, bug):
        await bob.call("task_show", id=id, whole=id == bug)
    assert (await ann.call("task_claim"))["task"]["id"] == bug
    await ann.call("task_claim", id=bug, ttl=300)
    await bob.call("task_claim", tags=["nonexistent"], can=["python"], ttl=60.5)
    held = (await bob.call("task_claim", id=api, can=["go"]))["task"]
    await bob.call("task_update", id=api, expected=held["version"], priority=2, title="Cart API v2", body="new")
    await bob.call("task_update", id=api, add_tags=["urgent"], remove_tags=["late"], note="half way")
    await bob.call("task_update", id=api)
    await ann.call("task_update", id=page, add_depends_on=[odd], note="it waits")
    await ann.call("task_update", id=page, remove_depends_on=[odd])
    for step in ("cancel", "reopen", "close", "reopen"):
        await ann.call("task_update", id=odd, step=step, note="why")
    await bob.call("task_finish", id=api, action="done", text="done", review=True)
    await ann.call("task_update", id=api, step="reject", note="no tests")
    await ann.call("task_update", id=api, step="unblock")
    await bob.call("task_claim", id=api)
    await bob.call("task_finish", id=api, review=True)
    await ann.call("task_update", id=api, step="approve")
    await ann.call("task_finish", id=bug, action="release", text="no time")
    await bob.call("task_claim", id=bug)
    await bob.call("task_finish", id=bug, action="block", text="waits for design")
    await ann.call("task_update", id=bug, step="close", note="not needed")
    await ann.call("task_claim", id=page)
    await ann.call("task_finish", id=page, text="drawn", review=False)


async def cells_and_locks(ann: Agent, bob: Agent) -> None:
    for number, value in enumerate(VALUES):
        await (ann, bob)[number % 2].call("cell_set", run="run-1", cell=f"c{number % 5}", value=value)
    await ann.call("cell_set", run="run-1", cell="count", value=0, expected=0)
    found = await bob.call("cell_get", run="run-1", cell="count", whole=True)
    await bob.call("cell_set", run="run-1", cell="count", value=1, expected=found["version"])
    await ann.call("cell_set", run="run with spaces/and slash", cell="name with spaces", value={"$$ref": "#/x"}, ttl=5)
    for run in ("run-1", "run with spaces/and slash", "none-such"):
        await ann.call("cell_get", run=run)
    assert (await ann.call("cell_get", run="none-such", cell="x"))["version"] == 0
    for name in ("deploy", "db/migrations: prod"):
        for given in ({}, {"action": "check"}, {"action": "renew", "ttl": 60}, {"action": "acquire", "wait": 1}):
            await ann.call("lock", name=name, **given)
        await bob.call("lock", name=name, action="check")
        await ann.call("cell_set", run="run-1", cell="guarded", value=1, lock=name)
        for _ in range(2):
            await ann.call("lock", name=name, action="release")
        await bob.call("lock", name=name, wait=2, ttl=5.5)


async def paths(ann: Agent, bob: Agent) -> None:
    task = (await ann.call("task_create", title="Paths"))["id"]
    await ann.call("task_claim", id=task)
    await ann.call("paths", action="lock", paths=["src/cart/**"], task=task, reason="the cart")
    await ann.call("paths", action="check", paths=["src/cart/a.py"])
    await bob.call("paths", action="check", paths=["src/other.py", "README.md"])
    for given in (["docs/*.md", "README.md"], ["./web/app.js"], ["tests/test_[ab].py", "{x,y}/z.py"]):
        await bob.call("paths", action="lock", paths=given, ttl=60)
    for agent in (ann, bob):
        await agent.call("paths", action="lock", paths=["shared/"], shared=True, wait=1)
    await bob.call("paths", action="release", paths=["web/app.js"])
    await bob.call("paths", action="release")
    await ann.call("paths", action="release", task=task)
    await ann.call("paths", action="release", paths=["nobody/has/it"])


async def mail(ann: Agent, bob: Agent) -> None:
    first = await ann.call("mail_send", to=["bob"], body="hi\nthere")
    await ann.call("mail_send", to=["*"], body="to all", subject="News", type="notify")
    ask = await ann.call("mail_send", to=["bob", "carl"], body="decide", type="decision-required", ack=True)
    await bob.call("mail_inbox", limit=1)
    await bob.call("mail_inbox", ack=[first["id"]], all=True)
    reply = await bob.call("mail_send", reply_to=ask["id"], body="yes")
    await ann.call("mail_inbox", thread=ask["id"])
    await ann.call("mail_send", reply_to=reply["id"], to=["bob"], body="thanks", subject="Re", type="handoff-ready")
    await ann.call("mail_send", to=["ann"], body="a note to myself", subject="")
    page = await bob.call("mail_inbox", limit=1, all=True)
    while page.get("cursor"):
        page = await bob.call("mail_inbox", limit=1, all=True, cursor=page["cursor"])


async def watches(ann: Agent, bob: Agent) -> None:
    now = await ann.call("watch", timeout=0)
    await bob.call("task_create", title="an event")
    assert (await ann.call("watch", since_revision=now["since_revision"], timeout=1))["events"]
    for kind in KINDS:
        await ann.call("watch", kinds=[kind], timeout=0, since_revision="1")
    await ann.call("watch", kinds=["cell"], id="count", run="run-1", since_revision="0", timeout=0)
    await ann.call("watch", id="deploy", timeout=0, since_revision="1")
