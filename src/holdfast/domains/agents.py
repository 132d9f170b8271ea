"""`ws.agents`: the agents that work here, their programs and abilities, and when they were last seen.

Registering is optional: an agent that writes under a chosen name is known by it. A registration adds a description, and
the abilities that its claims use. Two agents never share a name by accident: a name that was only derived from user and
host cannot claim, lock or mail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.kernel import activity
from holdfast.kernel.events import compare, pairs, pasts
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Row, Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_flag, check_limit, check_name, page_bounds
from holdfast.operation import Domain, Found, M, read, write
from holdfast.route import example
from holdfast.types import Page, as_time
from holdfast.types.agents import Agent, Role

AGENT: Final = "agent"
ROLES: Final[tuple[Role, ...]] = get_args(Role)
MAX_ABILITIES: Final = 100
_COLUMNS = (
    "n.name, coalesce(a.program, ''), coalesce(a.model, ''), coalesce(a.role, 'agent'), coalesce(a.can, '[]'),"
    " a.registered, s.seen, coalesce(a.version, 0), coalesce(a.revision, 0)"
)
_JOINS = "LEFT JOIN agents a ON a.name = n.name LEFT JOIN actors s ON s.name = n.name"
_names = msgspec.json.Decoder(tuple[str, ...]).decode


def _agent(row: Row) -> Agent:
    name, program, model, role, can, registered, seen, version, revision = row
    registered_at, seen_at = (None if time is None else as_time(time) for time in (registered, seen))
    return Agent(name, program, model, role, _names(can), registered_at, seen_at, version, revision)


def register(
    tx: Tx,
    name: str | None = None,
    program: str | None = None,
    model: str | None = None,
    can: Sequence[str] | None = None,
    role: Role | None = None,
    new: bool = False,
) -> Agent:
    """Register an agent, or change its registration; omitted arguments keep their values.

    `can` lists the abilities that its claims have by default; an empty list means unspecified. With `new`, raises
    Exists if the name is known already.
    """
    name = holder_of(tx, name, "agent")
    given = {
        "program": None if program is None else _label(program, "program"),
        "model": None if model is None else _label(model, "model"),
        "role": None if role is None else _check_role(role),
        "can": None if can is None else _check_can(can),
    }
    old = find(tx, name)
    check_flag(new=new)
    if new and old is not None:
        raise errors.Exists(f"the agent {name!r} already exists", hint="choose another name", name=name)
    if old is None:
        old = Agent(name, "", "", "agent", (), None, None, 0, 0)
    changes = {
        field: [getattr(old, field), value]
        for field, value in given.items()
        if value is not None and value != getattr(old, field)
    }
    agent = msgspec.structs.replace(old, **{field: value for field, (_, value) in changes.items()})
    if old.registered_at is not None and not changes:
        return old
    version = (old.version or newest_version(tx, AGENT, "", name)) + 1
    can_do = msgspec.json.encode(agent.can).decode()
    tx.run(
        "INSERT INTO agents (name, program, model, role, can, registered, version, revision)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET program = excluded.program,"
        " model = excluded.model, role = excluded.role, can = excluded.can, version = excluded.version,"
        " revision = excluded.revision",
        (name, agent.program, agent.model, agent.role, can_do, tx.now, version, tx.revision),
    )
    tx.emit(AGENT, name, "register", version=version, data=msgspec.msgpack.encode(changes))
    return msgspec.structs.replace(get(tx, name), seen_at=as_time(tx.now))


def forget(tx: Tx, name: str) -> bool:
    """Forget an agent that is gone; False if it is unknown. Its claims, locks and mail stay.

    If it writes again, it is known again within a second.
    """
    check_name(name, "name")
    registered = tx.run("DELETE FROM agents WHERE name = ?", (name,))
    seen = activity.forget(tx, name)
    if registered or seen:
        tx.emit(AGENT, name, "forget")
    return bool(registered or seen)


def find(snapshot: Snapshot, name: str) -> Agent | None:
    """Return an agent by its name, or None."""
    check_name(name, "name")
    row = snapshot.one(f"SELECT {_COLUMNS} FROM (SELECT ? AS name) n {_JOINS}", (name,))
    assert row is not None
    return None if row[5] is None and row[6] is None else _agent(row)


def get(snapshot: Snapshot, name: str) -> Agent:
    """Return an agent by its name. Raises NotFound if it has neither registered nor written."""
    agent = find(snapshot, name)
    if agent is None:
        raise errors.NotFound(f"there is no agent {name!r}", hint="agents.list() lists the known ones", name=name)
    return agent


def list_agents(snapshot: Snapshot, prefix: str = "", limit: int = 1000, after: str = "") -> Page[Agent]:
    """List the agents that registered or wrote, by name; `after` is the last name of the previous page."""
    check_limit(limit, 1000, "after")
    bounds, params = page_bounds("name", prefix, after)
    rows, more = snapshot.page(
        f"SELECT {_COLUMNS} FROM (SELECT name FROM agents WHERE true{bounds} UNION SELECT name FROM actors WHERE true"
        f"{bounds} ORDER BY name LIMIT ?) n {_JOINS} ORDER BY n.name LIMIT ?",
        (*params, *params, limit + 1),
        limit,
    )
    return Page.of(map(_agent, rows), more, lambda agent: agent.name)


# --- for other domains -----------------------------------------------------------------------------------------------


def known(snapshot: Snapshot) -> list[str]:
    """Return the names of all agents except observers."""
    rows = snapshot.all(
        "SELECT name FROM actors UNION SELECT name FROM agents"
        " EXCEPT SELECT name FROM agents WHERE role = 'observer' ORDER BY name"
    )
    return [name for (name,) in rows]


_COMPARED: Final = 500  # known names at most: a write waits for it
_SHOWN: Final = 10


def unknown(snapshot: Snapshot, names: Sequence[str], me: str) -> tuple[str, ...]:
    """Return a warning for each name that has neither registered nor written, with the nearest known one.

    `me` is about to write, and known by that.
    """
    missing = [name for name in names if name != me and find(snapshot, name) is None]
    if not missing:
        return ()
    from difflib import get_close_matches  # most names are known

    there = sorted({*_some_known(snapshot), me})
    spelled = {name.casefold(): name for name in reversed(there)}
    shown = ", ".join(there[:_SHOWN]) + (", …" if len(there) > _SHOWN else "")
    warnings = []
    for name in missing[:_SHOWN]:
        near = get_close_matches(name.casefold(), spelled, 1)
        also = f" (did you mean {spelled[near[0]]}?)" if near else ""
        warnings.append(f"{name} has not been seen here; known: {shown or 'nobody'}{also}")
    if len(missing) > _SHOWN:
        warnings.append(f"{len(missing) - _SHOWN} more recipients have not been seen here")
    return tuple(warnings)


def _some_known(snapshot: Snapshot) -> Iterator[str]:
    """Names of agents except observers; so many that a write can compare them."""
    query = "SELECT name, {} FROM {} WHERE name > '' ORDER BY name LIMIT ?"
    rows: dict[str, str | None] = dict(snapshot.all(query.format("NULL", "actors"), (_COMPARED,)))
    rows |= dict(snapshot.all(query.format("role", "agents"), (_COMPARED,)))
    return (name for name, role in rows.items() if role != "observer")


def role_of(snapshot: Snapshot, name: str) -> str:
    """Return an agent's role; one that has not registered is an "agent"."""
    row = snapshot.one("SELECT role FROM agents WHERE name = ?", (name,))
    return "agent" if row is None else row[0]


