"""Which operation a request means: the paths of the operation table, as a tree of segments.

A path is split before it is decoded, so a name may hold a slash (`%2F`). A fixed segment goes before a named one:
`/api/tasks/ready` is no task. HEAD is GET. A stream may share an address: it is for those who accept events.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast import errors
from holdfast.faces.http.refusals import MethodNotAllowed, NoRoute
from holdfast.ops import REGISTRY, Operation, load_all

PREFIX: Final = "api"


class Route(msgspec.Struct, frozen=True):
    """An operation and how it is called."""

    op: Operation[..., Any]
    method: str
    path: str
    names: tuple[str, ...]  # of the arguments in the path


class _Node:
    """What may follow a part of a path."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.routes: dict[str, Route] = {}
        self.streams: dict[str, Route] = {}


class Routes:
    """Every operation that has a path."""

    def __init__(self) -> None:
        load_all()
        self._root = _Node()
        self.all: list[Route] = []
        for op in REGISTRY.values():
            if op.route.http is not None:
                for http in (op.route.http, *op.route.also):
                    self._add(op, http)

    def _add(self, op: Operation[..., Any], http: str) -> None:
        method, _, path = http.partition(" ")
        node, names = self._root, []
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.fixed.setdefault(segment, _Node())
        route = Route(op, method, path, tuple(names))
        known = node.streams if op.kind == "stream" else node.routes
        if method in known:
            raise ValueError(f"{http} is both {known[method].op.name} and {op.name}")
        known[method] = route
        self.all.append(route)

    def find(self, method: str, segments: list[str], streaming: bool = False) -> tuple[Route, list[str]]:
        """The route of a request and the values of its named segments, not decoded; NoRoute if there is none.

        `streaming`: a stream is meant, if there is one.
        """
        found = _walk(self._root, segments, 0, [])
        if found is None:
            raise NoRoute(f"there is nothing at /{'/'.join(segments)[:200]}")
        node, values = found
        route = node.streams.get(method) if streaming else None
        route = route or node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(node.routes))
            raise MethodNotAllowed(f"{method} is not possible here; {allowed} is", allowed=allowed)
        return route, values

    def is_stream(self, method: str, segments: list[str]) -> bool:
        """Whether there is a stream at this address."""
        found = _walk(self._root, segments, 0, [])
        return found is not None and method in found[0].streams


def _walk(node: _Node, segments: list[str], at: int, values: list[str]) -> tuple[_Node, list[str]] | None:
    if at == len(segments):
        return (node, values) if node.routes else None
    fixed = node.fixed.get(segments[at])
    if fixed is not None:
        found = _walk(fixed, segments, at + 1, values)
        if found is not None:
            return found
    if node.named is None:
        return None
    return _walk(node.named, segments, at + 1, [*values, segments[at]])


def decode(segment: str) -> str:
    """A segment's text; Invalid if it is no UTF-8."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise errors.InvalidName(f"the path has a part that is not UTF-8: {segment[:80]!r}") from error
