"""`ws.leases`: leases that users make. Cells and locks bound to a lease end together with it if it is not refreshed."""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.kernel import leases as kernel
from holdfast.kernel.tx import Row, Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_limit, check_name, check_ttl
from holdfast.operation import Domain, Found, M, read, write
from holdfast.route import example
from holdfast.types import Lease, Page, as_time

_COLUMNS = "id, holder, ttl, created, deadline"


def _lease(row: Row) -> Lease:
    id, holder, ttl, created, deadline = row
    return Lease(id, holder, ttl / 1e6, as_time(created), as_time(deadline))


def _missing(id: str) -> errors.NotFound:
    hint = "it may have expired: create a new one and bind to that"
    return errors.NotFound(f"there is no lease {id!r}", hint=hint, id=id)


def create_lease(tx: Tx, ttl: float, holder: str | None = None) -> Lease:
    """Create a lease that ends after `ttl` seconds unless it is refreshed."""
    holder = str(tx.actor) if holder is None else holder
    check_name(holder, "holder")
    id = kernel.start(tx, kernel.LEASE, holder, check_ttl(ttl))
    tx.emit(kernel.LEASE, id, "create", version=1)
    return get_lease(tx, id)


def refresh_lease(tx: Tx, id: str, holder: str | None = None) -> Lease:
    """Extend one's lease by its ttl from now. Raises NotFound if it has expired: it cannot come back; or NotHolder."""
    _require_own(tx, id, holder)
    kernel.renew(tx, id)
    return get_lease(tx, id)


def revoke_lease(tx: Tx, id: str, holder: str | None = None) -> None:
    """End one's lease now with everything bound to it, in one transaction. Raises NotFound, or NotHolder."""
    _require_own(tx, id, holder)
    kernel.finish(tx, id, kernel.LEASE, "revoke")


def _require_own(tx: Tx, id: str, holder: str | None) -> None:
    """Raise NotHolder unless the lease is the holder's, who is the actor unless named."""
    holder = str(tx.actor) if holder is None else holder
    check_name(holder, "holder")
    owner = get_lease(tx, id).holder
    if owner != holder:
        hint = f"ask {owner} by mail, or wait until it expires"
        raise errors.NotHolder(f"the lease {id} is held by {owner}, not by {holder}", hint=hint, holder=owner)


def get_lease(snapshot: Snapshot, id: str) -> Lease:
    """Return a live lease. Raises NotFound."""
    check_name(id, "lease")
    row = snapshot.one(
        f"SELECT {_COLUMNS}, (SELECT stamp FROM meta) FROM leases WHERE id = ? AND kind = ?", (id, kernel.LEASE)
    )
    if row is None or snapshot.is_past(row[4], row[5]):
        raise _missing(id)
    return _lease(row[:5])


def list_leases(snapshot: Snapshot, limit: int = 1000, after: str = "") -> Page[Lease]:
    """List live leases, oldest first; `after` is the last id of the previous page."""
    check_limit(limit, 1000, "after")
    if after != "":
        check_name(after, "after")
    rows, more = snapshot.page(
        f"SELECT {_COLUMNS} FROM leases WHERE kind = 'lease' AND id > ? ORDER BY id LIMIT ?", (after,), limit
    )
    return Page.of(map(_lease, rows), more, lambda lease: lease.id)


def require_lease(tx: Tx, id: str) -> None:
    """Raise NotFound unless `id` is a live lease of a user; expired ones were swept before this transaction."""
    check_name(id, "lease")
    if not tx.one("SELECT 1 FROM leases WHERE id = ? AND kind = ?", (id, kernel.LEASE)):
        raise _missing(id)


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a lease: its holder as value."""
    check_name(id, "lease")
    row = tx.one("SELECT holder FROM leases WHERE id = ? AND kind = ?", (id, kernel.LEASE))
    return None if row is None else Found(newest_version(tx, kernel.LEASE, "", id), row[0])


# What examples need.
_LEASE: Final = "holdfast lease create 60s"


class Leases(Domain[M]):
    """`ws.leases`."""

    prefix = "leases"
    create = write(
        create_lease,
        http="POST /api/leases",
        cli="lease create",
        help="Make a lease, and print its id; it ends unless refreshed.",
        examples=(_LEASE, "lease=$(holdfast lease create 60s -q) && holdfast lock acquire deploy --lease $lease"),
        creates=True,
    )
    refresh = write(
        refresh_lease,
        http="POST /api/leases/{id}/refresh",
        cli="lease refresh",
        help="Let a lease run for its time again.",
        examples=(example("holdfast lease refresh $(holdfast lease list -q --limit 1)", _LEASE),),
    )
    revoke = write(
        revoke_lease,
        http="DELETE /api/leases/{id}",
        cli="lease revoke",
        done=("ended the lease {id}, and what hung on it",),
        help="End a lease now, and everything bound to it.",
        examples=(example("holdfast lease revoke $(holdfast lease list -q --limit 1)", _LEASE),),
    )
    get = read(
        get_lease,
        http="GET /api/leases/{id}",
        plain=True,
        cli="lease get",
        help="Show a lease that is alive.",
        examples=(example("holdfast lease get $(holdfast lease list -q --limit 1)", _LEASE),),
    )
    list = read(
        list_leases,
        http="GET /api/leases",
        listing=True,
        cli="lease list",
        help="List the leases that are alive, oldest first.",
        examples=("holdfast lease list",),
    )
