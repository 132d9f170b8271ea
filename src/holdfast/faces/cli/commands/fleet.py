"""`holdfast status`, `graph` and `activity`: the fleet for people. `--json` has the data of the operations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli import drawings
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.derive import arguments_of
from holdfast.faces.cli.output import printable, short
from holdfast.faces.cli.times import moment
from holdfast.faces.cli.views import painter
from holdfast.faces.cli.width import fitted, title
from holdfast.operation import operation

_STATUS: Final = operation("status")
_ACTIVITY: Final = operation("activity")
_REDRAW: Final = 1.0  # seconds at least between two drawings
_IDLE: Final = 5.0  # and at most: what the log does not tell changes too
_CLEAR: Final = "\x1b[H\x1b[2J"
_SHOWN: Final = 20
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
    yield from _section("agents", [_agent(agent, found.time, paint) for agent in found.agents])
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
    said = f'  "{title(need.reason)}"' if need.reason and need.kind in ("blocked", "review") else ""
    by = f"  {title(need.by)}" if need.by else ""
    kind = paint("yellow", f"{need.kind:<10}")
    name = f"{need.id}  " if need.kind in ("blocked", "review") else ""
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
    name = " ".join(lock.patterns) or "/".join(filter(None, (lock.scope, lock.name)))
    end = f"{span(lock.until - now)} left" if lock.until else "with its task" if lock.task else paint("red", "no end")
    line = f"{title(name)}  {title(lock.holder)}  {span(now - lock.since)}, {end}"
    return f"{line}  in line: {title(', '.join(lock.waiters))}" if lock.waiters else line


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
        session.out.text(*drawings.text(found, painter(session.out.colour)))
    else:
        session.out.text(*{"mermaid": drawings.mermaid, "dot": drawings.dot, "svg": drawings.svg}[form](found))
    return 0


# --- activity --------------------------------------------------------------------------------------------------------

_BARS: Final = " ▁▂▃▄▅▆▇█"


@command("activity", *arguments_of(_ACTIVITY), op=_ACTIVITY, relayed=True)
def activity(session: Session, given: dict[str, Any]) -> int:
    """Count what happened to claims, by agent and time; by default in a day."""
    with session.open() as workspace:
        found = workspace.activity(**given)
    if session.out.json or session.out.quiet:
        session.out.result(_ACTIVITY, found)
        return 0
    session.out.text(
        f"from {moment(found.since)} to {moment(found.until)}, each bar {span(timedelta(seconds=found.bucket))}"
    )
    fields = found.total.__struct_fields__
    session.out.text(f"{'':<10}" + "".join(f" {field}" for field in fields))
    for name, tally in (*found.agents.items(), ("all", found.total)):
        sums = "".join(f" {sum(getattr(tally, field)):>{len(field)}}" for field in fields)
        session.out.text(f"{short(printable(name), 9):<10}{sums}  {_bars(tally.closed, 18)}")
    return 0


def _bars(numbers: list[int], width: int = 20) -> str:
    """Numbers as bars of a line of text, the last ones if there are too many."""
    shown = numbers[-width:]
    most = max(shown, default=0) or 1
    return "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for number in shown)
