"""Backup, restore, self-check and upgrade of a whole workspace.

A backup is one SQLite file, a consistent snapshot taken while writes continue. Restoring makes a new workspace and
never overwrites one. It advances the revision by 10^9 plus one for every microsecond since the backup was made, and
marks everything below as compacted: no token or cursor of the lost timeline can equal a new one.

Beside a backup lies its SHA-256, in the form of `sha256sum`. SQLite finds a page that is no page, but not a byte that
has become another, so a backup is compared with it before anything is made of it.

A check reads one snapshot and changes nothing. The kernel checks the log itself; each domain checks its rows against
it. An upgrade is never part of opening: a person starts it. It writes a backup beside the store first, and stops if
that fails.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from holdfast import errors
from holdfast.clock import RESET, Clock
from holdfast.filesystem import check_place, hide_from_git, make_folder, sync
from holdfast.ids import Ids
from holdfast.kernel import migrations, tx
from holdfast.kernel.activity import report
from holdfast.kernel.failpoints import reach
from holdfast.kernel.journal import Journal
from holdfast.kernel.process_lock import PURGE, Turns, sole
from holdfast.kernel.store import BEFORE_PURGE, Store, check_sqlite, connect_raw, reserve_checksums
from holdfast.kernel.store_files import FILE, MARK, PARTS, empty_mark, require_store
from holdfast.kernel.translation import translate, translated
from holdfast.kernel.tx import Snapshot
from holdfast.types import Report

LEAST_LEAP = 10**9
_MADE = "local_backup"
_STEP = 4096  # pages


def backup(
    source: apsw.Connection,
    target: Path,
    now: int,
    copy_to: Callable[[apsw.Connection, apsw.Connection], None] | None = None,
) -> None:
    """Copy the store to `target`, which must not exist; it appears complete or not at all."""
    if target.exists():
        raise _taken(target)
    if not target.parent.is_dir():
        raise errors.NotFound(f"there is no folder {target.parent}", hint="make it first")
    partial = _beside(target)
    try:
        with _private_file(partial) as copy:
            (copy_to or _copy)(source, copy)
            copy.pragma("journal_mode", "delete")
            copy.execute("DELETE FROM local_replica")  # a backup belongs to no log
            copy.execute(f"CREATE TABLE {_MADE} (time INTEGER NOT NULL PRIMARY KEY)")
            copy.execute(f"INSERT INTO {_MADE} VALUES (?)", (now,))
        digest = _digest(partial)
        _add_sum(target, digest)  # first: a backup that has its name can be verified
        _publish(partial, target)
        _replace_sum(target, digest)
    except apsw.Error as error:
        raise translate(error) from error
    except FileExistsError as error:
        _replace_sum(target, _digest(target))  # another writer was first, and ours has added its sum
        raise _taken(target) from error
    except OSError as error:
        raise errors.IOFailed(f"the backup could not be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def sum_of(backup: Path) -> Path:
    """The file beside a backup that has its SHA-256."""
    return backup.with_name(f"{backup.name}.sha256")


def remove_backup(backup: Path) -> None:
    """Remove a backup and its sum; one that is not there is no error."""
    backup.unlink(missing_ok=True)
    sum_of(backup).unlink(missing_ok=True)


def has_last_commit(backup: Path, snapshot: Snapshot) -> bool:
    """Whether a backup that is whole has the last commit of this store, so that another would say the same."""
    sql = "SELECT workspace, revision, stamp FROM meta"
    try:
        with closing(connect_raw(str(backup), apsw.SQLITE_OPEN_READONLY)) as copy:
            if copy.execute(sql).fetchone() != snapshot.one(sql):
                return False
        _verify(backup)
        return True
    except (errors.Corrupt, errors.Invalid, apsw.Error, OSError):
        return False  # it is none, or cannot be read: make another


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add_sum(backup: Path, digest: str) -> None:
    """Add the sum of a backup that is about to appear to those of other writers, who may be first to take its name."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(sum_of(backup), flags, 0o600)
    try:
        apart = "\n" if os.fstat(descriptor).st_size else ""  # the line before may have been cut off
        os.write(descriptor, f"{apart}{digest}  {backup.name}\n".encode())
        os.fsync(descriptor)
        sync(backup.parent)
    finally:
        os.close(descriptor)


def _replace_sum(backup: Path, digest: str) -> None:
    """Leave the sum of the backup that has appeared alone in its file."""
    draft = _beside(sum_of(backup))
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{digest}  {backup.name}\n".encode())
        os.fsync(descriptor)
        os.replace(draft, sum_of(backup))
        sync(backup.parent)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)


