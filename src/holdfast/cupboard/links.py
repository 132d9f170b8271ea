"""Links of a cupboard. A link never changes: another one is another link."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holdfast import errors
from holdfast.cupboard.table import PAGE, Entity, Table, also, part
from holdfast.types import stashes as types

if TYPE_CHECKING:
    from holdfast.cupboard.attachment import AnyWorkspace


class Link(Entity):
    """A link in memory: from one record to another."""

    kind = "link"

    def __init__(self, link_type: str = "", from_id: str = "", to_id: str = "", **go: Any) -> None:
        given = self.given(go, link_type=link_type, from_id=from_id, to_id=to_id)
        self.id = ""
        self.link_type: str = given["link_type"]
        self.from_id: str = given["from_id"]
        self.to_id: str = given["to_id"]
        self.created_at: datetime | None = None

    @classmethod
    def of(cls, stored: types.Link) -> Link:
        """A link as it is stored."""
        link = cls()
        link.become(stored)
        return link

    def become(self, stored: types.Link) -> None:
        """Be as it is stored."""
        self.id, self.created_at = stored.id, stored.created_at
        self.link_type, self.from_id, self.to_id = stored.link_type, stored.from_id, stored.to_id

    LinkID = also("id")
    link_id = also("id")
    LinkType = also("link_type")
    FromID = also("from_id")
    ToID = also("to_id")
    CreatedAt = also("created_at")


class Links(Table[Link]):
    """The table `links`."""

    entity = Link
    filters: ClassVar[dict[str, type[Any]]] = {"link_type": str, "from_id": str, "to_id": str}

    def _get(self, ws: AnyWorkspace, id: str) -> Link:
        return Link.of(ws.links.get(id))

    def _create(self, ws: AnyWorkspace, entity: Link) -> None:
        link_type: Any = entity.link_type
        entity.become(ws.links.create(link_type, entity.from_id, entity.to_id))

    def _save(self, ws: AnyWorkspace, entity: Link) -> None:
        stored = ws.links.get(entity.id)
        if (entity.link_type, entity.from_id, entity.to_id) != (stored.link_type, stored.from_id, stored.to_id):
            raise errors.Invalid("a link never changes", hint="delete it, and set another one")

    def _delete(self, ws: AnyWorkspace, id: str) -> None:
        ws.links.delete(id)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Link]:
        if "" in wanted.values() or wanted.get("link_type", "related") not in get_args(types.LinkType):
            return []  # there is none
        found: list[types.Link] = []
        while page := ws.links.list(**wanted, limit=PAGE, after=found[-1].id if found else ""):
            found += page
        return [Link.of(stored) for stored in part(found, limit, offset)]
