"""Idempotency keys: a call repeated with the same key happens once and returns the first result.

A key belongs to (actor, operation) and is kept for 24 hours; if time leaps, for 24 hours more. The digest of the
arguments and the result are stored in the body's own savepoint: they commit, replicate and roll back with it. Errors
store nothing. Called by the workspace around a keyed write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast import errors
from holdfast.clock import LEAP
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_name

LIFETIME = LEAP
_PURGED = b""  # stands for a purged result
_CLEAN_UP = 64  # expired keys removed by each keyed call: enough to keep pace, and only users of keys pay


def digest(arguments: Any) -> bytes:
    """A hash of plain arguments, independent of the order of keys."""
    import hashlib

    return hashlib.blake2b(msgspec.msgpack.encode(arguments, order="sorted"), digest_size=20).digest()


def find(tx: Tx, operation: str, key: str, wanted: bytes) -> bytes | None:
    """Return the stored result, None if the key is new. Raises Invalid if it was used with other arguments."""
    check_name(key, "key")
    row = tx.one(
        "SELECT digest, answer, max(expires, (SELECT calm FROM meta) + ?) FROM idempotency"
        " WHERE actor = ? AND operation = ? AND key = ?",
        (LIFETIME, tx.actor, operation, key),
    )
    if row is None or row[2] <= tx.now:
        return None
    if row[0] != wanted:
        raise errors.Invalid(
            f"the key {key!r} was used for {operation} with other arguments",
            hint="use a new key for a new call, and the same key only to repeat a call",
            key=key,
        )
    if row[1] == _PURGED:
        raise errors.NotFound(f"the result of the call with the key {key!r} has been purged", key=key)
    return bytes(row[1])


def redact(tx: Tx, ids: Iterable[str]) -> None:
    """Remove the results that mention purged records; the calls themselves stay known."""
    wanted = [id.encode() for id in ids]
    for actor, operation, key, answer in tx.all("SELECT actor, operation, key, answer FROM idempotency"):
        if any(id in answer for id in wanted):
            tx.run(
                "UPDATE idempotency SET answer = ? WHERE actor = ? AND operation = ? AND key = ?",
                (_PURGED, actor, operation, key),
            )


def keep(tx: Tx, operation: str, key: str, wanted: bytes, answer: bytes) -> None:
    """Store the result, and remove some that are over 24 hours old."""
    tx.run(
        "DELETE FROM idempotency WHERE (actor, operation, key) IN"
        " (SELECT actor, operation, key FROM idempotency WHERE expires <= ?"
        " AND (SELECT calm FROM meta) <= ? LIMIT ?)",
        (tx.now, tx.now - LIFETIME, _CLEAN_UP),
    )
    tx.run(
        "INSERT OR REPLACE INTO idempotency (actor, operation, key, digest, expires, answer) VALUES (?, ?, ?, ?, ?, ?)",
        (tx.actor, operation, key, wanted, tx.now + LIFETIME, answer),
    )