def _verify(backup: Path) -> None:
    """Raise Corrupt if a backup is not what was written, Invalid if nothing says what that was."""
    try:
        written = sum_of(backup).read_bytes()
    except FileNotFoundError:
        raise errors.Invalid(
            f"there is no {sum_of(backup).name} beside {backup}, so nobody can say whether it is whole",
            hint="put it there, or restore without it: verify=False",
        ) from None
    first_words = [line.split(maxsplit=1)[0].lower() for line in written.splitlines() if line.strip()]
    digests = {word.decode() for word in first_words if len(word) == 64 and not word.strip(b"0123456789abcdef")}
    if not digests:
        raise errors.Corrupt(
            f"{sum_of(backup)} does not begin with a SHA-256, which has 64 digits from 0 to f",
            hint="copy it again from where the backup was made, or restore without it: verify=False",
        )
    if _digest(backup) not in digests:
        raise errors.Corrupt(
            f"{backup} is damaged: its SHA-256 is not the one in {sum_of(backup).name}",
            hint="restore another backup, and keep this one",
        )


def _beside(target: Path) -> Path:
    """Return a name of this thread's own, so that two writers of one target do not collide before the end."""
    return target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.partial")


def _taken(target: Path) -> errors.Exists:
    return errors.Exists(f"{target} already exists", hint="choose a new file name for each backup")


@contextmanager
def _private_file(path: Path) -> Iterator[apsw.Connection]:
    """A new SQLite file that only its owner can read."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(connect_raw(str(path), apsw.SQLITE_OPEN_READWRITE)) as connection:
        # The checksums of a file begin with its first page, which a copy writes last: pages that its cache could not
        # keep until then would go to the disk with those that they had in a write-ahead log, which are none.
        reserve_checksums(connection)
        connection.execute("PRAGMA user_version = 1")
        yield connection


def _copy(source: apsw.Connection, copy: apsw.Connection) -> None:
    source.execute("BEGIN; SELECT 1 FROM sqlite_schema")  # all steps read this commit: no write restarts the copy
    try:
        with copy.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_STEP)
                report(source.filename, "backup", copying.page_count - copying.remaining, copying.page_count)
    finally:
        if source.in_transaction:
            source.execute("ROLLBACK")
    problem = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != ("ok",):
        raise errors.Corrupt(f"the copy is not sound: {problem}")


def _publish(partial: Path, target: Path) -> None:
    sync(partial)
    reach("backup.copied")
    os.link(partial, target)  # fails if the target has appeared meanwhile, where a rename would replace it
    sync(target.parent)
    reach("backup.published")


KEPT = 30 * 86_400_000_000  # how long a backup before a purge stays


def _before_purge(folder: str | Path) -> dict[int, Path]:
    """The backups that were made before a purge, by their time."""
    found = (path for path in Path(folder).glob(f"{BEFORE_PURGE}*.backup"))
    return {int(at): path for path in found if (at := path.name[len(BEFORE_PURGE) : -len(".backup")]).isdecimal()}


def newest_before_purge(folder: str) -> int:
    """The time of the newest backup that was made before a purge, 0 if there is none."""
    return max(_before_purge(folder), default=0)


def back_up_before_purge(store: Store, newest: int) -> None:
    """Back up the store in its own folder, unless a backup is newer than `newest`, or another process is making one.

    It is named by a commit that it has, and everything that is deleted later has a later time. A failure is only
    logged: whoever writes at this moment is not the one to hear of it, and nothing is purged.
    """
    try:
        with translated(), sole(store.folder, PURGE) as alone:
            if alone and newest_before_purge(store.folder) <= newest:
                with closing(store.connect_reader()) as source:
                    row = source.execute("SELECT stamp FROM meta").fetchone()
                    assert row is not None
                    at = row[0] % RESET
                    backup(source, Path(store.folder) / f"{BEFORE_PURGE}{at}.backup", at)
    except (errors.HoldfastError, OSError) as error:
        errors.warn(f"nothing is purged, because the backup before it failed: {error}")


def age_out(folder: str, now: int) -> int:
    """Delete the backups before a purge that are older than 30 days; returns how many."""
    old = [path for at, path in _before_purge(folder).items() if at <= now - KEPT]
    for path in old:
        for each in path.parent.glob(f"{path.name}*"):  # with what lies beside it
            each.unlink(missing_ok=True)
    return len(old)


def restore(
    source: Path,
    folder: Path,
    clock: Clock,
    seed: Callable[[apsw.Connection], None] | None = None,
    verify: bool = True,
) -> int:
    """Make a workspace in `folder` from a backup; returns its new revision. `seed` gets it before anyone else."""
    check_sqlite()
    check_place(folder)
    if not source.is_file():
        raise errors.NotFound(f"there is no backup {source}")
    if (folder / FILE).exists():
        raise errors.Exists(f"{folder} already holds a workspace", hint="restore into a new folder")
    left = [part for part in PARTS if (folder / part).exists()]
    if left:
        raise errors.Exists(f"{folder} holds {', '.join(left)} of another workspace", hint="restore into a new folder")
    with _reading(source, verify):
        original = _open_backup(source)
    partial = _beside(folder / FILE)
    try:
        if verify:
            _verify(source)
        with _new_folder(folder):
            with _private_file(partial) as copy:
                with _reading(source):
                    _copy(original, copy)
                revision = _leap(copy, clock.wall())
                if seed is not None:
                    seed(copy)
            empty_mark(folder)  # one of a store that was here is emptied: this one does not go on from it
            _publish(partial, folder / FILE)
            return revision
    except apsw.Error as error:
        raise translate(error) from error
    except OSError as error:
        raise errors.IOFailed(f"the workspace could not be written: {error}") from error
    finally:
        original.close()
        partial.unlink(missing_ok=True)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a new store, and remove what was made of it if the block fails."""
    missing = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    found = [] if missing else os.listdir(folder)
    make_folder(folder)
    hide_from_git(str(folder))
    try:
        yield
    except BaseException:
        for left in {*os.listdir(folder)}.difference(found):
            if left in (".gitignore", MARK) or left.endswith(".partial"):
                (folder / left).unlink()
        for path in missing:
            with suppress(OSError):  # another process has put something there meanwhile
                path.rmdir()
        raise


