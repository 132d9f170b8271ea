"""Bugs in stashes and trails: changes that are lost, locks that end too early, things that go or come back wrongly."""

from __future__ import annotations

from tests.teeth.bug import Bug

STASHES = ("tests/conformance/test_stashes.py", "--kinds", "memory")
LOCKS = ("tests/conformance/test_stash_locks.py", "--kinds", "memory")
FENCES = ("tests/conformance/test_stash_fences.py", "--kinds", "memory")
SYNC = ("tests/unit/test_stash_sync.py",)
ENDS = ("tests/conformance/test_stash_ends.py", "--kinds", "memory")
QUEUES = ("tests/conformance/test_queues.py", "--kinds", "memory")
CHANNELS = ("tests/conformance/test_channels.py", "--kinds", "memory")
TRAILS = ("tests/conformance/test_trails.py", "--kinds", "memory")
SIMULATION = ("tests/simulation/test_simulation.py", "-k", "seeds_hold")

FOLLOW = ("tests/unit/test_stash_follow.py",)

BUGS = [
    Bug(
        "a change of a stash names a task that does not exist",
        "domains/stashes/rows.py",
        """    if not tx.one("SELECT 1 FROM tasks WHERE id = ?", (changed_by,)):
""",
        """    if not changed_by:
""",
        STASHES,
    ),
    Bug(
        "a stash that was changed here is deleted with the one there",
        "interchange/stash_lines.py",
        '    imported = entry is not None and "at" in entry',
        "    imported = entry is not None",
        FOLLOW,
    ),
    Bug(
        "an import does not follow what was deleted there",
        "interchange/stash_import.py",
        '        self._bury(gone, "stashes")\n',
        "",
        FOLLOW,
    ),
    Bug(
        "a stash is saved over what it has become",
        "domains/stashes/rows.py",
        """    if expected is not None and expected != stored.version:
""",
        """    if expected is not None and expected > stored.version:
""",
        STASHES,
    ),
    Bug(
        "a holder that expires leaves no trace in its stash",
        "domains/stashes/rows.py",
        """    if stored is not None:
        write(""",
        """    if stored is not None and op != "expire":
        write(""",
        LOCKS,
    ),
    Bug(
        "a deleted stash goes on speaking from the log",
        "domains/stashes/__init__.py",
        """    redact(tx, rows.STASH, "", id)
""",
        "",
        ENDS,
    ),
    Bug(
        "a trail is abandoned under a lock without an end",
        "domains/trails.py",
        """        " LEFT JOIN leases l ON l.id = k.lease WHERE s.trail = ?""",
        """        " JOIN leases l ON l.id = k.lease WHERE s.trail = ?""",
        SIMULATION,
    ),
    Bug(
        "what was deleted before its trail comes back with it",
        "domains/trails.py",
        """        if task.id in went:
""",
        """        if task.id in went or task.deleted is not None:
""",
        TRAILS,
    ),
    Bug(
        "a stash that went on here is followed elsewhere, and that is lost",
        "interchange/stash_lines.py",
        """    return all(same_entry(entry, theirs.get(entry.version)) for entry in own if entry.version >= first)
""",
        """    return True
""",
        SYNC,
    ),
    Bug(
        "a trail is followed and its tasks are not",
        "interchange/stash_import.py",
        """            if members.ending(members.of(id, line)) or not self._is_whole(id):
""",
        """            if False:
""",
        SYNC,
    ),
    Bug(
        "a fence of two names passes for a lock that was granted with another token",
        "workspace/context.py",
        """    holder = locks.check_fence(tx, known[0], token)
""",
        """    holder = tx.actor
    if known != meant:
        locks.check_fence(tx, known[0], token)
""",
        FENCES,
    ),
    Bug(
        "changes that are saved at once count as one",
        "domains/stashes/__init__.py",
        """    rows.write(tx, stored.id, operation, version, value, changed_by)
""",
        """    rows.write(tx, stored.id, operation, stored.version + 1, value, changed_by)
""",
        SIMULATION,
    ),
    Bug(
        "a worker whose lease has ended still acknowledges its item",
        "domains/stashes/queue_rows.py",
        """        "UPDATE queue_items SET state = ?, token = NULL WHERE""",
        """        "UPDATE queue_items SET state = ?, token = token WHERE""",
        QUEUES,
    ),
    Bug(
        "an item is delivered once more than its queue allows",
        "domains/stashes/queue_rows.py",
        """"dead" if deliveries >= _max_deliveries""",
        """"dead" if deliveries > _max_deliveries""",
        QUEUES,
    ),
    Bug(
        "the newest item of a queue is taken first",
        "domains/stashes/queues.py",
        """state = 'ready' ORDER BY number LIMIT 1\"""",
        """state = 'ready' ORDER BY number DESC LIMIT 1\"""",
        QUEUES,
    ),
    Bug(
        "a subscriber that fell behind skips in silence what is not kept",
        "domains/stashes/channels.py",
        """    if channel.lost_after(cursor):
""",
        """    if channel.lost_after(cursor) and limit < 0:
""",
        CHANNELS,
    ),
    Bug(
        "a subscriber that names a place gets a later one in silence",
        "domains/stashes/channels.py",
        """_check_number(channel, after) or channel.first - 1
""",
        """max(_check_number(channel, after), channel.first - 1)
""",
        CHANNELS,
    ),
    Bug(
        "an acknowledgement that comes late moves a cursor back",
        "domains/stashes/channels.py",
        """    if _check_number(channel, number) <= cursor:
""",
        """    if _check_number(channel, number) == cursor:
""",
        CHANNELS,
    ),
]
