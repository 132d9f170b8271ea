"""Bugs in tasks: claims that two agents win, counters that drift, zombies that get through."""

from __future__ import annotations

from tests.teeth.bug import Bug

CLAIMS = ("tests/conformance/test_claims.py", "tests/conformance/test_claim_races.py", "--kinds", "memory")
STATUS = ("tests/conformance/test_task_status.py", "--kinds", "memory")
RECORDS = ("tests/conformance/test_tasks.py", "tests/conformance/test_task_tree.py", "--kinds", "memory")
LISTS = ("tests/conformance/test_task_lists.py", "--kinds", "memory")
MACHINE = ("tests/conformance/test_task_machine.py",)
TAGS = ("tests/unit/test_ready_tags.py",)
AHEAD = ("tests/unit/test_read_ahead.py",)
NODES = ("tests/conformance/test_tasks.py", "--kinds", "replicated-2,replicated-3")

IMPORTS = ("tests/unit/test_task_import.py",)
SLICES = ("tests/unit/test_slices.py",)
LEAPS = ("tests/conformance/test_leaps.py", "--kinds", "memory")
UNDO = ("tests/conformance/test_undo.py", "--kinds", "memory")
PARENTS = ("tests/conformance/test_parents.py", "--kinds", "memory")

BUGS = [
    Bug(
        "an agent that lost its claim passes where another one did the same",
        "domains/tasks/claims.py",
        "    if task.status == status:\n        who",
        "    if task.status == status:\n        return to_task(task)\n        who",
        STATUS,
    ),
    Bug(
        "a token of a claim that ended leads to a status",
        "domains/tasks/claims.py",
        '    if token is not None and (task.holder is None or status == "in_progress"):\n',
        "    if False and token is not None:\n",
        STATUS,
    ),
    Bug(
        "the last undo does again what the one before took back",
        "domains/undo.py",
        "        if not _is_undo(tx, found) and _undone_by(",
        "        if _undone_by(",
        UNDO,
    ),
    Bug(
        "what was changed since is taken back all the same",
        "domains/undo.py",
        "        if not (_leaves_all(tx, event, revision) or",
        "        if False and (_leaves_all(tx, event, revision) or",
        UNDO,
    ),
    Bug(
        "the text of a task is not compared with the log",
        "domains/tasks/check.py",
        "        if found[field] != value:\n",
        "        if field != 'body' and found[field] != value:\n",
        ("tests/unit/test_task_check.py",),
    ),
    Bug(
        "nobody is warned that a claim has expired",
        "domains/tasks/claims.py",
        '    if op == "expire":\n        tx.notify',
        '    if op == "never":\n        tx.notify',
        ("tests/unit/test_task_edges.py",),
    ),
    Bug(
        "a claim that is written out lets a parent go on",
        "domains/tasks/rows.py",
        """    if task.parent is not None and not settings_of(tx).strict:
        adjust(tx, task.parent, busy=1)
    tx.emit_of""",
        """    tx.emit_of""",
        ("tests/unit/test_start_claim.py",),
    ),
    Bug(
        "a misspelt condition makes a matcher catch all",
        "domains/routing/files.py",
        """        if key not in _RULE_FIELDS and (value is inside.get(key)""",
        """        if key not in _RULE_FIELDS and False and (value is inside.get(key)""",
        ("tests/unit/routing/test_reading.py",),
    ),
    Bug(
        "a slice of an import comes before what it names",
        "interchange/slices.py",
        "for name in line.names if (found := leader(name)) in members)",
        "for name in line.names if (found := leader(name)) not in members)",
        SLICES,
    ),
    Bug(
        "an import in slices writes before it has rehearsed the last",
        "interchange/slices.py",
        "    for each in file.slices:\n        part =",
        "    for each in file.slices[:1]:\n        part =",
        SLICES,
    ),
    Bug(
        "tasks that were read ahead are claimed as they were then",
        "kernel/tx.py",
        "kept if changes == self._connection.total_changes() else None",
        "kept",
        AHEAD,
    ),
    Bug(
        "a claim that is taken back leaves its task out of those read ahead",
        "kernel/batch.py",
        """                    self._ahead.clear()
""",
        "",
        AHEAD,
    ),
    Bug(
        "a parent that was read ahead is claimed together with its child",
        "domains/tasks/readiness.py",
        """    if best.parent is None or settings.strict:  #""",
        """    if True:  #""",
        AHEAD,
    ),
    Bug(
        "a claimed task can be claimed",
        "domains/tasks/claims.py",
        """    if task.holder is not None:
        raise already_claimed(task, agent)
    if task.status != "open":
""",
        """    if task.status not in ("open", "in_progress"):
""",
        CLAIMS,
    ),
    Bug(
        "any token will do",
        "domains/tasks/claims.py",
        "    if task.token != token:\n",
        "    if task.token is None:\n",
        CLAIMS,
    ),
    Bug(
        "a token proves who calls",
        "domains/tasks/claims.py",
        """        check_token(tx, task, token)
    if agent is None""",
        """        check_token(tx, task, token)
        return
    if agent is None""",
        CLAIMS,
    ),
    Bug(
        "a swept holder is only not the holder",
        "domains/tasks/claims.py",
        """                return event.op == "expire" or "forced" in event.data
""",
        """                return False
""",
        CLAIMS,
    ),
    Bug(
        "the holder's writes do not renew its claim",
        "domains/tasks/claims.py",
        """    if task.holder is not None and task.holder == tx.actor and""",
        """    if task.holder is None and task.holder == tx.actor and""",
        CLAIMS,
    ),
    Bug(
        "a claim's lease outlives it",
        "domains/tasks/claims.py",
        """    leases.drop(tx, task.record, TASK)
    return to_task""",
        """    return to_task""",
        CLAIMS,
    ),
    Bug(
        "expiry keeps the holder",
        "domains/tasks/claims.py",
        """    change(tx, task, op, {"status": "open", **NO_CLAIM})
""",
        """    change(tx, task, op, {"status": "open"})
""",
        CLAIMS,
    ),
    Bug(
        "closing does not free dependents",
        "domains/tasks/rows.py",
        """        return self.status == "closed" or self.deleted is not None
""",
        """        return self.deleted is not None
""",
        RECORDS,
    ),
    Bug(
        "a parent does not wait for its child under review",
        "domains/tasks/rows.py",
        """ACTIVE: Final = ("in_progress", "pending_merge")
""",
        """ACTIVE: Final = ("in_progress",)
""",
        MACHINE,
    ),
    Bug(
        "a claim by tag takes a task that is not ready",
        "domains/tasks/readiness.py",
        """    f" WHERE g.tag = ? AND {READY} ORDER""",
        """    f" WHERE g.tag = ? ORDER""",
        CLAIMS,
    ),
    Bug(
        "tidying up takes the tags of ready tasks",
        "domains/tasks/tags.py",
        """AND {} NOT EXISTS\"
""",
        """AND {} EXISTS\"
""",
        TAGS,
    ),
    Bug(
        "what claims leave among the ready tags stays there",
        "domains/tasks/rows.py",
        """        tx.leave(len(tags), tidy_tags)
""",
        """        pass
""",
        TAGS,
    ),
    Bug(
        "what cancelled tasks leave among the ready tags stays there",
        "domains/tasks/tags.py",
        """            tx.leave(len(new.tag_list), tidy_tags)
""",
        """            pass
""",
        TAGS,
    ),
    Bug(
        "a circle of dependencies is not noticed",
        "domains/tasks/tree.py",
        """        if path is not None:
""",
        """        if path is not None and len(path) == 2:
""",
        RECORDS,
    ),
    Bug(
        "descendants keep their depth when their root moves",
        "domains/tasks/tree.py",
        """    for seq, level in descendants[1:]:
""",
        """    for seq, level in descendants[1:1]:
""",
        RECORDS,
    ),
    Bug(
        "a reparented active task is counted twice",
        "domains/tasks/tree.py",
        """        rows.count_child(tx, task.parent, task, None)
""",
        """        pass
""",
        RECORDS,
    ),
    Bug(
        "a strict parent ends before its children",
        "domains/tasks/transitions.py",
        """    if not settings.strict or not task.busy:
""",
        """    if True:
""",
        PARENTS,
    ),
    Bug(
        "an assigned task is ready for everybody",
        "domains/tasks/tags.py",
        """READY: Final = f"{STARTABLE} AND t.assignee IS NULL"
""",
        """READY: Final = STARTABLE
""",
        PARENTS,
    ),
    Bug(
        "a deferral outlives its task",
        "domains/tasks/rows.py",
        """    leases.drop(tx, deferral(task), DEFER)
""",
        "",
        PARENTS,
    ),
    Bug(
        "blocked can be completed",
        "domains/tasks/transitions.py",
        """    Step("blocked", "close", "closed"),
""",
        """    Step("blocked", "close", "closed"),
    Step("closed", "unblock", "open"),
""",
        STATUS,
    ),
    Bug(
        "purging leaves what was said in the log",
        "domains/tasks/changes.py",
        """    redact(tx, rows.TASK, "", task.id)
""",
        "",
        RECORDS,
    ),
    Bug(
        "restore brings back what was deleted before",
        "domains/tasks/changes.py",
        """        if other.deleted is not None and other.deletion == task.deletion:
""",
        """        if other.deleted is not None:
""",
        RECORDS,
    ),
    Bug(
        "a page repeats its last task",
        "domains/tasks/readiness.py",
        """    way = "<" if backwards else ">"
""",
        """    way = "<=" if backwards else ">="
""",
        LISTS,
    ),
    Bug(
        "retention takes parents whose children live",
        "domains/tasks/changes.py",
        "c.parent = t.seq AND c.deleted IS NULL)",
        "c.parent = t.seq AND false)",
        LISTS,
    ),
    Bug(
        "an export leaves out the result",
        "interchange/task_export.py",
        '            results.append(event.data["result"][1])\n',
        "            pass\n",
        IMPORTS,
    ),
    Bug(
        "what others wrote is credited to whoever imports it",
        "interchange/task_merge.py",
        '{"author": (None, {"by": note.by, "at": at})} if note.foreign else None',
        "None",
        IMPORTS,
    ),
    Bug(
        "the retention of an imported task counts from its time elsewhere",
        "domains/tasks/changes.py",
        '    " AND coalesce(imported, 0) <= ?1"\n    " AND NOT',
        '    " AND NOT',
        IMPORTS,
    ),
    Bug(
        "a leap of the clock deletes closed tasks",
        "kernel/batch.py",
        "            if leaped and self._writes:\n",
        "            if leaped and not self._writes:\n",
        LEAPS,
    ),
    Bug(
        "time that no process has witnessed counts as passed",
        "clock.py",
        " - (self.clock.monotonic() - self._anchor[2]) > LEAP",
        " - (self.clock.monotonic() - self._anchor[2]) > 999 * LEAP",
        LEAPS,
    ),
    Bug(
        "retention runs although the workspace is ahead of the clock",
        "kernel/leases.py",
        "LEAP if now - wall > FAR_AHEAD else 0",
        "0",
        LEAPS,
    ),
    Bug(
        "a leap forgets keys",
        "kernel/idempotency.py",
        "max(expires, (SELECT calm FROM meta) + ?)",
        "max(expires, 0 * ?)",
        LEAPS,
    ),
    Bug(
        "retention purges without a backup",
        "domains/tasks/changes.py",
        "retire(tx, SLICE, tx.memo.get(leases.BACKED_UP, 0))",
        "retire(tx, SLICE)",
        LEAPS,
    ),
    Bug(
        "a backup older than the deletion is enough for a purge",
        "kernel/batch.py",
        "        if self._memo[BACKED_UP] <= newest:\n",
        "        if not self._memo[BACKED_UP]:\n",
        LEAPS,
    ),
    Bug(
        "a backup counts as newer than what was deleted while it was made",
        "kernel/maintenance.py",
        "                    at = row[0] % RESET\n",
        "                    at = row[0] % RESET + 8 * 86_400_000_000\n",
        LEAPS,
    ),
    Bug(
        "writers wait for the backup before a purge",
        "kernel/batch.py",
        "            self.unsecured = newest\n",
        "            maintenance.back_up_before_purge(self._writer.store, newest)\n",
        LEAPS,
    ),
    Bug(
        "retention tears families apart",
        "domains/tasks/changes.py",
        "remove(tx, rows.by_seq(tx, task.seq), top.seq)",
        "remove(tx, rows.by_seq(tx, task.seq), task.seq)",
        LEAPS,
    ),
    Bug(
        "a replica does not index what it applies",
        "replication/follower.py",
        """            for table, seq in indexed:
                tx.index_text(connection.execute, table, seq)
""",
        "",
        NODES,
    ),
    Bug(
        "a token means the task that has the id now",
        "domains/tasks/renames.py",
        "    return _one(tx, id, token=token) or task\n",
        "    return task\n",
        ("tests/conformance/test_sharing.py", "--kinds", "memory"),
    ),
    Bug(
        "what led to a purged task does not lead to the restored one elsewhere",
        "interchange/share_state.py",
        "    if sum(tx.run(_LEADS_TO, (id,)) for id in fresh):\n",
        "    if not fresh and sum(tx.run(_LEADS_TO, (id,)) for id in fresh):\n",
        ("tests/unit/test_share.py",),
    ),
]
