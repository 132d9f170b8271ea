"""Bugs in the kernel and the domains: what is broken, where, and which tests must notice."""

from __future__ import annotations

from tests.teeth.bug import Bug

BETWEEN_PROCESSES = ("tests/conformance", "--kinds", "processes")
CRASHES = ("tests/e2e/test_kill.py",)
FAULTS = ("tests/e2e/test_io_errors.py", "tests/e2e/test_disk_full.py")
WATCHES = ("tests/conformance/test_watch.py", "--kinds", "memory")
ROUTES = ("tests/unit/test_route_files.py",)
GROUP = ("tests/unit/test_group.py", "tests/conformance/test_transactions.py")
DAMAGED = ("tests/unit/test_damaged_stores.py", "tests/unit/test_backup.py")
DAMAGED_LOG = ("tests/e2e/test_damaged_log.py",)
REMOVED = ("tests/e2e/test_removed_files.py",)
MATRIX = ("tests/http/test_security_matrix.py",)
PAGES = ("tests/conformance/test_pages.py", "--kinds", "memory")
POWER = ("tests/power/test_power_loss.py", "-k", "one and caller")
LOG = ("tests/conformance/test_events.py", "--kinds", "memory")

MIXED = ("tests/mixed",)
FIRST_USE = ("tests/unit/test_first_use.py",)
RELAY = ("tests/cli/test_relay.py", "-k", "lost_answer")

