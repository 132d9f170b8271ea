"""`HoldfastStore`: the long-term memory of LangGraph in a workspace, embedded, remote or replicated.

Namespaces, filters and ttl are those of `ws.items`. There is no vector search: a search with a query is refused, and
`index` has no effect. Reading an item lets it run for its ttl again, but only once a tenth of that has passed: else
each read would be a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.types import Op as TxnOp
from holdfast.types import Page, as_microseconds
from holdfast.types.threads import Item as Stored

PAGE: Final = 1000  # items of one call
WRITES: Final = 100  # of one transaction
FRESH: Final = 0.9  # of its ttl: an item that has more left is not renewed
_now = SystemClock().wall
Place = tuple[tuple[str, ...], str]


class HasItems(Protocol):
    """A workspace, near or far."""

    @property
    def items(self) -> Any:
        """Its operations on items."""


class HoldfastStore(BaseStore):
    """Keeps memory in a workspace: `holdfast.open(folder)` or `holdfast.connect(address)`.

    `ttl` is LangGraph's configuration of it, in minutes: `default_ttl`, and `refresh_on_read`.
    """

    supports_ttl = True

    __slots__ = ("ttl_config", "workspace")

    def __init__(self, workspace: HasItems, *, ttl: TTLConfig | None = None) -> None:
        self.workspace: Any = workspace
        self.ttl_config = _checked(ttl)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations: the reads see what was there before the writes, which are one transaction up to 100."""
        plan = _Plan(ops)
        items = self.workspace.items
        if plan.gets:
            plan.got(items.find_all(plan.keys()))
        for search in plan.searches:
            while search.wanted:
                search.take(items.search(**search.arguments()))
        if plan.stale:
            items.refresh(plan.stale)
        for listing in plan.listings:
            while listing.wanted:
                listing.take(items.namespaces(**listing.arguments()))
        for call, *others in plan.writes():
            if others:
                self.workspace.txn([], [call, *others])
            else:  # which may be larger
                getattr(items, call.op.partition(".")[2])(**call.args)
        return plan.results()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, awaited."""
        plan = _Plan(ops)
        workspace = self.workspace.aio
        if plan.gets:
            plan.got(await workspace.items.find_all(plan.keys()))
        for search in plan.searches:
            while search.wanted:
                search.take(await workspace.items.search(**search.arguments()))
        if plan.stale:
            await workspace.items.refresh(plan.stale)
        for listing in plan.listings:
            while listing.wanted:
                listing.take(await workspace.items.namespaces(**listing.arguments()))
        for call, *others in plan.writes():
            if others:
                await workspace.txn([], [call, *others])
            else:
                await getattr(workspace.items, call.op.partition(".")[2])(**call.args)
        return plan.results()


_SETTINGS: Final = {"default_ttl", "refresh_on_read", "omit_expired", "sweep_interval_minutes"}


def _checked(ttl: Any) -> TTLConfig | None:
    """A configuration of ttl. Raises Invalid at once, not with the first put."""
    if ttl is None:
        return None
    hint = 'such as ttl={"default_ttl": 60, "refresh_on_read": True}, in minutes'
    if not isinstance(ttl, dict):
        raise errors.Invalid(f"ttl must be a dict, not {type(ttl).__name__}", hint=hint)
    if unknown := sorted(map(str, ttl.keys() - _SETTINGS)):
        known = f"settings: {', '.join(sorted(_SETTINGS))}"
        raise errors.Invalid(f"ttl has no setting {unknown[0]!r:.80}", hint=known)
    _seconds(ttl.get("default_ttl"), "default_ttl")
    return cast("TTLConfig", ttl)


def _seconds(minutes: Any, what: str) -> float | None:
    """A ttl of LangGraph, which is in minutes. Raises Invalid."""
    if minutes is None:
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes > 0:
        raise errors.Invalid(f"{what} must be a number of minutes above 0, not {minutes!r:.80}", hint="")
    return minutes * 60


class _Plan:
    """The operations of a batch by what they ask of the workspace, and their results in the order they came."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._ops = list(ops)
        self.gets: list[tuple[int, GetOp]] = []
        self.searches: list[_Search] = []
        self.listings: list[_Listing] = []
        self._puts: dict[Place, PutOp] = {}
        self._results: dict[int, Result] = {}
        self.stale: list[list[str]] = []
        for at, op in enumerate(self._ops):
            match op:
                case GetOp():
                    self.gets.append((at, op))
                case SearchOp():
                    self.searches.append(_Search(at, op, self))
                case ListNamespacesOp():
                    self.listings.append(_Listing(at, op))
                case PutOp():
                    self._puts[op.namespace, op.key] = op  # the last one counts
                case _:
                    raise errors.Invalid(f"{op!r:.80} is not an operation of a store")

    def keys(self) -> list[list[str]]:
        """Which items the gets want."""
        return [[_path(op.namespace), op.key] for _, op in self.gets]

    def got(self, found: Sequence[Stored | None]) -> None:
        """Keep the answers of the gets."""
        for (at, op), stored in zip(self.gets, found, strict=True):
            self._results[at] = None if stored is None else Item(**_shown(stored))
            if stored is not None and op.refresh_ttl:
                self.touch(stored)

    def touch(self, stored: Stored) -> None:
        """Note an item that is to run for its ttl again."""
        if stored.ttl is not None and stored.expires_at is not None:
            left = (as_microseconds(stored.expires_at) - _now()) / 1e6
            if left < FRESH * stored.ttl:
                self.stale.append([stored.namespace, stored.key])

    def writes(self) -> list[list[TxnOp]]:
        """The writes, by transaction."""
        calls = [_written(op) for op in self._puts.values()]
        return [calls[start : start + WRITES] for start in range(0, len(calls), WRITES)]

    def results(self) -> list[Result]:
        """What the batch returns."""
        many: list[_Search | _Listing] = [*self.searches, *self.listings]
        for each in many:
            self._results[each.at] = each.found
        return [self._results.get(at) for at in range(len(self._ops))]


