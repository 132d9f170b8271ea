"""Bugs in turn files: locks that end or overlap wrongly, files that are half written, waiting without end."""

from __future__ import annotations

from tests.teeth.bug import Bug

CONTRACT = ("tests/turnfile/test_contract.py",)
LOCKS = ("tests/turnfile/test_locks.py",)
KILLS = ("tests/turnfile/test_kill.py",)
FILES = ("tests/turnfile/test_files.py",)
CLAIMS = ("tests/turnfile/test_claiming.py",)
TOLD = ("tests/cli/test_turn_told.py",)
FOLDERS = ("tests/cli/test_turn_folder.py",)
EDITS = ("tests/turnfile/test_transaction.py",)
ASKING = ("tests/turnfile/test_escalation.py",)

BUGS = [
    Bug(
        "a turn lock is stale a revision too early",
        "turnfile/ledger/rules.py",
        "revision - lock.acquired_rev > lock.lease_revs",
        "revision - lock.acquired_rev >= lock.lease_revs",
        LOCKS,
    ),
    Bug(
        "of two turn locks at one revision the larger id wins",
        "turnfile/ledger/rules.py",
        "    return lock.acquired_rev, lock.id\n",
        "    return lock.acquired_rev, lock.id[::-1]\n",
        CONTRACT,
    ),
    Bug(
        "a turn file overwrites an edit that somebody made in the meantime",
        "turnfile/transactions.py",
        "                if now[path] != before:\n",
        "                if False and now[path] != before:\n",
        CONTRACT,
    ),
    Bug(
        "a turn lock is not checked again before the write",
        "turnfile/transactions.py",
        "        return _first(self.session, ledger, lock)\n",
        "        return lock\n",
        EDITS,
    ),
    Bug(
        "the files of a turn are renamed without a journal",
        "turnfile/files.py",
        "    folder.rename(folder.temp(JOURNAL, msgspec.json.encode(_Journal(steps)).decode()), JOURNAL)\n",
        "",
        KILLS,
    ),
    Bug(
        "a journal that a killed writer left is thrown away",
        "turnfile/files.py",
        "    if any(_edited_by_others(folder, step) for step in steps):\n",
        "    if steps:\n",
        KILLS,
    ),
    Bug(
        "a contender whose wait for a turn ends asks nobody",
        "turnfile/locks.py",
        "        if found.revision == seen:\n",
        "        if found.revision == -1:\n",
        CONTRACT,
    ),
    Bug(
        "a blocked contender ages the lease that it waits for",
        "turnfile/locks.py",
        "        raise _Blocked(others[0], ledger.revision)\n",
        "        session.folder.rename(session.folder.temp('TURNFILE.yaml', ledger.stamped(ledger.revision + 1,"
        " request.holder).text), 'TURNFILE.yaml')\n        raise _Blocked(others[0], ledger.revision)\n",
        EDITS,
    ),
    Bug(
        "an unknown name is added to a turn file without a warning",
        "turnfile/locks.py",
        "(*new_names(ledger, holder), *_file_warnings(",
        "(*new_names(ledger), *_file_warnings(",
        CLAIMS,
    ),
    Bug(
        "a file that a program wrote outside its turn is lost without an error",
        "faces/cli/commands/turn_edit.py",
        "            _check_named(transaction, folder)\n",
        "",
        TOLD,
    ),
    Bug(
        "the folder of turn files is a symlink to anywhere",
        "turnfile/session.py",
        "        if (target := symlink_escape(path)) is not None:\n",
        "        if (target := symlink_escape(path)) is not None and not path:\n",
        FOLDERS,
    ),
    Bug(
        "a mailbox is written without its projection",
        "turnfile/invariants.py",
        "    if MAILBOX in changed:\n",
        "    if not changed:\n",
        CONTRACT,
    ),
    Bug(
        "an agent takes the transaction of another process for its own turn lock",
        "turnfile/transactions.py",
        "lock.holder == holder and not lock.transaction",
        "lock.holder == holder",
        EDITS,
    ),
    Bug(
        "a turn lock goes stale by the edits under it",
        "turnfile/transactions.py",
        "                    after = renewed(self.session, ledger, lock)\n",
        "                    after = ledger\n",
        EDITS,
    ),
    Bug(
        "the escalation of a turn lock costs two revisions",
        "turnfile/escalation.py",
        "texts[TURNFILE] = after.stamped(ledger.revision + 1, sender).text",
        "texts[TURNFILE] = after.stamped(ledger.revision + 2, sender).text",
        ASKING,
    ),
    Bug(
        "a mention of a message in prose uses up its id",
        "turnfile/mailbox/draft.py",
        "taken = parse(text).numbers.get(day, set())",
        "taken = numbers_of(re.findall(r'MSG-[0-9]{8}-[0-9]{3,9}', text)).get(day, set())",
        CONTRACT,
    ),
    Bug(
        "of a turn file that only grew the text that was read before is returned",
        "turnfile/files.py",
        "for part in _encoded(text)) and not file.read(1)",
        "for part in _encoded(text))",
        FILES,
    ),
    Bug(
        "the lock file of turn files can be edited",
        "turnfile/session.py",
        "        if is_internal(found):\n",
        "        if not found:\n",
        TOLD,
    ),
]
