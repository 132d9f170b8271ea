"""`holdfast log`: what happened, event by event or in sum, refusals included."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import KINDS, Argument, as_moment
from holdfast.kernel.names import check_limit
from holdfast.ops import operation

_PAGE: Final = 1000
_LAST: Final = 50
_MOST: Final = 10_000


def log(session: Session, given: dict[str, Any]) -> int:
    """Print the newest events that fit, or count them by actor."""
    limit = given.get("limit", _LAST)
    check_limit(limit, _MOST)
    since = as_moment(given["since"], future=False) if "since" in given else None
    with session.open() as workspace:
        events = _events(workspace, {"kinds": given.get("kinds"), "actor": given.get("by"), "since": since})
        if given.get("summary"):
            refused = workspace.events.refusals(since=since, actor=given.get("by"))
            _summarize(session, events, refused)
        else:
            session.out.result(operation("events.list"), list(deque(events, maxlen=limit)))
    return 0


def _events(workspace: Any, wanted: dict[str, Any]) -> Iterator[Any]:
    after = None
    while page := workspace.events.list(**wanted, after=after, limit=_PAGE):
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].cursor


def _summarize(session: Session, events: Iterator[Any], refused: list[Any]) -> None:
    done: dict[str, Counter[str]] = {}
    for event in events:
        done.setdefault(event.actor, Counter())[f"{event.kind} {event.op}"] += 1
    refusals: dict[str, dict[str, int]] = {}
    for each in refused:
        refusals.setdefault(each.actor, {})[each.code] = each.count
    names = sorted({*done, *refusals})
    told = {name: {"events": dict(done.get(name, {})), "refusals": refusals.get(name, {})} for name in names}
    lines = []
    for name in names:
        lines.append(printable(name))
        lines += [f"  {count:>6}  {what}" for what, count in done.get(name, Counter()).most_common()]
        lines += [f"  {count:>6}  refused: {code}" for code, count in refusals.get(name, {}).items()]
    session.out.say(told, *(lines or ["nothing happened"]))


COMMANDS = (
    Command(
        "log",
        "Tell what happened: the newest events, or their sum with --summary.",
        (
            Argument("since", "time", "--since", help="since this moment, or for such as 12h"),
            Argument("by", option="--actor", help="by this actor alone"),
            Argument("kinds", "texts", "--kind", choices=KINDS, help="of this kind alone; may be repeated"),
            Argument("limit", "int", "--limit", help=f"the newest so many ({_LAST})"),
            Argument("summary", "flag", "--summary", help="count by actor, with what was refused: held, fenced, ..."),
        ),
        log,
    ),
)
