"""The context of a call: actor, fence, idempotency key, at_least; and what its caller may do.

`ws.using(...)` sets the context, over HTTP it is headers, on the command line global options. `surround` puts it around
a body: the key is looked up first (a repeated call gets its stored answer, whatever became of its lock), then the
fence is checked.

Servers check every call with `Access`, the role of its token and the one actor that a bound token acts as, so that an
operation has the same rules at every address and tool.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

import msgspec

from holdfast import errors
from holdfast.ids import is_uuid7
from holdfast.kernel import events, idempotency
from holdfast.kernel.leases import NOBODY
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_name
from holdfast.kernel.values import decode, encode
from holdfast.operation import Operation, find_operation
from holdfast.route import ANY, LOADING, Role
from holdfast.types import DerivedActor, Op, TxnResult

if TYPE_CHECKING:
    from holdfast.domains.locks import Target

# What a fence names: a lock, (run, cell), or a lock stash or the queue of an item, by its id or by (trail, name), which
# is ("", name) if it is global. As one text the two are joined by a slash.
FenceName = str | tuple[str | None, str]
Fence = tuple[FenceName, int]  # with the token of the grant
Body = Callable[[Tx], Any]
LATEST: Literal["latest"] = "latest"  # for at_least: whatever was acknowledged anywhere before the call


class Closing:
    """Something that is closed by hand, or at the end of a `with` block."""

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CallerGoneError(Exception):
    """The caller waits no longer, and may have done by now what this write would do."""


class PassingKey(str):
    """A key that a call made for itself, in case it must be repeated before it has returned.

    A call that changed nothing does not store it: whoever repeats it has not seen the answer, and it may as well happen
    now. So calls that carry one leave no more behind than those without.
    """

    __slots__ = ()


class Context(msgspec.Struct, frozen=True):
    """The context of a call. `until` is the monotonic time after which none of its writes may begin."""

    actor: str
    fence: Fence | None = None
    key: str | None = None
    at_least: int | Literal["latest"] | None = None
    until: float | None = None

    def with_(self, **given: Any) -> Context:
        """The same, with the given fields replaced."""
        return check_context(msgspec.structs.replace(self, **{k: v for k, v in given.items() if v is not None}))

    @property
    def plain(self) -> bool:
        """Whether there is nothing to check."""
        return self.fence is None and self.key is None and self.at_least is None


def derive_actor(environ: Mapping[str, str] = os.environ) -> str:
    """HOLDFAST_ACTOR if set, otherwise user@host, which cannot hold anything."""
    chosen = environ.get("HOLDFAST_ACTOR")
    if chosen:
        check_name(chosen, "HOLDFAST_ACTOR")
        return chosen
    user = environ.get("USER") or environ.get("LOGNAME") or "user"
    return DerivedActor(f"{user}@{os.uname().nodename}")


def check_context(context: Context) -> Context:
    """Raise Invalid for a context that could not work, before it is used."""
    if not isinstance(context.actor, DerivedActor):
        check_name(context.actor, "actor")
    if context.actor in NOBODY:
        raise errors.Invalid(f"the actor cannot be {context.actor!r}", hint="choose another name")
    if context.key is not None:
        check_name(str(context.key) if isinstance(context.key, PassingKey) else context.key, "key")
    if context.fence is not None:
        match context.fence:
            case (str() | (str() | None, str()), int() as token) if token is not True and token is not False:
                _check_fenced(context.fence[0])
            case _:
                raise errors.Invalid(
                    f"a fence is (lock, token), not {context.fence!r}",
                    hint='such as ("deploy", grant.token)',
                )
    at_least = context.at_least
    if at_least is not None and at_least != LATEST and (type(at_least) is not int or at_least < 0):
        raise errors.Invalid(f"at_least is a revision, or {LATEST!r}, not {at_least!r}")
    return context


def _check_fenced(name: FenceName) -> None:
    """Raise Invalid for what cannot name a lock."""
    if isinstance(name, str):
        check_name(name, "lock name")
        return
    if name[0]:
        check_name(name[0], "run or trail")
    check_name(name[1], "cell or stash name")


def _targets(tx: Tx, name: FenceName) -> list[Target]:
    """The locks that a fence may mean. No two grants share a token, so only one of them can pass."""
    with LOADING:
        from holdfast.domains import locks  # here and below: only a call with a fence needs them

    found = [locks.named(name)] if isinstance(name, str) else []
    if isinstance(name, str) and "/" not in name and not is_uuid7(name):
        return found
    with LOADING:
        from holdfast.domains import cells  # only a fence by an id or by two names
        from holdfast.domains.stashes import rows

    if isinstance(name, str) and "/" not in name:
        return [*found, rows.lock_of(name)]
    first, second = name.split("/", 1) if isinstance(name, str) else name
    if first and second:
        found.append(cells.locked(first, second))
    stash = rows.id_of(tx, first or rows.GLOBAL, second)
    return found if stash is None else [*found, rows.lock_of(stash)]


def _check_fence(tx: Tx, fence: Fence) -> None:
    """Raise Fenced unless the lock is held with this token, NotHolder if the caller acts under another name."""
    with LOADING:
        from holdfast.domains import locks

    name, token = fence
    targets = _targets(tx, name)
    item = _item_holder(tx, targets, token)
    if item is not None:
        _check_holder(tx, targets[-1], item)
        return
    held = [(target, row[2]) for target in targets if (row := locks.load(tx, target)) is not None]
    meant = [target for target, current in held if current == token] or [target for target, _ in held]
    known = meant or [target for target in targets if newest_version(tx, *target.key)]
    if not known:
        _refuse_item(tx, targets, token)
        shown = name if isinstance(name, str) else f"{name[0] or ''}/{name[1]}"
        raise errors.Fenced(
            f"there is no lock {shown!r}",
            hint="acquire it first, and check the name: a cell's lock is RUN/CELL, that of a stash TRAIL/NAME, /NAME"
            " if the stash is global, or its id",
            current=None,
        )
    holder = locks.check_fence(tx, known[0], token)
    _check_holder(tx, known[0], holder)


def _item_holder(tx: Tx, targets: Sequence[Target], token: int) -> str | None:
    """The holder of the queue item that a fence may mean, if it is taken with this token."""
    if not targets or targets[-1].kind != "stash-lock":
        return None
    with LOADING:
        from holdfast.domains.stashes import queue_rows

    return queue_rows.holder_of_item(tx, targets[-1].name, token)


def _refuse_item(tx: Tx, targets: Sequence[Target], token: int) -> None:
    """Raise Fenced if the fence names a queue, no item of which is taken with this token."""
    name = targets[-1].name if targets and targets[-1].kind == "stash-lock" else ""
    queue = tx.one("SELECT name FROM stashes WHERE id = ? AND type = 'queue'", (name,))
    if queue is not None:
        raise errors.Fenced(
            f"no item of the queue {queue[0]!r} is taken with the token {token}",
            hint="the item was acknowledged or given back, or its lease has ended: take one again",
            current=None,
        )


def _check_holder(tx: Tx, target: Target, holder: str) -> None:
    if tx.actor != holder and not isinstance(tx.actor, DerivedActor):  # who chose no name claims to be nobody else
        with LOADING:
            from holdfast.domains import locks

        raise locks.not_holder(target, holder, tx.actor)


def check_reached(snapshot: Snapshot, at_least: int | Literal["latest"] | None) -> None:
    """Raise Behind unless this store has reached the revision that the caller has seen."""
    if isinstance(at_least, int):
        revision = events.marks(snapshot)[0]
        if revision < at_least:
            raise events.behind(revision, at_least)


class Answers(msgspec.Struct, frozen=True):
    """How the results of an operation are stored for a repeated call."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def surround(context: Context, body: Body, operation: str, digest: bytes, answers: Answers) -> Body:
    """The body with its context around it: look up the key, check the fence, run the body, store its result."""

    passing = isinstance(context.key, PassingKey)
    key = str(context.key) if passing else context.key

    def run(tx: Tx) -> Any:
        if context.until is not None and monotonic() >= context.until:  # here no other write can come between
            raise CallerGoneError
        if key is not None:
            stored = idempotency.find(tx, operation, key, digest)
            if stored is not None:
                return answers.decode(stored)
        check_reached(tx, context.at_least)
        if context.fence is not None:
            _check_fence(tx, context.fence)
        result = body(tx)
        if key is not None and (tx.dirty or not passing):
            idempotency.keep(tx, operation, key, digest, answers.encode(result))
        return result

    return run


