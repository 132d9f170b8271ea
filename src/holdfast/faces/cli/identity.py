"""The acting name, its source, and whether it may hold anything: for `holdfast where`, `doctor` and `prime`.

Other commands only need the name (`Session.acting`), and load nothing of this.
"""

from __future__ import annotations

import msgspec

from holdfast import errors
from holdfast.faces.cli.call import Session
from holdfast.types import DerivedActor
from holdfast.workspace.context import derive_actor


class Identity(msgspec.Struct, frozen=True):
    """The acting name, its source, and the role that a server grants."""

    actor: str
    why: str
    role: str | None = None

    @property
    def may_hold(self) -> bool:
        """Whether this name may claim, lock and mail."""
        return not isinstance(self.actor, DerivedActor) and self.role != "read"


def identify(session: Session) -> Identity:
    """The acting name and its source; a server is asked, because its token may decide that."""
    known = _known(session)
    if session.place.folder is not None:
        return known
    try:
        told = session.told
    except errors.HoldfastError as error:
        return msgspec.structs.replace(known, why=f"{known.why}; the server was asked, but: {error.message}")
    if told["actor"] is None:
        return msgspec.structs.replace(known, role=told["role"])
    why = "bound to the token for this server"
    if session.chosen not in (None, told["actor"]):
        why += f", which refuses calls as {session.chosen} ({known.why})"
    return Identity(told["actor"], why, told["role"])


def name_of(session: Session) -> str | None:
    """The name under which a call may hold something, as far as it has one; None if it has none."""
    name = session.acting()
    if name is None and session.place.folder is None:
        who = identify(session)
        return who.actor if who.may_hold else None
    return name


def _known(session: Session) -> Identity:
    """The same, as far as this machine knows."""
    if session.given.get("actor"):
        return Identity(session.given["actor"], "--actor")
    if session.environ.get("HOLDFAST_ACTOR"):
        return Identity(session.environ["HOLDFAST_ACTOR"], "HOLDFAST_ACTOR")
    if session.recorded:
        return Identity(session.recorded, "recorded by the hooks of this client's session")
    why = "derived from user and host; it may read, create and change, but not claim, lock or mail: see --actor"
    if several := session.several:
        why = f"derived, because several sessions of this client act at once ({several}): give --actor"
    return Identity(derive_actor(), why)