@contextmanager
def _reading(source: Path, verify: bool = False) -> Iterator[None]:
    """What is Corrupt in this block is the backup, and no store; with `verify` its sum tells first."""
    try:
        with translated():
            yield
    except errors.Corrupt as error:
        if verify:
            _verify(source)
        why = error.message.rpartition("damaged: ")[2]
        raise errors.Corrupt(
            f"the backup {source} is damaged: {why}", hint="restore another backup, and keep this one"
        ) from error


def _open_backup(source: Path) -> apsw.Connection:
    original = connect_raw(str(source), apsw.SQLITE_OPEN_READONLY)
    try:
        if (
            migrations.schema_of(original)
            and original.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_MADE,)).fetchone()
        ):
            return original
    except apsw.NotADBError:
        original.close()
    except apsw.Error as error:
        original.close()
        raise translate(error) from error
    raise errors.Invalid(f"{source} is not a backup of a workspace", hint="ws.backup(path) makes one")


def _leap(copy: apsw.Connection, now: int) -> int:
    made = copy.execute(f"SELECT time FROM {_MADE}").fetchone()
    assert made is not None
    leap = LEAST_LEAP + max(0, now - made[0])
    copy.execute("BEGIN IMMEDIATE")
    copy.execute(f"DROP TABLE {_MADE}")
    copy.execute("UPDATE meta SET revision = revision + ?, compacted = revision + ?", (leap, leap))
    row = copy.execute("SELECT revision FROM meta").fetchone()
    copy.execute("COMMIT")
    assert row is not None
    return int(row[0])


Checker = Callable[[Snapshot], Iterable[str]]

_TABLES = (
    *("tasks", "links", "cells", "locks", "waiters", "leases", "agents", "messages"),
    *("idempotency", "documents", "templates", "trails", "stashes", "queue_items", "channel_messages", "cycles"),
)


def _has(snapshot: Snapshot, table: str) -> bool:
    """Whether the store has a table; a store from before a migration may not."""
    return snapshot.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)) is not None


def check(snapshot: Snapshot, checkers: Iterable[Checker]) -> Report:
    """Run every check; the caller holds the snapshot. If SQLite reports damage, only that is reported.

    Never raises: what cannot be read is a problem like any other.
    """
    problems = list(_safely(_engine, snapshot)) or [
        problem for checker in (_log, _leases, *checkers) for problem in _safely(checker, snapshot)
    ]
    counts: dict[str, int] = {}

    def count(_: Snapshot) -> Iterator[str]:
        counts["revision"] = (snapshot.one("SELECT revision FROM meta") or (0,))[0]
        for table in ("log", *_TABLES):
            if _has(snapshot, table):
                counts[table] = (snapshot.one(f"SELECT count(*) FROM {table}") or (0,))[0]
        return iter(())

    problems += _safely(count, snapshot)
    return Report(problems, counts.pop("revision", 0), counts.pop("log", 0), counts)


def _safely(checker: Checker, snapshot: Snapshot) -> Iterator[str]:
    """Run a check on a store that may be damaged in any way: whatever it raises is what it found."""
    try:
        yield from checker(snapshot)
    except Exception as error:  # a row that is not what its writer wrote can break any code that reads it
        where = checker.__module__.removeprefix("holdfast.domains.").removesuffix(".check").rpartition("kernel.")[2]
        shown = error.message if isinstance(error, errors.HoldfastError) else f"{type(error).__name__}: {error}"
        yield f"{where}: some of it cannot be read: {shown}"