def digest_of(operation: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bytes:
    """The digest of a call's arguments; functions among them do not count."""
    import inspect

    operation.check_arguments(args, kwargs)
    bound = inspect.signature(operation.function).bind(*[None] * operation.implicit_args, *args, **kwargs)
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if not callable(value)}
    if operation.route.finds:  # once a write, whose transaction counted: the digests of keys that are kept stay valid
        given = {"tx": None, **given}
    try:
        return idempotency.digest(given)
    except UnicodeEncodeError:  # half of a surrogate pair, or a byte of the command line: the operation says where
        return idempotency.digest(repr(sorted(given.items())))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise errors.InvalidValue(f"the arguments of {operation.name} cannot be stored: {error}") from error


def typed_answers(operation: Operation[..., Any], given: dict[str, Any] | None = None) -> Answers:
    """Results that come back as the types they were; `given` are the arguments of a txn."""

    def decode_typed(stored: bytes) -> Any:
        from holdfast.schema import result_type  # only a repeated call needs it

        answer = msgspec.msgpack.decode(stored, type=result_type(operation.name))
        return answer if given is None else typed_txn(answer, given)

    return Answers(msgspec.msgpack.encode, decode_typed)


def typed_txn(answer: TxnResult, given: dict[str, Any]) -> TxnResult:
    """The results of a txn as the types of the operations that it ran."""
    from holdfast.schema import result_type

    ran = given["then"] if answer.succeeded else given.get("otherwise", ())
    results = [msgspec.convert(result, result_type(op.op)) for op, result in zip(ran, answer.results, strict=True)]
    return TxnResult(answer.succeeded, results)