def abilities(snapshot: Snapshot, name: str) -> frozenset[str] | None:
    """Return the abilities that an agent registered, None if unspecified."""
    row = snapshot.one("SELECT can FROM agents WHERE name = ? AND can <> '[]'", (name,))
    return None if row is None else frozenset(_names(row[0]))


def probe(tx: Tx, name: str) -> Found | None:
    """What a condition of `txn` sees of an agent: its role as value."""
    agent = find(tx, name)
    return None if agent is None else Found(agent.version, agent.role)


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report registrations that differ from the log, and rows of `actors` that nobody wrote."""

    def changes(data: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        found = pairs(data)
        if "can" in found:
            found["can"] = (None, msgspec.json.encode(found["can"][1]).decode())
        return found

    columns = ("program", "model", "role", "can", "created", "version", "revision")
    rows = "SELECT name, program, model, role, can, registered, version, revision FROM agents"
    unsaid = {"program": "", "model": "", "role": "agent", "can": "[]"}
    yield from compare(snapshot, AGENT, pasts(snapshot, AGENT, changes), rows, columns, unsaid)
    yield from activity.check(snapshot)


# --- checks of a registration ----------------------------------------------------------------------------------------


def _label(text: Any, what: str) -> str:
    if text != "":
        check_name(text, what)
    return str(text)


def _check_role(role: Role) -> Role:
    if role not in ROLES:
        raise errors.Invalid(f"role must be one of {', '.join(ROLES)}, not {role!r}")
    return role


def check_abilities(can: Any) -> frozenset[str]:
    """Return an agent's abilities. Raises Invalid."""
    if isinstance(can, str) or not isinstance(can, Sequence | set | frozenset):
        raise errors.Invalid(f"can must be a list of names, not {can!r}", hint='such as can=["python", "review"]')
    for name in can:
        check_name(name, "ability")
    return frozenset(can)


def _check_can(can: Any) -> tuple[str, ...]:
    able = check_abilities(can)
    if len(able) > MAX_ABILITIES:
        raise errors.TooLarge(f"an agent has at most {MAX_ABILITIES} abilities", limit=MAX_ABILITIES)
    return tuple(sorted(able))


# What examples need.
_CLAIM: Final = "holdfast claim hf-7k2q"


class Agents(Domain[M]):
    """`ws.agents`."""

    prefix = "agents"
    register = write(
        register,
        http="POST /api/agents",
        cli="agent register [NAME]",
        help="Make yourself known, or change what is known of you.",
        examples=("holdfast agent register --program claude --can python --can review",),
        admin_only={"role": "maintainer"},
        names_actor="name",
    )
    forget = write(
        forget,
        http="DELETE /api/agents/{name}",
        cli="agent forget",
        done=("forgot {name}",),
        help="Forget an agent that is gone; what it holds and its mail stay.",
        nothing=("there is no agent {name}, so nothing was forgotten",),
        examples=(example("holdfast agent forget agent-2", "holdfast claim hf-7k2q --actor agent-2"),),
        role="admin",
    )
    get = read(
        get,
        http="GET /api/agents/{name}",
        plain=True,
        cli="agent get",
        help="Show what is known of an agent.",
        examples=(example("holdfast agent get agent-1", _CLAIM),),
    )
    list = read(
        list_agents,
        http="GET /api/agents",
        cli="agent list [PREFIX]",
        help="List the agents that registered or wrote something.",
        examples=("holdfast agent list",),
    )