class _Search:
    """A search, and how far it is."""

    def __init__(self, at: int, op: SearchOp, plan: _Plan) -> None:
        if op.query:
            raise errors.Unsupported(
                "HoldfastStore has no vector search", hint="search without a query: by namespace and filter"
            )
        self.at = at
        self.found: Any = []
        self._op = op
        self._plan = plan
        self.wanted = op.limit > 0
        self._cursor: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of the next `items.search`."""
        return {
            "namespace": _path(self._op.namespace_prefix),
            "where": self._op.filter,
            "limit": min(self._op.limit - len(self.found), PAGE),
            "offset": 0 if self._cursor else self._op.offset,
            "cursor": self._cursor,
        }

    def take(self, page: Page[Stored]) -> None:
        """Keep a page."""
        for stored in page:
            self.found.append(SearchItem(**_shown(stored)))
            if self._op.refresh_ttl:
                self._plan.touch(stored)
        self._cursor = page.cursor
        self.wanted = page.cursor is not None and len(self.found) < self._op.limit


class _Listing:
    """A list of namespaces, and how far it is."""

    def __init__(self, at: int, op: ListNamespacesOp) -> None:
        self.at = at
        self.found: Any = []
        self._op = op
        self.wanted = op.limit > 0

    def arguments(self) -> dict[str, Any]:
        """The arguments of the next `items.namespaces`."""
        return {
            "prefixes": _patterns(self._op.match_conditions, "prefix"),
            "suffixes": _patterns(self._op.match_conditions, "suffix"),
            "depth": self._op.max_depth,
            "limit": min(self._op.limit - len(self.found), PAGE),
            "offset": self._op.offset + len(self.found),
        }

    def take(self, page: Sequence[str]) -> None:
        """Keep a page."""
        asked = min(self._op.limit - len(self.found), PAGE)
        self.found += map(_labels, page)
        self.wanted = len(page) == asked and len(self.found) < self._op.limit


def _written(op: PutOp) -> TxnOp:
    place = {"namespace": _path(op.namespace), "key": op.key}
    if op.value is None:
        return TxnOp("items.delete", place)
    value: Any = op.value
    if not isinstance(value, Mapping):
        hint = "put(namespace, key, {...})"
        raise errors.InvalidValue(f"the value of an item must be a dict, not {type(value).__name__}", hint=hint)
    return TxnOp("items.put", {**place, "value": dict(value), "ttl": _seconds(op.ttl, "ttl")})


def _shown(stored: Stored) -> dict[str, Any]:
    return {
        "value": stored.value,
        "key": stored.key,
        "namespace": _labels(stored.namespace),
        "created_at": stored.created_at,
        "updated_at": stored.updated_at,
    }


def _patterns(conditions: tuple[MatchCondition, ...] | None, kind: str) -> list[str]:
    return [_path(each.path, pattern=True) for each in conditions or () if each.match_type == kind and each.path]


# A label may have any character; what a path gives a meaning is written as % and its code.
_ESCAPES: Final = {"%": "%25", "/": "%2F", "*": "%2A"}


def _path(labels: Sequence[str], *, pattern: bool = False) -> str:
    """A namespace as a path."""
    return "/".join(
        label if pattern and label == "*" else "".join(_ESCAPES.get(each, each) for each in str(label))
        for label in labels
    )


def _labels(path: str) -> tuple[str, ...]:
    """The namespace of a path."""
    return tuple(label.replace("%2A", "*").replace("%2F", "/").replace("%25", "%") for label in path.split("/"))