def _engine(snapshot: Snapshot) -> Iterator[str]:
    for index, _ in tx.INDEXES.values():
        # A connection that searched before others wrote remembers an old structure of the index, and SQLite's check
        # reports that as corruption; a search reloads it.
        if _has(snapshot, index):
            snapshot.all(f"SELECT rowid FROM {index} WHERE {index} MATCH 'x' LIMIT 1")
    for (line,) in snapshot.all("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"


def _log(snapshot: Snapshot) -> Iterator[str]:
    row = snapshot.one("SELECT revision, compacted FROM meta")
    assert row is not None
    revision, compacted = row
    newest, count = snapshot.one(
        "SELECT max(revision), count(DISTINCT revision) FROM events WHERE revision > ?", (compacted,)
    ) or (None, 0)
    if (newest or compacted) != revision:
        yield f"the revision is {revision}, but the newest event has {newest}"
    if count != revision - compacted:
        yield f"the log has {count} revisions above {compacted}, expected {revision - compacted}"
    for (at,) in snapshot.all(
        "SELECT revision FROM events WHERE revision > ? GROUP BY revision"
        " HAVING min(position) <> 0 OR max(position) <> count(*) - 1"
        " OR min(time) <> max(time) OR min(actor) <> max(actor)",
        (compacted,),
    ):
        yield f"revision {at} has a gap, or more than one time or actor"
    for (at,) in snapshot.all("SELECT DISTINCT revision FROM log WHERE record NOT IN (SELECT key FROM records)"):
        yield f"revision {at} has an event of no record"
    for (at,) in snapshot.all(
        "SELECT revision FROM (SELECT revision, position, lag(revision) OVER (ORDER BY seq) AS before,"
        " lag(position) OVER (ORDER BY seq) AS after FROM log) WHERE (before, after) > (revision, position)"
    ):
        yield f"the events of revision {at} do not follow those before it"
    for kind, scope, id, version in snapshot.all(
        "SELECT kind, scope, id, version FROM events GROUP BY kind, scope, id, version HAVING count(*) > 1"
    ):
        yield f"{kind} {scope}/{id} has version {version} twice"
    for kind, scope, id in snapshot.all(
        "SELECT DISTINCT kind, scope, id FROM (SELECT kind, scope, id, revision,"
        " lag(revision) OVER (PARTITION BY kind, scope, id ORDER BY version) AS earlier FROM events)"
        " WHERE earlier > revision"
    ):
        yield f"the versions of {kind} {scope}/{id} do not follow the order of revisions"


def _leases(snapshot: Snapshot) -> Iterator[str]:
    for (id,) in snapshot.all("SELECT id FROM leases WHERE ttl <= 0 OR deadline < created"):
        yield f"lease {id} ends before it starts"
    for (id,) in snapshot.all(
        "SELECT id FROM leases l WHERE kind = 'lease' AND NOT EXISTS"
        " (SELECT 1 FROM events e WHERE e.kind = 'lease' AND e.scope = '' AND e.id = l.id AND e.op = 'create')"
    ):
        yield f"lease {id} is not in the log"


BUSY_TIMEOUT = 10.0


def schema_of(folder: Path) -> tuple[int, int]:
    """The schema of a store, and the newest that this program knows."""
    with translated(), closing(_reader_of(folder)) as store:
        return migrations.schema_of(store), migrations.known()


def _reader_of(folder: Path) -> apsw.Connection:
    """A connection that only reads, also where nobody could write."""
    if os.access(folder, os.W_OK):
        return connect_raw(str(folder / FILE), apsw.SQLITE_OPEN_READONLY)
    from holdfast.kernel.read_only import ReadStore  # which needs the engine

    return ReadStore(str(folder), BUSY_TIMEOUT).connect()


def upgrade(
    folder: Path, clock: Clock, steps: Sequence[migrations.Migration] | None = None, journal: Journal | None = None
) -> int:
    """Migrate a store to the newest schema of this program and return it. Writes nothing if it is up to date."""
    steps = migrations.load() if steps is None else steps
    require_store(folder)
    store = Store(str(folder), durable=True, busy_timeout=BUSY_TIMEOUT, replica=journal is not None)
    with translated(), closing(Turns(str(folder))) as turns, closing(store):
        if not turns.take(BUSY_TIMEOUT):
            raise turns.missed("nothing was upgraded")
        if journal is None:
            migrations.refuse_replica(store.writer)
        else:
            journal.open(store, Ids())
        schema = migrations.schema_of(store.writer)
        if schema < len(steps):
            backup(store.writer, folder / f"before-schema-{len(steps)}-{clock.wall()}.backup", clock.wall())
            if journal is None:
                return migrations.migrate(store.writer, steps, "", lock_out=True)
            return journal.migrate(lock_out=True)
        return schema
