"""`ws.items`: values under keys of namespaces, for what agents remember beyond one thread.

A namespace is a path of labels with / between, such as users/ada. Events have ids and sizes, never a value, so what is
deleted is gone. An item with a ttl has a lease and goes when that ends; whoever reads it may renew it, which emits
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.kernel import leases
from holdfast.kernel.events import compare, pasts, redact
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot, Tx, newest_version, weight
from holdfast.kernel.validate import check_limit, check_name, check_offset, check_ttl
from holdfast.kernel.values import check as check_value
from holdfast.kernel.values import decode, encode
from holdfast.operation import Domain, M, read, write
from holdfast.route import example
from holdfast.types import Page, as_time
from holdfast.types.threads import Item

ITEM: Final = "item"
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_BODY: Final = 96 * 1024 * 1024  # of a request that brings as much, as JSON
MOST: Final = 1000  # items or namespaces of one page, keys of one call
BATCH: Final = 256  # that are read at once to find those that fit a filter
_SELECT: Final = (
    "SELECT i.namespace, i.key, i.version, i.created, i.updated, l.ttl, l.deadline, (SELECT stamp FROM meta), i.value"
    " FROM items i LEFT JOIN leases l ON l.id = i.lease"
)
_ONE: Final = f"{_SELECT} WHERE i.namespace = ? AND i.key = ?"
_encode = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


def _check_place(namespace: str, key: str) -> None:
    _check_namespace(namespace)
    check_name(key, "key")


def _check_namespace(namespace: str, what: str = "namespace") -> None:
    check_name(namespace, what)
    if "" in namespace.split("/"):
        hint = "labels with / between, such as users/ada"
        raise errors.InvalidName(f"{what} {namespace!r:.100} has an empty label", hint=hint, what=what)


def _id(namespace: str, key: str) -> str:
    """The id in the log: no namespace contains two slashes in a row, so it means one item."""
    return f"{namespace}//{key}"


# --- writing ---------------------------------------------------------------------------------------------------------


def put(tx: Tx, namespace: str, key: str, value: dict[str, Any], ttl: float | None = None) -> Item:
    """Store an object of at most 64 MiB under a key of a namespace; it expires after `ttl` seconds if given."""
    _check_place(namespace, key)
    if type(value) is not dict:
        raise errors.InvalidValue(f"the value of an item is an object, not {type(value).__name__}")
    micros = None if ttl is None else check_ttl(ttl)
    data = encode(value, MAX_BYTES)
    id = _id(namespace, key)
    row = tx.one("SELECT record, version, lease FROM items WHERE namespace = ? AND key = ?", (namespace, key))
    if row is None:
        record, version = tx.key_of(ITEM, id), newest_version(tx, ITEM, "", id) + 1
    else:
        record, version = row[0], row[1] + 1
        leases.drop(tx, row[2], ITEM)
    lease = None if micros is None else leases.start(tx, ITEM, tx.actor, micros, f"{ITEM}:{record}")
    tx.run(
        "INSERT INTO items (record, namespace, key, version, revision, created, updated, lease, value)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (record) DO UPDATE SET version = excluded.version,"
        " revision = excluded.revision, updated = excluded.updated, lease = excluded.lease, value = excluded.value",
        (record, namespace, key, version, tx.revision, tx.now, tx.now, lease, data),
    )
    tx.emit_of(record, "create" if row is None else "put", version, _encode({"bytes": len(data)}))
    return get(tx, namespace, key)


def delete(tx: Tx, namespace: str, key: str) -> bool:
    """Delete an item for good; False if there is none."""
    _check_place(namespace, key)
    row = tx.one("SELECT record, lease FROM items WHERE namespace = ? AND key = ?", (namespace, key))
    if row is None:
        return False
    leases.drop(tx, row[1], ITEM)
    _erase(tx, row[0], "delete")
    return True


def _erase(tx: Tx, record: int, op: str) -> None:
    row = tx.one("SELECT namespace, key, version FROM items WHERE record = ?", (record,))
    assert row is not None
    tx.run("DELETE FROM items WHERE record = ?", (record,))
    redact(tx, ITEM, "", _id(row[0], row[1]))
    tx.emit_of(record, op, row[2] + 1, None)


def end_lease(tx: Tx, lease: str, op: str) -> None:
    """Remove the item whose time has ended."""
    record = int(lease.partition(":")[2])
    if tx.one("SELECT 1 FROM items WHERE record = ?", (record,)):
        _erase(tx, record, op)


def refresh(tx: Tx, keys: Sequence[Sequence[str]]) -> int:
    """Let items, each [namespace, key], run for their ttl again; returns how many have one. Emits nothing."""
    count = 0
    for namespace, key in _keys(keys):
        row = tx.one("SELECT lease FROM items WHERE namespace = ? AND key = ?", (namespace, key))
        count += row is not None and row[0] is not None and leases.renew(tx, row[0])
    return count


def _keys(keys: Any) -> list[tuple[str, str]]:
    if not isinstance(keys, list | tuple):
        raise errors.InvalidValue(f"keys come in a list, not {type(keys).__name__}")
    if len(keys) > MOST:
        raise errors.TooLarge(f"at most {MOST:,} keys in one call, not {len(keys):,}", limit=MOST)
    for each in keys:
        if not isinstance(each, list | tuple) or len(each) != 2:
            raise errors.InvalidValue(f"a key is [namespace, key], not {each!r:.80}")
        _check_place(*each)
    return [(namespace, key) for namespace, key in keys]


# --- reading ---------------------------------------------------------------------------------------------------------


def find(snapshot: Snapshot, namespace: str, key: str) -> Item | None:
    """Return an item, or None."""
    _check_place(namespace, key)
    row = snapshot.one(_ONE, (namespace, key))
    return None if row is None or _is_past(snapshot, row) else _item(row)


def get(snapshot: Snapshot, namespace: str, key: str) -> Item:
    """Return an item. Raises NotFound."""
    found = find(snapshot, namespace, key)
    if found is None:
        message = f"there is no item {key!r} in the namespace {namespace!r}"
        raise errors.NotFound(message, hint="items.search(namespace) lists those that are there")
    return found


def find_all(snapshot: Snapshot, keys: Sequence[Sequence[str]]) -> list[Item | None]:
    """Return several items, each given as [namespace, key], in their order; None for one that is not there.

    Raises TooLarge if they are more than 64 MiB.
    """
    found, left = [], MAX_BYTES
    for namespace, key in _keys(keys):
        row = snapshot.one(_ONE, (namespace, key))
        live = row is not None and not _is_past(snapshot, row)
        found.append(_item(row) if row is not None and live else None)
        left -= len(row[-1]) if row is not None else 0
        if left < 0:
            raise errors.TooLarge(
                f"these items are more than {MAX_BYTES:,} bytes", hint="ask for fewer", limit=MAX_BYTES
            )
    return found


def search(
    snapshot: Snapshot,
    namespace: str = "",
    where: dict[str, Any] | None = None,
    limit: int = 100,
    offset: int = 0,
    cursor: str | None = None,
) -> Page[Item]:
    """List the items of a namespace and of those below it, by namespace and key.

    `where` has what fields of their values must be: a value, or {"$gt": 4} with $eq, $ne, $gt, $gte, $lt or $lte.
    """
    check_limit(limit, MOST, "cursor")
    skip = check_offset(offset)
    fits = _compile(where)
    page: Page[Item] = Page()
    left = PAGE_BYTES
    for row in _below(snapshot, namespace, cursor):
        if _is_past(snapshot, row) or not fits(decode(row[-1])):
            continue
        if skip:
            skip -= 1
            continue
        left -= weight(row)
        if len(page) == limit or (page and left < 0):
            page.cursor = _json((page[-1].namespace, page[-1].key)).decode()
            return page
        page.append(_item(row))
    return page


def _below(snapshot: Snapshot, namespace: str, cursor: str | None) -> Iterator[Row]:
    """The rows of a namespace and of those below it, in order, after a cursor."""
    bound: str = ""
    params: tuple[Any, ...] = ()
    if namespace != "":
        _check_namespace(namespace)
        # What begins so and goes on with a character below / is read and left out; "0" is the character after it.
        bound = " AND i.namespace >= ? AND i.namespace < ? AND (i.namespace = ? OR substr(i.namespace, 1, ?) = ?)"
        params = (namespace, f"{namespace}0", namespace, len(namespace) + 1, f"{namespace}/")
    sql = f"{_SELECT} WHERE (i.namespace, i.key) > (?, ?){bound} ORDER BY i.namespace, i.key LIMIT ?"
    place, more = ("", "") if cursor is None else _place(cursor), True
    while more:
        rows, more = snapshot.page(sql, (*place, *params), BATCH)
        yield from rows
        if rows:
            place = rows[-1][0], rows[-1][1]


def _place(cursor: str) -> tuple[str, str]:
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str])
    except (msgspec.DecodeError, TypeError) as error:
        raise errors.InvalidFilter(f"{cursor!r:.80} is not a cursor", hint="send the cursor of a page") from error


def list_namespaces(
    snapshot: Snapshot,
    prefixes: Sequence[str] = (),
    suffixes: Sequence[str] = (),
    depth: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[str]:
    """List the namespaces that have items and begin and end so; the label * stands for any one.

    With `depth`, only so many labels of each are kept.
    """
    check_limit(limit, MOST, "offset")
    check_offset(offset)
    if depth is not None and (type(depth) is not int or depth < 1):
        raise errors.InvalidFilter(f"depth must be an int of 1 or more, not {depth!r:.80}")
    heads = [_labels(each, "prefixes") for each in prefixes]
    tails = [_labels(each, "suffixes") for each in suffixes]
    found: dict[str, None] = {}
    for (namespace,) in snapshot.all("SELECT DISTINCT namespace FROM items ORDER BY namespace"):
        labels = namespace.split("/")
        if all(_match(labels[: len(head)], head) for head in heads) and all(
            _match(labels[-len(tail) :], tail) for tail in tails
        ):
            found["/".join(labels[:depth])] = None
    return list(found)[offset : offset + limit]


def _labels(pattern: str, what: str) -> list[str]:
    _check_namespace(pattern, what)
    return pattern.split("/")


def _match(labels: list[str], pattern: list[str]) -> bool:
    return len(labels) == len(pattern) and all(
        want in ("*", label) for label, want in zip(labels, pattern, strict=True)
    )


def _is_past(snapshot: Snapshot, row: Row) -> bool:
    return row[6] is not None and snapshot.is_past(row[6], row[7])


def _item(row: Row) -> Item:
    namespace, key, version, created, updated, ttl, deadline, _, value = row
    return Item(
        namespace=namespace,
        key=key,
        value=decode(value),  # type: ignore[arg-type]
        version=version,
        created_at=as_time(created),
        updated_at=as_time(updated),
        ttl=None if ttl is None else ttl / 1e6,
        expires_at=None if deadline is None else as_time(deadline),
    )


# --- filters ---------------------------------------------------------------------------------------------------------

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda one, two: one == two,
    "$ne": lambda one, two: one != two,
    "$gt": lambda one, two: one > two,
    "$gte": lambda one, two: one >= two,
    "$lt": lambda one, two: one < two,
    "$lte": lambda one, two: one <= two,
}


def _compile(where: Any) -> Callable[[Any], bool]:
    """What tells whether a value fits. Raises InvalidFilter."""
    if where is None:
        return lambda value: True
    if not isinstance(where, Mapping):
        raise errors.InvalidFilter(f"where must be an object, not {type(where).__name__}")
    check_value(dict(where), text=True)
    tests = [(field, *each) for field, wanted in where.items() for each in _tests(wanted)]
    return lambda value: all(_holds(test, value.get(field), wanted) for field, test, wanted in tests)


def _tests(wanted: Any) -> list[tuple[str, Any]]:
    if not isinstance(wanted, dict) or not any(str(name).startswith("$") for name in wanted):
        return [("$eq", wanted)]
    for name in wanted:
        if name not in _TESTS:
            raise errors.InvalidFilter(f"{name!r:.80} is not an operator", hint=f"operators: {', '.join(_TESTS)}")
    return list(wanted.items())


def _holds(test: str, found: Any, wanted: Any) -> bool:
    if test in ("$eq", "$ne"):
        return _TESTS[test](found, wanted)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (found, wanted))
    return (numbers or (isinstance(found, str) and isinstance(wanted, str))) and _TESTS[test](found, wanted)


# --- for check -------------------------------------------------------------------------------------------------------

_ROWS: Final = ("version", "revision", "created", "updated")
_PROBLEMS: Final = {
    "the item {} has a lease that is not there, or another's": (
        "SELECT key FROM items i WHERE lease IS NOT NULL AND (lease <> 'item:' || record"
        " OR NOT EXISTS (SELECT 1 FROM leases l WHERE l.id = i.lease AND l.kind = 'item'))"
    ),
    "lease {} belongs to an item that does not exist": (
        "SELECT id FROM leases l WHERE kind = 'item' AND NOT EXISTS (SELECT 1 FROM items WHERE lease = l.id)"
    ),
}


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report items that differ from the log, or have no lease where one is due."""
    rows = f"SELECT namespace || '//' || key, {', '.join(_ROWS)} FROM items"
    yield from compare(snapshot, ITEM, pasts(snapshot, ITEM), rows, _ROWS)
    for problem, sql in _PROBLEMS.items():
        for (which,) in snapshot.all(sql):
            yield problem.format(which)


