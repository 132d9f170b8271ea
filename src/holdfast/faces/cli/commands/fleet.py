"""`holdfast status`, `board`, `timeline`, `graph` and `activity`: the fleet for people.

`--json` has the data of the operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli import drawings
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session, tell
from holdfast.faces.cli.command import command
from holdfast.faces.cli.derive import arguments_of
from holdfast.faces.cli.output import printable, short
from holdfast.faces.cli.times import moment, until
from holdfast.faces.cli.views import painter
from holdfast.faces.cli.width import fitted, title
from holdfast.operation import operation
from holdfast.types import counted

_STATUS: Final = operation("status")
_ACTIVITY: Final = operation("activity")
_BOARD: Final = operation("board")
_TIMELINE: Final = operation("timeline")
_REDRAW: Final = 1.0  # seconds at least between two drawings
_IDLE: Final = 5.0  # and at most: what the log does not tell changes too
_CLEAR: Final = "\x1b[H\x1b[2J"
_SHOWN: Final = 20
_PEOPLE: Final = ("person", "maintainer")  # no rows of the fleet, unless they hold a task
_WIDTH: Final = 80  # columns where there is no terminal


@command(
    "status",
    *arguments_of(_STATUS),
    Argument("watch", "flag", help="draw it again whenever something changes, until Ctrl-C"),
    op=_STATUS,
    relayed=True,
)
def status(session: Session, given: dict[str, Any]) -> int:
    """Show the fleet: who works on what, what is stuck, what needs you."""
    watch = given.pop("watch", False)
    given.setdefault("midnight", _midnight())
    with session.open() as workspace:
        found = workspace.status(**given)
        _draw(session, found)
        while watch:
            _wait(workspace, found.revision)
            found = workspace.status(midnight=_midnight())
            _draw(session, found, again=True)
    return 0


def _midnight() -> datetime:
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


def _wait(workspace: Any, revision: int) -> None:
    """Until something changes, at most for a while; then a moment, since changes come in swarms."""
    from time import sleep

    with workspace.watch(after=revision, timeout=_IDLE) as news:
        next(iter(news), None)
    sleep(_REDRAW)


def _draw(session: Session, found: Any, again: bool = False) -> None:
    out = session.out
    if out.json or out.quiet:
        out.result(_STATUS, found)
    else:
        if again and out.stdout.isatty():
            out.stdout.write(_CLEAR)
        out.text(*(fitted(line, out.width or _WIDTH) for line in _lines(found, painter(out.colour))))
    out.stdout.flush()


def _lines(found: Any, paint: Any) -> Iterator[str]:
    counts = found.tasks
    ready, today = paint("green", f"{counts.ready} ready"), f"{counts.closed_today} closed today"
    held = f"{counts.in_progress} in progress  {counts.review} in review  {counts.blocked} blocked"
    yield f"{ready}  {counts.waiting} waiting  {held}  {today}"
    yield from _section("needs you", [_need(need, found.time, paint) for need in found.needs_you], found.needs)
    agents = [agent for agent in found.agents if agent.task is not None or agent.role not in _PEOPLE]
    yield from _section("agents", [_agent(agent, found.time, paint) for agent in agents])
    yield from _section("locks", [_lock(lock, found.time, paint) for lock in found.locks])
    yield from _section("claims", [_claim(claim, found.time, paint) for claim in found.claims])
    yield from _section(
        "cycles", [f"{title(cycle.key)}  {cycle.current_phase or cycle.status}" for cycle in found.cycles]
    )
    refused = [f"{title(each.actor)}  {each.code} {each.count}" for each in found.refusals]
    yield from _section("refused in the last hour, on this machine", refused)


def _section(head: str, lines: list[str], count: int | None = None) -> Iterator[str]:
    if lines:
        all_ = len(lines) if count is None else count
        yield ""
        yield f"{head} ({all_})"
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if all_ > _SHOWN:
            yield f"  and {all_ - _SHOWN} more; --json has them"


def _need(need: Any, now: datetime, paint: Any) -> str:
    waits = f"  {paint('bold', f'holds up {need.holds_up}')}" if need.holds_up else ""
    task = need.kind in ("blocked", "review")
    said = f'  "{title(need.reason)}"' if need.reason and task else ""
    by = f"  {title(need.by)}" if need.by else ""
    if need.short and need.reason:
        said = f"  {need.reason.replace('-', ' ')}"
    kind = paint("yellow", f"{'mail' if need.short else need.kind:<7}")
    name = f"{need.id if task else need.short}  " if task or need.short else ""
    return f"{kind}  {name}{title(need.title)}{by}  {span(now - need.since)}{waits}{said}"


def _agent(agent: Any, now: datetime, paint: Any) -> str:
    parts = [paint("bold", title(f"{agent.name:<12}"))]
    if agent.task is None:
        seen = "not seen" if agent.seen_at is None else f"seen {span(now - agent.seen_at)} ago"
        parts.append(paint("dim", f"idle, {seen}"))
    else:
        left = "parked" if agent.parked else "no end" if agent.until is None else f"{span(agent.until - now)} left"
        ends = agent.until is not None and agent.until - now <= timedelta(minutes=2)
        parts += [agent.task, title(agent.title), span(now - agent.since)]
        parts.append(paint("red", left) if ends else left)
        if agent.tasks > 1:
            parts.append(f"and {agent.tasks - 1} more")
    if agent.unread:
        parts.append(f"{agent.unread} unread")
    return "  ".join(parts)


def _lock(lock: Any, now: datetime, paint: Any) -> str:
    name = " ".join(lock.patterns) or lock.stash or "/".join(filter(None, (lock.scope, lock.name)))
    end = f"{span(lock.until - now)} left" if lock.until else "with its task" if lock.task else paint("red", "no end")
    line = f"{title(name)}  {title(lock.holder)}  {span(now - lock.since)}, {end}"
    waits = ", ".join(f"{title(each.name)} {span(now - each.since)}" for each in lock.waiters)
    return f"{line}  in line: {waits}" if waits else line


def _claim(claim: Any, now: datetime, paint: Any) -> str:
    name = f"{claim.task}  {title(claim.title)}  {title(claim.holder)}"
    if not claim.expired:
        return f"{name}  {paint('red', f'ends in {span(claim.at - now)}')}"
    later = f", now {title(claim.held_by)} has it" if claim.held_by else ""
    return f"{name}  {paint('red', 'expired')} {span(now - claim.at)} ago{later}"


def span(time: timedelta) -> str:
    """A length of time in a word: 40 s, 12 min, 3 h, 2 d."""
    seconds = max(0, int(time.total_seconds()))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or (seconds >= unit and unit > 3600):
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


# --- board -----------------------------------------------------------------------------------------------------------

_COLUMNS: Final = ("in_progress", "review", "blocked", "ready", "waiting", "closed")  # what is under way first
_FEW: Final = 10  # cards of each column where all are shown


@command(
    "board",
    *(msgspec.structs.replace(each, required=False) if each.word else each for each in arguments_of(_BOARD)),
    op=_BOARD,
    more=f"Without a column, the first {_FEW} cards of each are shown; --json wants a column.",
    relayed=True,
)
def board(session: Session, given: dict[str, Any]) -> int:
    """List a column of the board, or all of them, with what its cards show."""
    out, whole = session.out, "column" not in given
    if whole and (out.json or "cursor" in given):
        raise Usage("holdfast board --json shows one column", hint=f"columns: {', '.join(_COLUMNS)}")
    with session.open() as workspace:
        columns = (
            {column: workspace.board(**{"limit": _FEW, **given, "column": column}) for column in _COLUMNS}
            if (whole)
            else {given["column"]: workspace.board(**given)}
        )
    if out.json or out.quiet:
        for cards in columns.values():
            out.result(_BOARD, cards)
        return 0
    paint = painter(out.colour)
    lines = []
    for column, cards in columns.items():
        lines += ["", paint("bold", column)] if whole and cards else []
        lines += [f"{'  ' * whole}{_card(card, column, paint)}" for card in cards]
        if cards.cursor is not None:
            more = f"holdfast board {column}{out.place}" if whole else f"--cursor {cards.cursor}"
            lines.append(paint("dim", f"{'  ' * whole}more: {more}"))
    out.text(*(fitted(line, out.width) for line in lines[whole and bool(lines) :]))
    if not lines:
        tell(session, "the board is empty" if whole else f"no task is in the column {given['column']}")
    return 0


def _card(card: Any, column: str, paint: Any) -> str:
    """A task on the board: what a list shows, and what matters in its column."""
    parts = [paint("bold", card.id), f"P{card.priority}", title(card.title)]
    parts += [paint("dim", f"({card.type})")] if card.type != "task" else []
    parts += [paint("dim", title("  ".join(f"#{tag}" for tag in card.tags)))] if card.tags else []
    parts += [paint("dim", f"{card.children_closed}/{card.children}")] if card.children else []
    if card.holder:
        left = "parked" if card.parked else until(card.until) if card.until else "no end"
        parts += [paint("cyan", f"@{printable(card.holder)}"), left]
    elif card.assigned_to:
        parts.append(paint("yellow", f"for {printable(card.assigned_to)}"))
    if card.waits_for:
        parts.append(f"waits for {counted(card.waits_for, 'others')}")
    if column == "closed":
        parts.append(moment(card.updated_at))
    if card.since and not card.holder:
        parts.append(moment(card.since))
    parts += [paint("bold", f"holds up {card.holds_up}")] if card.holds_up else []
    if card.reason:
        parts.append(f"{printable(card.by or 'somebody')}: {title(card.reason)}")
    return "  ".join(parts)


# --- timeline --------------------------------------------------------------------------------------------------------

_NAME: Final = 14  # columns of what was held
_LINE: Final = 30  # columns of the time


@command("timeline", *arguments_of(_TIMELINE), op=_TIMELINE, relayed=True)
def timeline(session: Session, given: dict[str, Any]) -> int:
    """Show what each agent held, and when."""
    with session.open() as workspace:
        found = workspace.timeline(**given)
    out = session.out
    if out.json or out.quiet:
        out.result(_TIMELINE, found)
        return 0
    paint, column = painter(out.colour), (found.until - found.since) / _LINE
    head = f"from {moment(found.since)} to {moment(found.until)}, each column {span(column)}"
    lines = [line for name, lane in found.lanes.items() for line in _lane(found, name, lane, paint)]
    out.text(*(fitted(line, out.width) for line in (head, *lines)))
    if not lines:
        tell(session, "nobody held anything then; further back: holdfast timeline 1d")
    return 0


def _lane(found: Any, name: str, lane: Any, paint: Any) -> Iterator[str]:
    """What an agent held, a line for each, and when it sent mail."""
    yield ""
    yield paint("bold", title(name))
    for kind, stretches in (("", lane.claims), ("lock ", lane.locks)):
        for each in stretches:
            end = each.end or found.until
            how = each.how or ("held" if each.end is None else "released")
            name = f"{kind}{each.id}" if len(each.id) < _NAME * 2 else f"{kind}paths"
            more = f", and {each.count - 1} more" if each.count > 1 else ""
            bar = _stretch(found, each.start, end, "=", ">" if each.end is None else "=")
            yield f"  {short(printable(name), _NAME):<{_NAME}} [{bar}]  {span(end - each.start)}, {how}{more}"
    if lane.mail:
        marks = ["."] * _LINE
        for time in lane.mail:
            marks[_at(found, time)] = "m"
        yield f"  {'mail':<{_NAME}} [{''.join(marks)}]  {counted(len(lane.mail), 'messages')}"


def _stretch(found: Any, start: datetime, end: datetime, body: str, tip: str) -> str:
    """A bar from a time to another."""
    first, last = _at(found, start), _at(found, end)
    return "." * first + body * (last - first) + tip + "." * (_LINE - 1 - last)


def _at(found: Any, time: datetime) -> int:
    """The column of a time."""
    length = (found.until - found.since).total_seconds() or 1
    return min(max(int((time - found.since).total_seconds() * _LINE / length), 0), _LINE - 1)


# --- graph -----------------------------------------------------------------------------------------------------------

_FORMATS: Final = ("text", "mermaid", "dot", "svg")


@command(
    "graph",
    *arguments_of(Tasks.graph),
    Argument("format", choices=_FORMATS, help="text (unless said), mermaid, dot or svg"),
    op=Tasks.graph,
    relayed=True,
)
def graph(session: Session, given: dict[str, Any]) -> int:
    """Show what waits for what: the longest chain, what holds up most."""
    form = given.pop("format", "text")
    if form not in _FORMATS:
        raise errors.InvalidFilter(f"--format is one of {', '.join(_FORMATS)}, not {form!r}")
    with session.open() as workspace:
        found = workspace.tasks.graph(**given)
    if session.out.json:
        session.out.result(Tasks.graph, found)
    elif session.out.quiet:
        session.out.text(*(node.id for node in found.nodes))
    elif form == "text":
        lines = drawings.text(found, painter(session.out.colour))
        session.out.text(*(fitted(line, session.out.width) for line in lines))
    else:
        session.out.text(*{"mermaid": drawings.mermaid, "dot": drawings.dot, "svg": drawings.svg}[form](found))
    return 0


# --- activity --------------------------------------------------------------------------------------------------------

_BARS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 18  # bars of a line, beside the counts


@command("activity", *arguments_of(_ACTIVITY), op=_ACTIVITY, relayed=True)
def activity(session: Session, given: dict[str, Any]) -> int:
    """Count what happened to claims, by agent and time; by default in a day."""
    with session.open() as workspace:
        found = workspace.activity(**given)
    if session.out.json or session.out.quiet:
        session.out.result(_ACTIVITY, found)
        return 0
    joined = -(-len(found.total.closed) // _BAR_WIDTH)  # buckets of a bar: the bars cover all of the time
    bar = span(timedelta(seconds=found.bucket * joined))
    session.out.text(f"from {moment(found.since)} to {moment(found.until)}, each bar {bar}, as high as what was closed")
    fields = found.total.__struct_fields__
    session.out.text(f"{'':<10}" + "".join(f" {field}" for field in fields))
    for name, tally in (*found.agents.items(), ("all", found.total)):
        sums = "".join(f" {sum(getattr(tally, field)):>{len(field)}}" for field in fields)
        session.out.text(f"{short(printable(name), 9):<10}{sums}  {_bars(tally.closed, joined)}".rstrip())
    return 0


def _bars(numbers: list[int], joined: int) -> str:
    """Numbers as bars of a line of text, so many of them in each."""
    shown = [sum(numbers[at : at + joined]) for at in range(0, len(numbers), joined)]
    most = max(shown, default=0) or 1
    return "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for number in shown)
