"""`ws.links`: links between tasks, trails and stashes. Both ends exist and have the right kind; links never change.

A link between tasks is the same as one made by `tasks.depend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types, trails
from holdfast.domains.stashes import A_TRAIL, HITS, SCOPED, open_trail, rescope
from holdfast.domains.stashes.rows import GLOBAL, SCOPED_TO
from holdfast.domains.stashes.rows import require as require_stash
from holdfast.domains.tasks import tree
from holdfast.domains.tasks.rows import require as require_task
from holdfast.domains.trails import BELONGS_TO, BRANCHES_FROM, ON_TRAIL
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import any_of, check_id, check_limit
from holdfast.operation import Domain, Found, M, read, write
from holdfast.route import example
from holdfast.types import Page, as_time
from holdfast.types.stashes import Link, LinkType

CHILD_OF: Final = "child_of"
_COLUMNS: Final = "id, kind, source, target, created"


def to_link(row: Row) -> Link:
    """Return the public form of a row."""
    id, kind, source, target, created = row
    return Link(id, kind, source, target, as_time(created))


def create(tx: Tx, link_type: LinkType, from_id: str, to_id: str) -> Link:
    """Create a link, or return the existing one. Raises WouldCreateCycle, Exists or DuplicateName."""
    _check_type(link_type)
    check_id(from_id, "from_id")
    check_id(to_id, "to_id")
    return get(tx, _MAKERS[link_type](tx, from_id, to_id))


def _scope(tx: Tx, stash: str, trail: str) -> str:
    own = require_stash(tx, stash)
    open_trail(tx, trail)
    if own.trail not in (GLOBAL, trail):
        raise errors.Exists(f"the stash {own.id} is already in the trail {own.trail}", hint="delete that link first")
    if own.trail == GLOBAL:
        rescope(tx, own.id, trail)
    return link_types.tie(tx, SCOPED_TO, own.id, trail)


def _branch(tx: Tx, trail: str, task: str) -> str:
    trails.get(tx, trail)
    own = require_task(tx, task).id
    others = [each for each in link_types.targets(tx, BRANCHES_FROM, trail) if each != own]
    if others:
        raise errors.Exists(f"the trail {trail} already branches from {others[0]}", hint="delete that link first")
    return link_types.tie(tx, BRANCHES_FROM, trail, own)


def _child(tx: Tx, task: str, parent: str) -> str:
    own, above = require_task(tx, task).id, require_task(tx, parent).id
    path = [own] if own == above else link_types.path(tx, CHILD_OF, above, own)
    if path is not None:
        around = [own, *path]
        raise errors.WouldCreateCycle(f"the link would close a cycle: {' -> '.join(around)}", id=own, path=around)
    return link_types.tie(tx, CHILD_OF, own, above)


def _between_tasks(kind: Any) -> Callable[[Tx, str, str], str]:
    def make(tx: Tx, task: str, other: str) -> str:
        tree.depend(tx, task, other, kind)
        return str(link_types.find(tx, kind, task, other))

    return make


# Each makes a link, or finds it, and returns its id.
_MAKERS: Final[dict[str, Callable[[Tx, str, str], str]]] = {
    BELONGS_TO: trails.join,
    CHILD_OF: _child,
    BRANCHES_FROM: _branch,
    SCOPED_TO: _scope,
    **{kind: _between_tasks(kind) for kind in tree.KINDS},
}


def get(snapshot: Snapshot, id: str) -> Link:
    """Return a link by its id. Raises NotFound."""
    check_id(id)
    row = snapshot.one(f"SELECT {_COLUMNS} FROM links WHERE id = ?", (id,))
    if row is None:
        raise errors.NotFound(f"there is no link {id!r}", hint="links.list() lists them", id=id)
    return to_link(row)


def list_links(
    snapshot: Snapshot,
    link_type: LinkType | Sequence[LinkType] | None = None,
    from_id: str | None = None,
    to_id: str | None = None,
    limit: int = 1000,
    after: str = "",
) -> Page[Link]:
    """List the links that match every filter, in the order of creation; `after` is the last id of the previous page."""
    check_limit(limit, 1000, "after")
    kind, types = any_of("kind", link_type, _check_type)
    wanted = {"source": from_id, "target": to_id}
    for name, value in (*wanted.items(), ("after", after)):
        if value is not None and not isinstance(value, str):
            raise errors.InvalidFilter(f"{name} must be a str, not {type(value).__name__}")
        if value:
            check_id(value, name)
    given = {name: value for name, value in wanted.items() if value is not None}
    where = "".join(f" AND {name} = ?" for name in given)
    rows, more = snapshot.page(
        f"SELECT {_COLUMNS} FROM links WHERE id > ?{kind}{where} ORDER BY id LIMIT ?",
        (after, *types, *given.values()),
        limit,
    )
    return Page.of(map(to_link, rows), more, lambda link: link.id)


def delete(tx: Tx, id: str) -> None:
    """Delete a link. Raises NotFound, or DuplicateName if a stash cannot become global."""
    link = get(tx, id)
    if link.link_type in tree.KINDS:
        tree.undepend(tx, link.from_id, link.to_id, link.link_type)
        return
    if link.link_type == SCOPED_TO:
        rescope(tx, link.from_id, GLOBAL)
    link_types.untie(tx, link.link_type, link.from_id, link.to_id)


def _check_type(link_type: Any) -> None:
    if link_type not in link_types.TYPES:
        raise errors.InvalidType(
            f"{link_type!r} is not a type of link",
            hint=f"types: {', '.join(link_types.TYPES)}",
            types=list(link_types.TYPES),
        )


def probe(tx: Tx, link_type: str, from_id: str, to_id: str) -> Found | None:
    """What a condition sees of a link, which is known by what it links: its id. It has one version only."""
    _check_type(link_type)
    check_id(from_id, "from_id")
    check_id(to_id, "to_id")
    id = link_types.find(tx, link_type, from_id, to_id)
    return None if id is None else Found(1, id)


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report links that differ from the log, or name tasks that do not exist."""
    for id, data, *row in snapshot.all(
        "SELECT k.id, (SELECT data FROM log WHERE record = r.key AND op = 'create' ORDER BY version DESC LIMIT 1),"
        " k.kind, k.source, k.target FROM links k JOIN records r ON r.kind = ? AND r.scope = '' AND r.id = k.id",
        (link_types.LINK,),
    ):
        if data is not None and [*msgspec.msgpack.decode(data).values()] != row:
            yield f"link {id} differs from the log"
    for (id,) in snapshot.all(
        "SELECT id FROM links WHERE kind IN (?, ?)"
        " AND NOT EXISTS (SELECT 1 FROM records r WHERE r.kind = ? AND r.scope = '' AND r.id = links.id)",
        (BELONGS_TO, SCOPED_TO, link_types.LINK),
    ):
        yield f"link {id} is in the store, but not in the log"
    for kind, column in ((BELONGS_TO, "source"), (CHILD_OF, "source"), (CHILD_OF, "target"), (BRANCHES_FROM, "target")):
        for id, end in snapshot.all(
            f"SELECT id, {column} FROM links WHERE kind = ?"
            f" AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = links.{column})",
            (kind,),
        ):
            yield f"link {id} names the task {end}, which does not exist"


class Links(Domain[M]):
    """`ws.links`."""

    prefix = "links"
    create = write(
        create,
        http="POST /api/links",
        cli="link create",
        help="Link two records, such as a stash to the trail that it is for.",
        examples=(
            "holdfast link create child_of hf-3m9x hf-7k2q",
            example(
                "holdfast link create scoped_to $(holdfast stash list -q) $(holdfast trail list -q)", A_TRAIL, HITS
            ),
        ),
        creates=True,
    )
    get = read(
        get,
        http="GET /api/links/{id}",
        cli="link get",
        help="Show a link.",
        examples=(example("holdfast link get $(holdfast link list -q --type scoped_to)", *SCOPED),),
    )
    list = read(
        list_links,
        http="GET /api/links",
        listing=True,
        cli="link list",
        help="List links, oldest first.",
        examples=(example("holdfast link list --type belongs_to", *ON_TRAIL), "holdfast link list --to hf-7k2q"),
    )
    delete = write(
        delete,
        http="DELETE /api/links/{id}",
        cli="link delete",
        done=("deleted the link {id}",),
        help="Remove a link.",
        examples=(example("holdfast link delete $(holdfast link list -q --type scoped_to)", *SCOPED),),
    )
