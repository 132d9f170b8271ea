"""`ws.stashes`: typed, versioned state with a history, shared by the tasks of a trail or by all.

A stash is a resource, an artifact, a context, a counter, a lock, a queue or a channel. Its name is unique in its scope:
a trail, or the global stashes. Each operation is one transaction; `expected` is the version that the stash must still
have. `save` writes changes made in memory (by `cupboard`): of two that are based on one version, one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from holdfast import errors
from holdfast.domains import link_types, locks
from holdfast.domains.stashes import rows
from holdfast.domains.stashes.rows import StashId, Stored
from holdfast.kernel import idempotency, leases
from holdfast.kernel.events import compare, pasts, redact
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import any_of, check_id, check_limit, check_name, check_offset, check_ttl
from holdfast.kernel.values import encode
from holdfast.operation import Domain, Found, M, Steps, procedure, read, write
from holdfast.route import LOADING, Held, example
from holdfast.types import ImportPart, ImportReport, Page
from holdfast.types.stashes import Stash, StashType, TransferTable

MAX_EXPORT: Final = 1000  # lines of a page
SavedOperation = Literal["set", "increment", "acquire", "release"]
MOST: Final = 1_000_000  # changes in one save


def save(
    tx: Tx,
    id: StashId,
    expected: int,
    version: int,
    operation: SavedOperation,
    value: Any = None,
    holder: str | None = None,
    changed_by: str | None = None,
    released_by: str | None = None,
) -> Stash:
    """Write the version that a stash has reached in memory since `expected`. Raises VersionMismatch.

    `operation` is the last of the changes. For a lock, `value` is omitted and `holder` took or released it; if another
    held it, `released_by` names the one that released it in memory before that.
    """
    stored = rows.require(tx, id)
    _check_operation(stored, operation)
    check_reached(stored, expected, version)
    if stored.type == rows.LOCK:
        _move(tx, stored, operation, holder, version - expected, released_by)
        value = rows.require(tx, stored.id).value
    else:
        rows.check_value(stored.type, value)
    rows.write(tx, stored.id, operation, version, value, changed_by)
    return rows.to_stash(rows.require(tx, stored.id))


def _check_operation(stored: Stored, operation: str) -> None:
    own = {rows.LOCK: ("acquire", "release"), rows.COUNTER: ("set", "increment")}.get(stored.type, ("set",))
    if operation not in own:
        raise errors.InvalidStashType(
            f"{operation!r} does not apply to the stash {stored.name!r}, which is {rows.one(stored.type)}",
            hint=f"use one of: {', '.join(own)}",
            id=stored.id,
        )


def check_reached(stored: Stored, expected: int, version: int) -> None:
    """Raise VersionMismatch unless the stash is at `expected`, Invalid for a version that no change leads to."""
    if type(expected) is not int:
        raise errors.Invalid(f"expected must be the version that was loaded, not {expected!r}")
    rows.check_version(stored, expected)
    if type(version) is not int or not expected < version <= expected + MOST:
        raise errors.Invalid(
            f"no saved change leads from version {expected} to {version!r}",
            hint=f"each change adds one to the version, {MOST} at most in one save",
        )


def _move(tx: Tx, stored: Stored, operation: str, holder: str | None, changes: int, released_by: str | None) -> None:
    """Bring a lock to its state in memory, if that many changes can lead there."""
    if not holder:
        raise errors.InvalidHolder("the holder is empty", hint="name the holder")
    target, row = rows.lock_of(stored.id), locks.load(tx, rows.lock_of(stored.id))
    unreleased = stored.holder not in (None, holder, released_by)
    if unreleased or changes < _least_changes(stored.holder, operation, holder):
        if operation == "acquire" and stored.holder is not None:
            raise locks.held(target, stored.holder, stored.until)
        raise errors.NotHolder(f"{stored.name!r} is held by {stored.holder or 'nobody'}", holder=stored.holder)
    if row is not None and (operation == "release" or row[1] != holder):
        locks.end(tx, target, row, "release")
    if operation == "acquire":
        locks.take(tx, target, holder, None, None)


def _least_changes(before: str | None, operation: str, holder: str) -> int:
    """The fewest changes needed: a lock is acquired before it is released, and released before another acquires it."""
    if operation == "acquire":
        return 1 if before in (None, holder) else 2
    return 1 if before == holder else 2 if before is None else 3


def create(
    tx: Tx,
    name: str,
    stash_type: StashType,
    value: Any = None,
    trail: str | None = None,
    ttl: float | None = None,
    changed_by: str | None = None,
) -> Stash:
    """Create a stash, in a trail or global; with `ttl` it expires. Raises DuplicateName if the scope has the name."""
    rows.check_type(stash_type)
    check_name(name, "stash name")
    rows.check_value(stash_type, value)
    if stash_type == rows.COUNTER:
        value = {"value": rows.count_of(value)}
    scope = rows.GLOBAL if trail is None else open_trail(tx, trail)
    id = rows.insert(tx, name, stash_type, scope, value, None if ttl is None else check_ttl(ttl))
    if scope:
        link_types.tie(tx, rows.SCOPED_TO, id, scope)
    rows.write(tx, id, "create", 1, value, changed_by)
    return rows.to_stash(rows.require(tx, id))


def open_trail(tx: Tx, trail: str) -> str:
    """Return a trail that has not ended. Raises NotFound or InvalidStatus."""
    check_id(trail, "trail")
    row = tx.one("SELECT state FROM trails WHERE id = ?", (trail,))
    if row is None:
        raise errors.NotFound(f"there is no trail {trail!r}", hint="trails.list() lists them", id=trail)
    if row[0] in ("completed", "abandoned"):
        raise errors.InvalidStatus(
            f"the trail {trail} is {row[0]}", hint="choose a trail that has not ended", id=trail, state=row[0]
        )
    return trail


def get(snapshot: Snapshot, id: StashId) -> Stash:
    """Return a stash by its id, or by (trail, name). Raises NotFound."""
    return rows.to_stash(rows.require(snapshot, id))


def find_stash(snapshot: Snapshot, name: str, trail: str | None = None) -> Stash | None:
    """Return a stash by its name in a trail, or among the global ones; None if there is none."""
    check_name(name, "stash name")
    found = rows.find(snapshot, (trail, name))
    return None if found is None else rows.to_stash(found)


def set_value(tx: Tx, id: StashId, value: Any, expected: int | None = None, changed_by: str | None = None) -> Stash:
    """Set the value of a stash that is not a lock. Raises VersionMismatch if it is not at version `expected`."""
    stored = rows.require(tx, id)
    if stored.type == rows.LOCK:
        raise errors.InvalidStashType(f"{stored.name!r} is a lock", hint="acquire or release it", id=stored.id)
    rows.check_value(stored.type, value)
    rows.check_version(stored, expected)
    rows.write(tx, stored.id, "set", stored.version + 1, value, changed_by)
    return rows.to_stash(rows.require(tx, stored.id))


def increment(tx: Tx, id: StashId, delta: int = 1, changed_by: str | None = None) -> int:
    """Add to a counter and return its new value; no increment is ever lost. Raises InvalidStashType."""
    stored = rows.require_type(tx, id, rows.COUNTER)
    if type(delta) is not int:
        raise errors.InvalidValue(f"delta must be an int, not {delta!r}", hint="")
    count = rows.checked_count(rows.count_of(stored.value) + delta)
    rows.write(tx, stored.id, "increment", stored.version + 1, {"value": count}, changed_by)
    return count


def restore(tx: Tx, id: StashId, version: int, changed_by: str | None = None) -> Stash:
    """Write the value that a stash had at a version as its newest; not for locks. Raises NotFound, or Compacted."""
    stored = rows.require(tx, id)
    return set_value(tx, stored.id, rows.value_at(tx, stored.id, version), changed_by=changed_by)


def delete(tx: Tx, id: StashId) -> None:
    """Delete a stash with its link, and blank its history. Raises Held if it is a held lock."""
    stored = rows.require(tx, id)
    if stored.holder is not None:
        raise locks.held(rows.lock_of(stored.id), stored.holder, stored.until)
    erase(tx, stored.id, stored.version, stored.lease, "delete")


def erase(tx: Tx, id: str, version: int, lease: str | None, op: str) -> None:
    """Remove a stash for good: its row, its link, its items, and the values in its history."""
    rows.erase_items(tx, id, op)
    for trail in link_types.targets(tx, rows.SCOPED_TO, id):
        link_types.untie(tx, rows.SCOPED_TO, id, trail)
    tx.run("DELETE FROM stashes WHERE id = ?", (id,))
    leases.drop(tx, lease, rows.STASH)
    redact(tx, rows.STASH, "", id)
    idempotency.redact(tx, [id])
    tx.emit(rows.STASH, id, op, version=version + 1)


def list_stashes(
    snapshot: Snapshot,
    stash_type: StashType | Sequence[StashType] | None = None,
    name: str | None = None,
    trail: str | None = None,
    limit: int = 1000,
    offset: int = 0,
) -> Page[Stash]:
    """List the stashes that match every filter, oldest first; `trail` is its id, or "", "none", "null": global ones."""
    check_limit(limit, 1000, "offset")
    check_offset(offset)
    kind, types = any_of("s.type", stash_type, rows.check_type)
    wanted = {"s.name": name, "s.trail": rows.GLOBAL if trail in ("none", "null") else trail}
    for column, value in wanted.items():
        if value is not None and not isinstance(value, str):
            raise errors.InvalidFilter(f"{column[2:]} must be a str, not {type(value).__name__}")
        if value:
            check_name(value, column[2:])
    given = {column: value for column, value in wanted.items() if value is not None}
    where = "".join(f" AND {column} = ?" for column in given)
    found, more = snapshot.page(
        f"SELECT {rows.COLUMNS} FROM {rows.SOURCE} WHERE s.deleted IS NULL{kind}{where}"
        f" ORDER BY s.created, s.id LIMIT {offset}, ?",
        (*types, *given.values()),
        limit,
    )
    page = Page(rows.to_stash(Stored(*row)) for row in found)
    page.cursor = str(offset + len(page)) if more else None
    return page


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Remove an expired stash; if it is a held lock, the lock is freed."""
    for id, version, bound in tx.all("SELECT id, version, lease FROM stashes WHERE lease = ?", (lease,)):
        row = locks.load(tx, rows.lock_of(id))
        if row is not None:
            locks.free(tx, rows.lock_of(id), row, op)
            version += 1
        erase(tx, id, version, bound, op)


