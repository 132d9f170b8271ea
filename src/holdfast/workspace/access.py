"""What a caller of a server may do: the role of its token, and the one actor a bound token acts as.

The HTTP and MCP faces check every call with this, so that an operation has the same rules at every address and tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.operation import Operation, find_operation
from holdfast.route import Role
from holdfast.types import Op

ROLES: Final[tuple[Role, ...]] = get_args(Role)
_ACTING: Final = ("agent", "holder", "sender")  # arguments that say who acts


def allows(role: Role, needed: Role) -> bool:
    """Whether a role includes another."""
    return ROLES.index(role) >= ROLES.index(needed)


def check_role(op: Operation[..., Any], role: Role) -> None:
    """Raise Forbidden unless the role is enough for the operation."""
    needed = op.role
    if not allows(role, needed):
        raise errors.Forbidden(
            f"{op.name} needs a token with the role {needed}, this one has {role}",
            hint=f"holdfast token create --role {needed} makes one",
        )


class Access(msgspec.Struct, frozen=True):
    """The rights of one caller. `bound`: its token may act as `actor` only."""

    token: str  # its id
    role: Role
    actor: str
    bound: bool = False

    def check(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """Raise Forbidden unless the caller may make this call."""
        check_role(op, self.role)
        self.check_actor(op, given)

    def check_actor(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """Raise Forbidden if a bound token acts for somebody else, also inside a txn, or a step of it needs more."""
        if op.route.nests:
            for step in _steps(given):
                inner = find_operation(step.op)  # txn itself refuses an unknown one
                if inner is not None:
                    self.check(inner, step.args if isinstance(step.args, dict) else {})
        for name, value in op.route.admin_only.items():
            if given.get(name) == value and self.role != "admin":
                raise errors.Forbidden(f"{name} {value} needs a token with the role admin")
        if not self.bound or not (op.writes or op.route.private):
            return
        for name in (*_ACTING, op.route.names_actor):
            if given.get(name) not in (None, self.actor):
                raise errors.Forbidden(f"this token acts as {self.actor}, not as {given[name]}")
        if op.route.confined_by:
            given[op.route.confined_by] = self.actor


def _steps(given: dict[str, Any]) -> Iterator[Op]:
    """The operations of a txn, of either branch; txn itself refuses what is not an Op."""
    for name in ("then", "otherwise"):
        branch = given.get(name, ())
        if isinstance(branch, list | tuple):
            yield from (step for step in branch if isinstance(step, Op))