# What examples need.
_PUT: Final = """holdfast item put users/ada theme '{"color": "dark"}'"""
_NAMESPACE: Final = "labels with / between, such as users/ada"
_KEY: Final = "its key in the namespace"
_KEYS: Final = Meaning("which, a JSON list of [namespace, key]", "json")


class Items(Domain[M]):
    """`ws.items`."""

    prefix = "items"
    put = write(
        put,
        http="PUT /api/items",
        body=MAX_BODY,
        cli="item put NAMESPACE KEY VALUE",
        help="Store a value under a key of a namespace.",
        examples=(_PUT, """holdfast item put users/ada draft '{"text": "hi"}' --ttl 1h"""),
        arguments={
            "namespace": _NAMESPACE,
            "key": _KEY,
            "value": Meaning("an object, JSON; - reads it from standard input", "json"),
        },
    )
    get = read(
        get,
        http="GET /api/item",
        plain=True,
        cli="item get NAMESPACE KEY",
        help="Show an item.",
        examples=(example("holdfast item get users/ada theme", _PUT),),
        arguments={"namespace": _NAMESPACE, "key": _KEY},
    )
    find = read(
        find,
        http="GET /api/item/find",
        plain=True,
        cli="item find NAMESPACE KEY",
        help="Show an item; nothing if there is none.",
        examples=(example("holdfast item find users/ada theme --json", _PUT),),
        arguments={"namespace": _NAMESPACE, "key": _KEY},
    )
    find_all = read(
        find_all,
        http="POST /api/items/find-all",
        cli="item find-all KEYS",
        help="Show several items.",
        examples=(example("""holdfast item find-all '[["users/ada", "theme"]]' --json""", _PUT),),
        arguments={"keys": _KEYS},
    )
    search = read(
        search,
        http="POST /api/items/search",
        listing=True,
        cli="item search [NAMESPACE]",
        nothing=("there are no such items",),
        help="List the items of a namespace and of those below it.",
        examples=(example("""holdfast item search users --where '{"color": "dark"}'""", _PUT),),
        arguments={
            "namespace": _NAMESPACE,
            "where": Meaning('what fields of the value must be, a JSON object: a value, or {"$gt": 4}', "json"),
        },
    )
    namespaces = read(
        list_namespaces,
        http="GET /api/namespaces",
        listing=True,
        cli="item namespaces",
        nothing=("there are no such namespaces",),
        help="List the namespaces that have items.",
        examples=(example("holdfast item namespaces --depth 1", _PUT),),
        arguments={
            "prefixes": "they begin so, * is any label; may be repeated",
            "suffixes": "they end so, * is any label; may be repeated",
            "depth": "keep only so many labels of each",
        },
    )
    refresh = write(
        refresh,
        http="POST /api/items/refresh",
        cli="item refresh KEYS",
        done=("{result:items} run for their time again",),
        nothing=("none of these items has a ttl",),
        help="Let items run for their ttl again.",
        examples=(example("""holdfast item refresh '[["users/ada", "theme"]]'""", f"{_PUT} --ttl 1h"),),
        arguments={"keys": _KEYS},
    )
    delete = write(
        delete,
        http="DELETE /api/item",
        answers=True,
        cli="item delete NAMESPACE KEY",
        done=("deleted {key}",),
        nothing=("there is no item {key} in {namespace}",),
        help="Delete an item for good.",
        examples=(example("holdfast item delete users/ada theme --yes", _PUT),),
        irreversible="this deletes the item {key} of {namespace}",
        arguments={"namespace": _NAMESPACE, "key": _KEY},
    )
