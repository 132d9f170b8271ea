"""Bugs in replication: most of them are for the simulation to find."""

from __future__ import annotations

from tests.teeth.bug import Bug

SIMULATION = ("tests/simulation/test_simulation.py", "-k", "seeds_hold")
LOGS = ("tests/logs",)
PATIENCE = ("tests/logs/test_patience.py",)
JETSTREAM = ("tests/logs/test_jetstream.py", "tests/logs/test_jetstream_refusals.py")
MOVES = ("tests/logs/test_moves.py",)
FAILOVER = ("tests/unit/test_sending.py", "tests/e2e/test_nodes.py")
NODES = ("tests/conformance", "--kinds", "replicated-2,replicated-3")

BUGS = [
    Bug(
        "ack before append",
        "kernel/batch.py",
        """            if self._journal is not None and not self._append(self._journal):
                self._commit_nothing()
                return
            reach("batch.commit")
            self._committing = True
            self._connection.execute("COMMIT")
""",
        """            self._committing = True
            self._connection.execute("COMMIT")
            if self._journal is not None:
                try:
                    self._journal.append()
                except errors.Unreachable:
                    return
""",
        SIMULATION,
    ),
    Bug(
        "a conflict while applying is omitted",
        "replication/follower.py",
        """        conflicts.append(f"{_REASONS.get(reason, reason)} at {change.op} of {change.name}")
        return apsw.SQLITE_CHANGESET_ABORT
""",
        """        return apsw.SQLITE_CHANGESET_OMIT
""",
        LOGS,
    ),
    Bug(
        "a conflict while applying replaces",
        "replication/follower.py",
        """        conflicts.append(f"{_REASONS.get(reason, reason)} at {change.op} of {change.name}")
        return apsw.SQLITE_CHANGESET_ABORT
""",
        """        return apsw.SQLITE_CHANGESET_OMIT if reason == apsw.SQLITE_CHANGESET_NOTFOUND else (
            apsw.SQLITE_CHANGESET_REPLACE
        )
""",
        LOGS,
    ),
    Bug(
        "a lost answer is taken for a failure",
        "replication/log.py",
        "        except LostAnswer:\n            in_doubt = True\n",
        '        except LostAnswer as lost:\n            raise errors.Unreachable("no answer") from lost\n',
        SIMULATION,
    ),
    Bug(
        "a lost answer is taken for a success",
        "replication/log.py",
        "        except LostAnswer:\n            in_doubt = True\n",
        "        except LostAnswer:\n            return expected + 1\n",
        SIMULATION,
    ),
    Bug(
        "somebody else's entry is taken for our own",
        "replication/log.py",
        "                if from_bytes(raw, position).id == id:\n",
        "                if from_bytes(raw, position).id:\n",
        SIMULATION,
    ),
    Bug(
        "our own entry, repeated by the transport, is taken for somebody else's",
        "replication/log.py",
        "            refused = True  # by",
        "            raise  # by",
        SIMULATION,
    ),
    Bug(
        "a late tail is looked at once",
        "replication/log.py",
        "            self._timer.wait_until(min(now + pause, self._deadline), self._signal)\n",
        "            return\n",
        PATIENCE,
    ),
    Bug(
        "an outage is not waited for",
        "replication/log.py",
        "                if not self._outages or not (refusals or error.retryable):\n",
        "                if True:\n",
        PATIENCE,
    ),
    Bug(
        "one low end condemns a log",
        "replication/log.py",
        "        if end >= seen:\n            break\n",
        "        break\n",
        PATIENCE,
    ),
    Bug(
        "a cached entry without its blob is corrupt although there is a snapshot",
        "replication/follower.py",
        "                self._leap(patience)\n",
        "",
        PATIENCE,
    ),
    Bug(
        "a clock for each body",
        "kernel/batch.py",
        "            writer.ids,\n            self.now,\n",
        "            writer.ids,\n            writer.time.read(self._stamp),\n",
        ("tests/conformance/test_time.py",),
    ),
    Bug(
        "a snapshot without its position",
        "replication/snapshots.py",
        "        self.announcement = Announcement(place.position, row[0], ref)\n",
        "        self.announcement = Announcement(self._log.head(), row[0], ref)\n",
        SIMULATION,
    ),
    Bug(
        "the shadow tables of FTS5 travel",
        "replication/follower.py",
        '    return not table.startswith(("local_", "sqlite_")) and "_fts" not in table\n',
        '    return not table.startswith(("local_", "sqlite_"))\n',
        LOGS,
    ),
    Bug(
        "a node's own tables travel",
        "replication/follower.py",
        '    return not table.startswith(("local_", "sqlite_")) and "_fts" not in table\n',
        '    return not table.startswith("sqlite_") and "_fts" not in table\n',
        LOGS,
    ),
    Bug(
        "a refusal may be stale",
        "replication/replica.py",
        "        if end != self._follower.place.position:\n",
        "        if False:\n",
        SIMULATION,
    ),
    Bug(
        "at_least is not waited for",
        "kernel/engine.py",
        "        end = self.journal.end()\n",
        "        end = 0\n",
        NODES,
    ),
    Bug(
        "a log that does not follow is applied",
        "replication/follower.py",
        "                    if entry.previous != place.entry or (workspace and entry.workspace != workspace):\n",
        "                    if False:\n",
        LOGS,
    ),
    Bug(
        "the chain of entries is not looked at",
        "replication/follower.py",
        "                    if entry.previous != place.entry or (workspace and entry.workspace != workspace):\n",
        "                    if workspace and entry.workspace != workspace:\n",
        LOGS,
    ),
    Bug(
        "a wrong clock writes",
        "replication/replica.py",
        "        if max(ahead, behind) > ALLOWED:\n",
        "        if False:\n",
        SIMULATION,
    ),
    Bug(
        "a slow answer of the log confirms a wrong clock",
        "replication/replica.py",
        "            if took <= ALLOWED and abs(later - wall - took) < _JUMP:\n",
        "            if abs(later - wall - took) < _JUMP:\n",
        LOGS,
    ),
    Bug(
        "the log is trimmed past its snapshot",
        "replication/replica.py",
        "        self._log.trim(before)\n",
        "        self._log.trim(self._follower.place.position)\n",
        SIMULATION,
    ),
    Bug(
        "the place is written beside the transaction",
        "replication/follower.py",
        '                write_applied(connection, place)\n                reach("log.applied")\n',
        '                connection.execute("COMMIT")\n                reach("log.applied")\n'
        '                connection.execute("BEGIN")\n                write_applied(connection, place)\n',
        SIMULATION,
    ),
    Bug(
        "a block is committed although the log moved",
        "kernel/group.py",
        "    except LogMoved as moved:\n",
        "    except LogMoved:\n        return\n    except ZeroDivisionError as moved:\n",
        LOGS,
    ),
    Bug(
        "interrupted between log and replica, it runs again",
        "kernel/group.py",
        "        if batch.in_doubt:\n",
        "        if False:\n",
        LOGS,
    ),
    Bug(
        "a leader that was cut off is asked for the end",
        "replication/jetstream.py",
        "        end = self._head_of_one() if self._replicas == 1 else self._head_of_many()\n",
        "        end = self._head_of_one()\n",
        JETSTREAM,
    ),
    Bug(
        "a trim deletes the last entry of a stream",
        "replication/jetstream.py",
        'filter=f"{self._subject}.>", seq=before)',
        'filter=f"{self._subject}.>", seq=before + 1)',
        JETSTREAM,
    ),
    Bug(
        "an append that was compared with nothing is moved",
        "replication/jetstream.py",
        "                if refused.code != _UNDECIDED:\n",
        "                if refused.code == 10164:\n                    raise LogMoved\n                if True:\n",
        JETSTREAM,
    ),
    Bug(
        "an entry that another leader has stored meanwhile is taken for another node's",
        "replication/jetstream.py",
        "        if first[1] != entry:  # no two entries are alike: each has an id\n",
        "        if True:\n",
        JETSTREAM,
    ),
    Bug(
        "a server that is behind is believed",
        "replication/jetstream.py",
        "            if end < expected <= self._end or self._ends_at_least(expected):\n",
        "            if False:\n",
        JETSTREAM,
    ),
    Bug(
        "a workspace that leaves its log does not end it",
        "replication/replica.py",
        "                        self._send(connection, msgspec.structs.replace(entry, id=id))\n",
        "",
        MOVES,
    ),
    Bug(
        "who ended the log is not remembered",
        "replication/replica.py",
        "        self._follower.leaving = id\n",
        "",
        MOVES,
    ),
    Bug(
        "a move takes a log that holds another workspace",
        "replication/moves.py",
        "    elif not again or patience.outlast(lambda: _workspace_in(log)) != workspace:\n",
        "    elif not again:\n",
        MOVES,
    ),
    Bug(
        "a move that an earlier process may have finished is forgotten while the log is away",
        "replication/moves.py",
        "            if not again:  # an earlier process may have sent it\n",
        "            if True:  # an earlier process may have sent it\n",
        MOVES,
    ),
    Bug(
        "a folder that came back keeps the address of its log",
        "replication/moves.py",
        "    (folder / LOG_URL).unlink(missing_ok=True)\n",
        "",
        MOVES,
    ),
    Bug(
        "a folder moves while others have it open",
        "replication/moves.py",
        "            store.files.check_alone()\n",
        "",
        MOVES,
    ),
    Bug(
        "others open a folder while it moves",
        "replication/moves.py",
        "                store.files.seclude()\n",
        "                pass\n",
        MOVES,
    ),
    Bug(
        "a client stays at a node that is gone",
        "remote/failover.py",
        "                self._current = (node + 1) % len(self)\n",
        "",
        FAILOVER,
    ),
    Bug(
        "reads at another node may go backwards",
        "remote/failover.py",
        "        self._age += 1\n        self._settled = False\n",
        "        self._age += 1\n",
        FAILOVER,
    ),
    Bug(
        "an old answer proves that the current node has everything",
        "remote/failover.py",
        "            elif sent.age == self._age and sent.proves:\n",
        "            elif sent.proves:\n",
        FAILOVER,
    ),
    Bug(
        "a write that goes on at another node has another key there",
        "remote/protocol.py",
        "            response: Response = yield Send(request, headers_of(request, context), until)\n",
        '            context = msgspec.structs.replace(context, key=context.key and f"{context.key}-{attempt}")\n'
        "            response: Response = yield Send(request, headers_of(request, context), until)\n",
        FAILOVER,
    ),
    Bug(
        "what one node refuses for itself is not asked of another",
        "remote/protocol.py",
        "            again = is_of_node(refusal) if nodes > 1 else type",
        "            again = type",
        FAILOVER,
    ),
    Bug(
        "a watch begins anew at another node",
        "remote/stream.py",
        "        self._last = id or self._last\n",
        "",
        FAILOVER,
    ),
]
