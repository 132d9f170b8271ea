"""The graph of tasks as text, Mermaid, DOT and SVG.

Each form shows the same: dependencies from left (or top) to right, the state of each task as a word or a mark, the
longest chain by weight, and the open children of a task that waits, in dashes. Whatever a title holds is text in all
of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from holdfast.faces.cli.output import printable, short
from holdfast.faces.cli.width import title

if TYPE_CHECKING:
    from holdfast.types.fleet import GraphNode, TaskGraph

Paint = Callable[[str, str], str]
_STATES: Final = {"pending_merge": "review", "blocked": "blocked", "closed": "closed", "in_progress": "held"}
_MARKS: Final = {"ready": "o", "waiting": ".", "held": "@", "review": "?", "blocked": "!", "closed": "x"}
_PAINTS: Final = {"ready": "green", "waiting": "dim", "held": "cyan", "review": "yellow", "blocked": "red"}
# Edge and ground of each state in a drawing; the waiting ones are plain.
_COLOURS: Final = {
    "ready": ("#0A716B", "#E0F2EF"),
    "waiting": ("#7E888A", "#FFFFFF"),
    "held": ("#1D5BBF", "#E6EEFB"),
    "review": ("#6741BD", "#EFEAFA"),
    "blocked": ("#875300", "#FBF0DA"),
    "closed": ("#7E888A", "#EEF0F0"),
}
LEGEND: Final = "o ready  . waiting  @ held  ? review  ! blocked  x closed  * longest chain"


def state_of(node: GraphNode) -> str:
    """The state of a task in a word."""
    return "ready" if node.ready else _STATES.get(node.status, "waiting")


def _dependents(graph: TaskGraph) -> dict[str, list[str]]:
    """The tasks that wait for each, by id."""
    found: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind == "depends":
            found[edge.on].append(edge.id)
    return found


def _awaited(graph: TaskGraph) -> dict[str, list[str]]:
    """The open children of each task that is waiting, by id."""
    nodes = {node.id: node for node in graph.nodes}
    found: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind == "parent" and nodes[edge.id].status != "closed" and state_of(nodes[edge.on]) == "waiting":
            found[edge.on].append(edge.id)
    return found


def _steps(graph: TaskGraph) -> set[tuple[str, str]]:
    """The links of the longest chain."""
    return set(zip(graph.critical_path, graph.critical_path[1:], strict=False))


# --- text ------------------------------------------------------------------------------------------------------------


def text(graph: TaskGraph, paint: Paint) -> list[str]:
    """A tree for each task that waits for nothing and for which others wait; then a sum."""
    nodes = {node.id: node for node in graph.nodes}
    dependents = _dependents(graph)
    linked = {end for edge in graph.edges if edge.kind == "depends" for end in (edge.id, edge.on)}
    roots = sorted((nodes[id] for id in linked if not nodes[id].depth), key=lambda node: (-node.unblocks, node.id))
    children = _awaited(graph)
    lines = list(_tree(nodes, dependents, children, [node.id for node in roots], paint))
    alone = [node for node in graph.nodes if node.id not in linked]
    lines += [_row(node, "", paint, children[node.id]) for node in alone[:_ALONE]]
    if len(alone) > _ALONE:
        lines.append(paint("dim", f"and {len(alone) - _ALONE} more that neither wait nor are waited for"))
    if graph.critical_path:
        chain = " -> ".join(graph.critical_path)
        lines += ["", f"longest chain: {len(graph.critical_path)} tasks: {title(chain)}"]
    if graph.blockers:
        most = ", ".join(f"{id} ({nodes[id].unblocks})" for id in graph.blockers)
        lines.append(f"hold up most: {title(most)}")
    return [*lines, paint("dim", LEGEND)] if lines else ["no tasks"]


_ALONE: Final = 20
_NAMED: Final = 5  # children of a task


def _tree(
    nodes: dict[str, GraphNode],
    dependents: dict[str, list[str]],
    children: dict[str, list[str]],
    roots: Sequence[str],
    paint: Paint,
) -> Iterator[str]:
    """Each task below the first that it waits for; below the others it is only named."""
    shown: set[str] = set()
    stack = [(root, 0) for root in reversed(roots)]
    while stack:
        id, level = stack.pop()
        indent = "  " * level
        if id in shown:
            yield paint("dim", f"{indent}  {id} as above")
            continue
        shown.add(id)
        yield _row(nodes[id], indent, paint, children[id])
        after = sorted(dependents[id], key=lambda each: (-nodes[each].unblocks, each))
        stack += [(each, level + 1) for each in reversed(after)]


def _row(node: GraphNode, indent: str, paint: Paint, children: Sequence[str]) -> str:
    state = state_of(node)
    mark = paint(_PAINTS.get(state, "dim"), _MARKS[state])
    parts = [f"{indent}{mark}{'*' if node.critical else ' '}{paint('bold', node.id)}", f"P{node.priority}"]
    parts.append(title(node.title))
    if node.claimed_by:
        parts.append(paint("cyan", f"@{printable(node.claimed_by)}"))
    if node.unblocks:
        parts.append(paint("dim", f"holds up {node.unblocks}"))
    if children:
        more = f" and {len(children) - _NAMED} more" if len(children) > _NAMED else ""
        parts.append(paint("dim", title(f"open children: {', '.join(children[:_NAMED])}{more}")))
    return "  ".join(parts)


# --- Mermaid and DOT -------------------------------------------------------------------------------------------------


def _mermaid_text(text: str) -> str:
    """Mermaid reads a few characters as its own, also in quotes: they are written as entities."""
    return "".join(c if c.isalnum() or c in " -_.,:/()" else f"#{ord(c)};" for c in printable(text))


def mermaid(graph: TaskGraph) -> list[str]:
    """A flowchart."""
    places = {node.id: f"t{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = f"{_mermaid_text(node.id)}<br>{_mermaid_text(short(node.title, 60))}"
        lines.append(f'  {places[node.id]}["{label}"]:::{state_of(node)}')
    longest = _steps(graph)
    for edge in graph.edges:
        if edge.kind == "depends":
            arrow = "==>" if (edge.on, edge.id) in longest else "-->"
            lines.append(f"  {places[edge.on]} {arrow} {places[edge.id]}")
    for parent, children in _awaited(graph).items():
        lines += [f"  {places[child]} -.-> {places[parent]}" for child in children]
    return lines + [f"  classDef {state} stroke:{edge},fill:{ground}" for state, (edge, ground) in _COLOURS.items()]


def dot(graph: TaskGraph) -> list[str]:
    """A digraph for Graphviz."""
    lines = ["digraph tasks {", "  rankdir=LR;", '  node [shape=box, style="rounded,filled"];']
    for node in graph.nodes:
        edge, ground = _COLOURS[state_of(node)]
        label = f"{_quoted(node.id)}\\n{_quoted(short(node.title, 60))}"
        width = 2 if node.critical else 1
        lines.append(
            f'  "{_quoted(node.id)}" [label="{label}", color="{edge}", fillcolor="{ground}", penwidth={width}];'
        )
    longest = _steps(graph)
    for each in graph.edges:
        if each.kind == "depends":
            bold = " [penwidth=2.5]" if (each.on, each.id) in longest else ""
            lines.append(f'  "{_quoted(each.on)}" -> "{_quoted(each.id)}"{bold};')
    for parent, children in _awaited(graph).items():
        lines += [f'  "{_quoted(child)}" -> "{_quoted(parent)}" [style=dashed];' for child in children]
    return [*lines, "}"]


def _quoted(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


# --- SVG -------------------------------------------------------------------------------------------------------------

_WIDE, _HIGH, _ACROSS, _DOWN = 150, 58, 60, 16  # of a node, and between two
_LINE: Final = 22  # characters of a title that fit into a line


def svg(graph: TaskGraph) -> list[str]:
    """A drawing: a column for each depth, the tasks of a column near those they are linked with."""
    places = _layout(graph)
    width = max((x for x, _ in places.values()), default=0) + _WIDE + 24
    height = max((y for _, y in places.values()), default=0) + _HIGH + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#F6F7F7"/>',
    ]
    longest = _steps(graph)
    links = [(edge.on, edge.id) for edge in graph.edges if edge.kind == "depends"]
    for link in sorted(links, key=longest.__contains__):  # the longest chain on top
        lines.append(_link(places[link[0]], places[link[1]], link in longest))
    for parent, children in _awaited(graph).items():
        lines += [_link(places[child], places[parent], False, ' stroke-dasharray="4 3"') for child in children]
    lines += [_box(node, *places[node.id]) for node in graph.nodes]
    return [*lines, "</svg>"]


def _layout(graph: TaskGraph) -> dict[str, tuple[int, int]]:
    """Where each task is drawn. A few sweeps, each by the mean place of its neighbours, untangle the columns."""
    columns: dict[int, list[str]] = defaultdict(list)
    near: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        columns[node.depth].append(node.id)
    for edge in graph.edges:
        if edge.kind == "depends":
            near[edge.id].append(edge.on)
            near[edge.on].append(edge.id)
    row = {id: at for column in columns.values() for at, id in enumerate(column)}
    for sweep in range(6):
        for depth in sorted(columns, reverse=bool(sweep % 2)):
            column = columns[depth]
            mean = {id: sum(row[each] for each in near[id]) / len(near[id]) if near[id] else row[id] for id in column}
            column.sort(key=mean.__getitem__)
            row.update({id: at for at, id in enumerate(column)})
    return {
        id: (12 + depth * (_WIDE + _ACROSS), 12 + at * (_HIGH + _DOWN))
        for depth, column in columns.items()
        for at, id in enumerate(column)
    }


def _link(start: tuple[int, int], end: tuple[int, int], critical: bool, dashes: str = "") -> str:
    x1, y1, x2, y2 = start[0] + _WIDE, start[1] + _HIGH // 2, end[0], end[1] + _HIGH // 2
    middle = (x1 + x2) // 2
    stroke = 'stroke="#15191A" stroke-width="2.5"' if critical else 'stroke="#7E888A" stroke-width="1.1"'
    return f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}" fill="none" {stroke}{dashes}/>'


def _box(node: GraphNode, x: int, y: int) -> str:
    state = state_of(node)
    edge, ground = _COLOURS[state]
    if node.critical:
        edge = "#15191A"
    title = printable(node.title)
    first, second = title[:_LINE], short(title[_LINE:], _LINE)
    holder = f'<tspan font-weight="600">  {escape(printable(node.claimed_by))}</tspan>' if node.claimed_by else ""
    return (
        f"<g><title>{escape(f'{node.id}: {title} ({state})')}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="{ground}" stroke="{edge}"'
        f' stroke-width="{2 if node.critical else 1}"/>'
        f'<text x="{x + 8}" y="{y + 17}" fill="#465053">{escape(node.id)} {state}{holder}</text>'
        f'<text x="{x + 8}" y="{y + 33}" fill="#15191A">{escape(first)}</text>'
        f'<text x="{x + 8}" y="{y + 48}" fill="#15191A">{escape(second)}</text></g>'
    )