BUGS = [
    Bug(
        "a write through a server has no key",
        "faces/cli/commands/server.py",
        "given, request.environ, key=request.key, streams",
        "given, request.environ, key=None, streams",
        RELAY,
    ),
    Bug(
        "a server begins a write that its caller no longer waits for",
        "workspace/context.py",
        "        if context.until is not None and monotonic() >= context.until:",
        "        if context.until is None and monotonic() < 0:",
        ("tests/cli/test_relay.py", "-k", "longer_waits"),
    ),
    Bug(
        "the token of another's lock passes its fence",
        "workspace/context.py",
        "    if tx.actor != holder and not",
        "    if not holder and not",
        ("tests/conformance/test_fencing.py", "--kinds", "memory"),
    ),
    Bug(
        "a command through a server that found nothing makes its agent known",
        "workspace/context.py",
        "        if key is not None and (tx.dirty or not passing):",
        "        if key is not None:",
        ("tests/cli/test_relay.py", "-k", "leaves_nothing"),
    ),
    Bug(
        "a server forgets a token before its answer arrives",
        "faces/cli/commands/server.py",
        "        self._pieces.append((private_socket.FORGET,",
        "        super().forget(*thing)\n        self._pieces.append((private_socket.FORGET,",
        RELAY,
    ),
    Bug(
        "threads load two domains at once",
        "route.py",
        "LOADING: Final = threading.RLock()",
        "LOADING: Final = threading.Semaphore(1000)",
        FIRST_USE,
    ),
    Bug(
        "callers of all faces are answered before the commit",
        "kernel/group.py",
        "            batch = self.run(calls)\n",
        "            batch = self.run(calls)\n            for call in calls[1:]:\n                call.answer()\n",
        MIXED,
    ),
    Bug(
        "a call repeated with its key happens twice",
        "workspace/context.py",
        "            if stored is not None:\n                return answers.decode(stored)\n",
        "            if stored is not None and False:\n                return answers.decode(stored)\n",
        MIXED,
    ),
    Bug(
        "ack before commit",
        "kernel/group.py",
        "            batch = self.run(calls)\n",
        "            batch = self.run(calls)\n            for call in calls[1:]:\n                call.answer()\n",
        CRASHES,
    ),
    Bug(
        "whole-transaction rollback ignored",
        "kernel/batch.py",
        "                if self.finished:\n                    return self._lost",
        "                if False:\n                    return self._lost",
        FAULTS,
    ),
    Bug(
        "a failed commit is not reported",
        "kernel/group.py",
        "            batch.rollback()\n            fail(calls, error)\n",
        "            batch.rollback()\n            del error\n",
        FAULTS,
    ),
    Bug(
        "a removed log is made anew under another process",
        "kernel/store_files.py",
        "            if not record.present or record.files == _text(found):\n",
        "            if True:\n",
        REMOVED,
    ),
    Bug(
        "who joins for an instant is taken for one on other files",
        "kernel/process_lock.py",
        """        time.sleep(_PASSING / 100)
        yield
""",
        """        return
""",
        ("tests/unit/test_presence.py",),
    ),
    Bug(
        "commits that a damaged log lost are not missed",
        "kernel/store.py",
        "        if mark is not None and not has_commit(connection, mark):\n",
        "        if False and mark is not None and not has_commit(connection, mark):\n",
        DAMAGED_LOG,
    ),
    Bug(
        "a note of commits that was removed is not missed",
        "kernel/store.py",
        "            self.files.check_mark()\n",
        "            pass\n",
        DAMAGED_LOG,
    ),
    Bug(
        "a store that comes without a note is refused",
        "kernel/store_files.py",
        'record.marked and record.files.partition(" ")[0] == _text(found[:1])',
        "record.marked",
        DAMAGED_LOG,
    ),
    Bug(
        "commits are noted in a file that was removed",
        "kernel/store_files.py",
        "            self._mark_moved = True\n",
        "            pass\n",
        DAMAGED_LOG,
    ),
    Bug(
        "a workspace is made over what is left of another",
        "kernel/store_files.py",
        "        if found[0] is None and (any(found) or (marks and has_store(self.folder))):\n",
        "        if found[0] is None and marks and not any(found) and has_store(self.folder):\n",
        REMOVED,
    ),
    Bug(
        "a workspace is made where one was removed after a clean end",
        "kernel/store_files.py",
        "        if found[0] is None and (any(found) or (marks and has_store(self.folder))):\n",
        "        if found[0] is None and any(found):\n",
        REMOVED,
    ),
    Bug(
        "a workspace further up is used in the place of one that was removed after a clean end",
        "faces/cli/location.py",
        "    return bool(left) and not",
        "    return False and not",
        ("tests/cli/test_place.py",),
    ),
    Bug(
        "a note of commits that is damaged is not missed",
        "kernel/store_files.py",
        "        return not notes or any(map(_read, notes))\n",
        "        return True\n",
        DAMAGED_LOG,
    ),
    Bug(
        "a commit is noted once",
        "kernel/store_files.py",
        ".ljust(_MARK_BYTES) * 2, 0)",
        ".ljust(_MARK_BYTES), 0)",
        DAMAGED_LOG,
    ),
    Bug(
        "a caller of a server does not see its warnings",
        "faces/cli/commands/server.py",
        "        errors.HEARS.set(session.hear)\n",
        "",
        ("tests/cli/test_relay.py", "-k", "warnings"),
    ),
    Bug(
        "what is damaged in a backup is called the store",
        "kernel/maintenance.py",
        "                with _reading(source):\n",
        "                with translated():\n",
        ("tests/unit/test_backup.py",),
    ),
    Bug(
        "a time is stored that no stamp has room for",
        "kernel/batch.py",
        "            time.check_storable(self.now)\n",
        "",
        ("tests/conformance/test_time.py", "--kinds", "memory"),
    ),
    Bug(
        "what lies between two damaged pages is not saved",
        "replication/snapshots.py",
        "        while gaps:\n",
        "        while gaps and False:\n",
        DAMAGED,
    ),
    Bug(
        "an error is wider than the terminal",
        "faces/cli/output.py",
        "    if width is None:\n        return text\n",
        "    if width != 0:\n        return text\n",
        ("tests/cli/test_output.py",),
    ),
    Bug(
        "the log of a restored workspace begins with its restore",
        "kernel/events.py",
        "    start = (compacted_to(snapshot), END_OF_REVISION) if",
        "    start = (marks(snapshot)[1], END_OF_REVISION) if",
        ("tests/unit/test_backup.py",),
    ),
    Bug(
        "a cursor of a time that a restore left out goes on",
        "kernel/events.py",
        "    if revision != compacted and not snapshot.one(",
        "    if False and not snapshot.one(",
        ("tests/unit/test_backup.py",),
    ),
    Bug(
        "a compaction that removes nothing voids cursors",
        "kernel/events.py",
        "    if not gone_now:\n        return 0",
        "    if before < 1:\n        return 0",
        LOG,
    ),
    Bug(
        "a workspace further up is used in the place of one that was removed in part",
        "faces/cli/location.py",
        "any(os.path.exists(os.path.join(folder, part)) for part in _PARTS)",
        "os.path.exists(os.path.join(folder, STORE))",
        ("tests/cli/test_place.py",),
    ),
    Bug(
        "each attempt at a stopped server has a deadline of its own",
        "remote/protocol.py",
        "            late = end is not None and monotonic() + pause >= end\n",
        "            late, end = False, None if end is None else monotonic() + timeout\n",
        ("tests/unit/test_sending.py",),
    ),
    Bug(
        "a command to a server has no key that settles it",
        "faces/cli/call.py",
        '            key = f"auto-{token_hex(8)}"\n',
        "            key = None and token_hex(8)\n",
        ("tests/cli/test_remote_cli.py", "-k", "settled"),
    ),
    Bug(
        "a write that was given up is called a failure",
        "remote/protocol.py",
        "    if request.safe or not error.sent:\n        hint",
        "    if True:\n        hint",
        ("tests/unit/test_sending.py",),
    ),
    Bug(
        "a commit is noted before it is on disk",
        "kernel/batch.py",
        '            self._connection.execute("COMMIT")\n',
        "            self._writer.store.acknowledge(self._workspace, self.revision, stamp)\n"
        '            self._connection.execute("COMMIT")\n',
        POWER,
    ),
    Bug(
        "a commit to a removed log is acknowledged",
        "kernel/batch.py",
        "            self._writer.store.check_committed()\n",
        "",
        REMOVED,
    ),
    Bug(
        "what a removed log held is not saved",
        "kernel/pulse.py",
        "                self._rescue()\n",
        "                pass\n",
        REMOVED,
    ),
    Bug(
        "pages have no checksums",
        "kernel/store.py",
        "                reserve_checksums(connection)\n",
        "                pass\n",
        DAMAGED,
    ),
    Bug(
        "what a damaged store breaks is not called damage",
        "kernel/translation.py",
        "        if not self._damage and not self._was_sound():\n",
        "        if False and not self._damage and not self._was_sound():\n",
        DAMAGED,
    ),
    Bug(
        "a damaged backup is restored",
        "kernel/maintenance.py",
        "            _verify(source)\n        with",
        "            pass\n        with",
        DAMAGED,
    ),
    Bug(
        "expiry by timer alone",
        "kernel/batch.py",
        "            if due is not None and due <= self.now and self._writes:\n",
        "            if due is not None and due + 1_000_000 <= self.now and self._writes:\n",
    ),
    Bug(
        "no fence check",
        "workspace/context.py",
        "        if context.fence is not None:\n            _check",
        "        if False and context.fence is not None:\n            _check",
    ),
    Bug("an older token passes the fence", "domains/locks.py", "or current != token:", "or current < token:"),
    Bug("a newer token passes the fence", "domains/locks.py", "or current != token:", "or current > token:"),
    Bug(
        "a slow watcher loses events",
        "kernel/wake.py",
        "                    watcher.buffer.clear()\n                    watcher.live = False\n",
        "                    watcher.buffer.popleft()\n                    watcher.buffer.append(row)\n",
    ),
    Bug(
        "a resumed watcher hears an event twice",
        "kernel/events.py",
        '    where.append("(revision, position) > (?, ?)")',
        '    where.append("(revision, position) >= (?, ?)")',
        WATCHES,  # alone: the state machine would read for ever
    ),
    Bug(
        "version reset by delete",
        "domains/cells.py",
        '        version = max(newest_version(tx, CELL, run, cell), newest_version(tx, RUN, "", run)) + 1\n',
        "        version = 1\n",
    ),
    Bug(
        "a deleted run forgets its highest version",
        "domains/cells.py",
        '        version = max(newest_version(tx, CELL, run, cell), newest_version(tx, RUN, "", run)) + 1\n',
        "        version = newest_version(tx, CELL, run, cell) + 1\n",
    ),
    Bug(
        "reads past the deadline",
        "domains/cell_history.py",
        "        if row is not None and row[4] is not None and snapshot.is_past(row[4], row[5]):\n",
        "        if False:\n",
    ),
    Bug(
        "a key is kept outside its transaction",
        "workspace/context.py",
        "        result = body(tx)\n",
        "        done = idempotency.__dict__.setdefault('done', {})\n"
        "        known = (tx.actor, operation, context.key, digest)\n"
        "        result = done[known] if context.key is not None and known in done else body(tx)\n"
        "        done[known] = result\n",
        ("tests/conformance/test_idempotency.py", *FAULTS),
    ),
    Bug(
        "a key answers for other arguments",
        "kernel/idempotency.py",
        "    if row[0] != wanted:\n",
        "    if False:\n",
    ),
    Bug(
        "statement after the watchdog's rollback",
        "kernel/tx.py",
        "        self._execute = self._change = _ended\n",
        "        self._time = self._time\n",
    ),
    Bug(
        "a failed body is not rolled back",
        "kernel/batch.py",
        '                    execute("ROLLBACK TO body")\n',
        "",
        GROUP,
    ),
    Bug(
        "a body that runs again keeps the error of its first run",
        "kernel/batch.py",
        "        for call in lost:\n            call.reset()\n",
        "",
        GROUP,
    ),
    Bug(
        "a body that fails after writing is taken for one that did not write",
        "kernel/batch.py",
        "                elif tx.dirty:\n",
        "                elif False:\n",
        GROUP,
    ),
    Bug(
        "rules loaded by a transaction that failed stay in force for its group",
        "domains/routing/config.py",
        "    tx.memo[_MEMO] = None  # for",
        "    tx.memo.pop(_MEMO, None)  # for",
        ROUTES,
    ),
    Bug(
        "two grants of one transaction share a token",
        "kernel/tx.py",
        "        return self.revision * GRANTS_PER_REVISION + self._grants - 1\n",
        "        return self.revision * GRANTS_PER_REVISION\n",
    ),
    Bug(
        "waiters are served last come first",
        "domains/locks.py",
        "ORDER BY w.place LIMIT 1",
        "ORDER BY w.place DESC LIMIT 1",
    ),
    Bug(
        "a sweep takes the revision of the first body",
        "kernel/batch.py",
        "            more = sweep(tx)\n            self.absorb(tx)\n",
        "            more = sweep(tx)\n            self.dirty |= tx.dirty\n",
    ),
    Bug(
        "compaction forgets the newest event of a record",
        "kernel/events.py",
        "newer.record = log.record AND newer.version > log.version",
        "newer.record = log.record AND newer.version >= log.version",
    ),
    Bug(
        "compaction forgets the notes of live tasks",
        "kernel/events.py",
        "{_has('log', 'note')} OR {_has('log', 'result')}",
        "{_has('log', 'result')}",
        LOG,
    ),
    Bug(
        "compaction forgets how the last claim of a task ended",
        "kernel/events.py",
        " OR {_ends_claim('log')}\"\n",
        ' OR false"\n',
        LOG,
    ),
    Bug(
        "the history of a field is silent about what was compacted",
        "domains/tasks/queries.py",
        "    if found.compacted and not found:\n",
        "    if found.compacted and found is None:\n",
        LOG,
    ),
    Bug(
        "a history over a compacted past ends without a sign",
        "kernel/events.py",
        "oldest[0] > 1 and oldest[1] <= compacted else None",
        "oldest[0] > 1 and oldest[1] < 0 else None",
        ("tests/conformance/test_compacted.py", "--kinds", "memory"),
    ),
    Bug(
        "resume does not say that events of the task are gone",
        "domains/tasks/resume.py",
        "        compacted=gap(snapshot, task.id),\n",
        "        compacted=None,\n",
        ("tests/conformance/test_compacted.py", "--kinds", "memory"),
    ),
    Bug(
        "time runs backwards with the wall clock",
        "clock.py",
        "        return max(self.clock.wall(), self.witness(stamp))\n",
        "        return self.clock.wall()\n",
    ),
    Bug(
        "commits of other processes wake nobody",
        "kernel/pulse.py",
        "        self._hub.advance()\n",
        "",
        BETWEEN_PROCESSES,
    ),
    Bug(
        "a restored store goes on with old revisions",
        "kernel/maintenance.py",
        "    leap = LEAST_LEAP + max(0, now - made[0])\n",
        "    leap = 0\n",
    ),
    Bug(
        "an operation that fails inside a transaction leaves a part of itself",
        "kernel/tx.py",
        '            self.one("ROLLBACK TO part")\n',
        "",
    ),
    Bug(
        "any token of a server may use force",
        "workspace/context.py",
        """    for name, wanted in {**_FORCE, **op.route.admin_only}.items():
""",
        """    for name, wanted in op.route.admin_only.items():
""",
        MATRIX,
    ),
    Bug(
        "a page has as many bytes as its records",
        "kernel/tx.py",
        "            if len(rows) == limit or (rows and left < 0):\n",
        "            if len(rows) == limit:\n",
        PAGES,
    ),
    Bug(
        "commits are not synced",
        "kernel/store.py",
        '"synchronous": 0 if not self._durable else 1 if self.replica else 2,',
        '"synchronous": 0 if not self._durable else 1,',
        POWER,
    ),
]