def rescope(tx: Tx, id: str, trail: str) -> None:
    """Move a stash to another scope. Raises DuplicateName if that has a stash of its name."""
    stored = rows.require(tx, id)
    rows.check_free(tx, trail, stored.name)
    tx.run("UPDATE stashes SET trail = ? WHERE id = ?", (trail, id))


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition sees of a stash."""
    stored = rows.find(tx, id)
    return None if stored is None else Found(stored.version, stored.value)


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report stashes that differ from their history or their link, and locks without a stash."""
    yield from _check_rows(snapshot)
    for id, trail, linked in snapshot.all(
        "SELECT s.id, s.trail, coalesce((SELECT target FROM links WHERE kind = 'scoped_to' AND source = s.id), '')"
        " FROM stashes s"
    ):
        if trail != linked:
            yield f"stash {id} is in {trail or 'no trail'}, its link says {linked or 'none'}"
    for (id,) in snapshot.all(
        "SELECT name FROM locks k WHERE kind = 'stash-lock'"
        " AND NOT EXISTS (SELECT 1 FROM stashes s WHERE s.id = k.name AND s.type = 'lock')"
    ):
        yield f"the stash lock {id} is held, but it does not exist"


def _check_rows(snapshot: Snapshot) -> Iterator[str]:
    """Report stashes that differ from their history, have no lease that they name, or were deleted without a trail."""

    def changes(data: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        imported = {"imported": (None, True)} if "at" in data else {}  # its times come from elsewhere
        return {"value": (None, encode(data["value"])), **imported}

    past = pasts(snapshot, rows.STASH, changes)
    columns = ("version", "revision")
    yield from compare(snapshot, rows.STASH, past, "SELECT id, version, revision FROM stashes", columns)
    for id, kind, value, created, updated in snapshot.all("SELECT id, type, value, created, updated FROM stashes"):
        found = past.get(id)
        if found is None or "value" not in found.fields:
            continue
        if value != (encode(None) if kind == rows.LOCK else found.fields["value"].new):
            yield f"stash {id} has another value than in its history"
        times = (found.created or created, found.updated)
        if "imported" not in found.fields and (created, updated) != times:
            yield f"stash {id} was made and changed at {(created, updated)}, but at {times} in its history"
    for (id,) in snapshot.all(
        "SELECT id FROM stashes s WHERE lease IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.id = s.lease AND l.kind = ? AND l.id = 'stash:' || s.id)",
        (rows.STASH,),
    ):
        yield f"stash {id} is bound to a lease that does not exist"
    for (id,) in snapshot.all(
        "SELECT id FROM leases l WHERE kind = ? AND NOT EXISTS (SELECT 1 FROM stashes s WHERE s.lease = l.id)",
        (rows.STASH,),
    ):
        yield f"lease {id} belongs to a stash that does not exist"
    for id, kind in snapshot.all("SELECT id, type FROM stashes"):
        if kind not in rows.TYPES:
            yield f"stash {id} has the unknown type {kind!r}"
    for (id,) in snapshot.all(
        "SELECT s.id FROM stashes s JOIN trails t ON t.id = s.trail WHERE s.deleted IS NULL AND t.state = 'abandoned'"
    ):
        yield f"stash {id} was not deleted with its trail"


def export(snapshot: Snapshot, table: TransferTable, after: str | None = None, limit: int = MAX_EXPORT) -> Page[str]:
    """Return a page of a table as JSON lines, with deleted records that can still be restored.

    Tables are crumbs, trails, links, stashes and stash_history. `after` is the cursor of the previous page: the id of
    its last line; for stash_history its STASH_ID/VERSION.
    """
    with LOADING:
        from holdfast.interchange import stash_export

    return stash_export.export(snapshot, table, after, limit)


def import_(
    tables: Mapping[str, Sequence[str]],
    dry_run: bool = False,
    skip_bad: bool = False,
    holder: str | None = None,
    part: ImportPart | None = None,
    atomic: bool = False,
) -> Steps[ImportReport]:
    """Import tables as JSON lines, by name, with their ids, times, versions and history.

    More than 500 lines are rehearsed, then imported in transactions of at most 500, between which others can write; if
    one of these fails, importing again goes on. With `atomic`, a fence, a key or inside a transaction it is one.

    What changed in the file only is updated; what changed on both sides is left alone. A line that cannot be imported
    refuses all (Invalid, with `problems`); with `skip_bad` it is left out, and what needs it. A held lock stays held,
    with a token of this workspace; given a `holder`, locks of others are Forbidden. `part` tells what lines that are
    part of larger files need to know of the rest.
    """
    with LOADING:
        from holdfast.interchange import slices, stash_import

    return slices.steps(partial(stash_import.import_, holder=holder), tables, dry_run, skip_bad, part, atomic)


# What examples need.
A_TRAIL: Final = "holdfast trail create parser --state active"
HITS: Final = "holdfast stash create hits --type counter"
_GATE: Final = "holdfast stash create gate --type lock"
_LIMITS: Final = """holdfast stash create limits --type context --value '{"depth": 3}'"""
SCOPED: Final = (A_TRAIL, HITS, "holdfast link create scoped_to $(holdfast stash list -q) $(holdfast trail list -q)")


class Stashes(Domain[M]):
    """`ws.stashes`."""

    prefix = "stashes"
    held = Held("stash", ("id",), ("name",), lookup="get")
    create = write(
        create,
        http="POST /api/stashes",
        cli="stash create NAME",
        help="Make a stash, in a trail or for all.",
        examples=(
            _LIMITS,
            example("holdfast stash create tokens --type counter --trail $(holdfast trail list -q)", A_TRAIL),
            "holdfast stash create gate --type lock --ttl 1d",
        ),
        creates=True,
    )
    get = read(
        get,
        http="GET /api/stashes/{id}",
        cli="stash get",
        help="Show a stash.",
        examples=(
            example("holdfast stash get limits", _LIMITS),
            example("holdfast stash get $(holdfast trail list -q)/hits", *SCOPED),
        ),
    )
    find = read(
        find_stash,
        http="GET /api/stashes/find/{name}",
        cli="stash find",
        help="Show a stash by its name; nothing if there is none.",
        examples=(example("holdfast stash find limits --json", _LIMITS),),
    )
    set_value = write(
        set_value,
        http="PUT /api/stashes/{id}/value",
        cli="stash set",
        help="Give a stash another value.",
        examples=(
            example("""holdfast stash set limits '{"depth": 4}'""", _LIMITS),
            example("""holdfast stash set limits '{"depth": 4}' --expected 1 --changed-by hf-7k2q""", _LIMITS),
        ),
    )
    save = write(
        save,
        http="PUT /api/stashes/{id}",
        names_actor="released_by",
        cli="stash save",
        help="Write the version that a stash has reached in memory.",
        examples=(example("""holdfast stash save limits 1 2 set --value '{"depth": 4}'""", _LIMITS),),
    )
    increment = write(
        increment,
        http="POST /api/stashes/{id}/increment",
        cli="stash increment ID [DELTA]",
        help="Add to a counter and print its new value.",
        examples=(example("holdfast stash increment hits", HITS), example("holdfast stash increment hits -2", HITS)),
    )
    acquire = procedure(
        rows.acquire,
        http="POST /api/stashes/{id}/acquire",
        cli="stash acquire",
        help="Take a lock stash; exit code 12 if somebody else holds it.",
        examples=(
            example("holdfast stash acquire gate --ttl 60 --wait 10", _GATE),
            example(
                "holdfast stash acquire gate  # exit code 12: agent-2 has it",
                _GATE,
                "holdfast stash acquire gate --actor agent-2",
            ),
        ),
        grants=True,
    )
    release = write(
        rows.release,
        http="POST /api/stashes/{id}/release",
        cli="stash release",
        done=("released {id}, which has version {result}",),
        help="Give your lock stash back, and print its version.",
        examples=(example("holdfast stash release gate", _GATE, "holdfast stash acquire gate"),),
        frees=True,
    )
    refresh = write(
        rows.refresh,
        http="POST /api/stashes/{id}/refresh",
        cli="stash refresh",
        help="Renew your lock stash; exit code 15 if it was lost meanwhile.",
        examples=(example("holdfast stash refresh gate --ttl 60", _GATE, "holdfast stash acquire gate --ttl 30"),),
        grants=True,
    )
    check = read(
        rows.check_token,
        http="GET /api/stashes/{id}/check",
        cli="stash check",
        done=("{id} is held with the token {token}",),
        help="Pass if a lock stash is held with this token; exit code 15 if not.",
        examples=(example("holdfast stash check gate 12288", _GATE, "holdfast stash acquire gate"),),
        arguments={"token": "the fencing token"},
    )
    restore = write(
        restore,
        http="POST /api/stashes/{id}/restore",
        cli="stash restore",
        help="Write the value of an old version back, as a new version.",
        examples=(example("holdfast stash restore limits 1", _LIMITS, """holdfast stash set limits '{"depth": 9}'"""),),
    )
    delete = write(
        delete,
        http="DELETE /api/stashes/{id}",
        cli="stash delete",
        done=("deleted the stash {id}",),
        help="Delete a stash and what its history says.",
        examples=(example("holdfast stash delete hits --yes", HITS),),
        irreversible="this removes the stash {id}, what its history says, and all that a queue or a channel has",
    )
    list = read(
        list_stashes,
        http="GET /api/stashes",
        listing=True,
        cli="stash list",
        help="List stashes, oldest first.",
        examples=(
            example("holdfast stash list --type counter", HITS),
            example("holdfast stash list --trail $(holdfast trail list -q) --json", *SCOPED),
        ),
        arguments={"trail": "in this trail alone, by its id; '' for global ones"},
    )
    history = read(
        rows.history,
        http="GET /api/stashes/{id}/history",
        listing=True,
        cli="stash history",
        help="List the saved changes of a stash, oldest first.",
        examples=(example("holdfast stash history hits", HITS, "holdfast stash increment hits"),),
    )
    export = read(export, http="GET /api/stashes/export/{table}", heavy=True, listing=True, cli="stash export")
    import_ = procedure(
        import_,
        http="POST /api/stashes/import",
        heavy=True,
        reloads_rules=True,
        cli="stash import",
        confined_by="holder",
    )