def _encode_plain(answer: Any) -> bytes:
    try:
        return encode(answer)
    except errors.HoldfastError:
        return encode(None)  # it ran, which is what the key must know


PLAIN_ANSWERS = Answers(_encode_plain, decode)


ROLES: Final[tuple[Role, ...]] = get_args(Role)
_ACTING: Final = ("agent", "holder", "sender")  # arguments that say who acts
_FORCE: Final = {"force": True}  # takes something from its holder; embedded callers have no Access and count as admins
_OTHERWISE: Final = {"force": "ask the holder by mail"}


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
        if self.role != "admin":
            _check_admin_only(op, given)
        if not self.bound or not (op.writes or op.route.private):
            return
        for name in (*_ACTING, op.route.names_actor):
            if given.get(name) not in (None, self.actor):
                hint = f"leave out {name}, or use a token that is bound to no actor"
                raise errors.Forbidden(f"this token acts as {self.actor}, not as {given[name]}", hint=hint)
        if op.route.confined_by:
            given[op.route.confined_by] = self.actor


def _check_admin_only(op: Operation[..., Any], given: dict[str, Any]) -> None:
    """Raise Forbidden for an argument that only admins may give: `force`, and what the operation says."""
    for name, wanted in {**_FORCE, **op.route.admin_only}.items():
        value = given.get(name)
        if value is not None and wanted in (ANY, value):
            shown = name if wanted is ANY else f"{name}={value}"
            hint = f"{_OTHERWISE.get(name, 'omit it')}; holdfast token create --role admin makes a token that may"
            raise errors.Forbidden(f"{op.name} with {shown} needs a token with the role admin", hint=hint)


def _steps(given: dict[str, Any]) -> Iterator[Op]:
    """The operations of a txn, of either branch; txn itself refuses what is not an Op."""
    for name in ("then", "otherwise"):
        branch = given.get(name, ())
        if isinstance(branch, list | tuple):
            yield from (step for step in branch if isinstance(step, Op))
