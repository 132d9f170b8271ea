"""`holdfast cycle import`, `export`, `validate` (also of files) and `show`, which draws a timeline.

The bars of a timeline share one axis, from the start of the first phase to the last known time.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.cycles import Cycles
from holdfast.domains.cycles.rules import unsound
from holdfast.faces.cli.args import Argument, Usage, convert
from holdfast.faces.cli.call import Session, run, tell
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.store import snapshot
from holdfast.faces.cli.commands.transfer import conflict_code, difference_lines, left_out, problem_lines
from holdfast.faces.cli.output import bar, printable, short
from holdfast.faces.cli.times import moment
from holdfast.faces.cli.views import Paint
from holdfast.types.cycles import Cycle, CyclePhase
from holdfast.wire import check_keys, from_wire

if TYPE_CHECKING:
    from holdfast.interchange.peer.locations import Location


COLOURS: Final = {"completed": "green", "in_progress": "cyan", "failed": "red"}
_PHASES: Final = ("plan", "execute", "express", "review")
_ENDS: Final = {"in_progress": ">", "failed": "x"}
_BESIDE: Final = 48  # columns that a line needs besides its bar
_LEAST: Final = 8
_ERRORS: Final = 5  # of a phase; more are counted


def timeline(cycle: Cycle, width: int, paint: Paint) -> list[str]:
    """The lines, none longer than `width` where that leaves room for them."""
    metadata = cycle.metadata
    where = f" in {metadata.current_phase}" if metadata.current_phase and metadata.status != "completed" else ""
    status = paint(COLOURS.get(metadata.status, "dim"), metadata.status)
    about = [f"sequence {cycle.sequence}", *([metadata.instruction] if metadata.instruction else [])]
    lines = [
        f"{paint('bold', printable(cycle.cycle_id))}  {status}{where}  {paint('dim', printable('  '.join(about)))}",
        paint("dim", f"created {moment(metadata.created_at)}  updated {moment(metadata.updated_at)}"),
        "",
    ]
    phases: dict[str, CyclePhase] = {name: getattr(cycle.phases, name) for name in _PHASES}
    axis = _axis(cycle, phases)
    for name, phase in phases.items():
        current = name == metadata.current_phase and metadata.status in ("in_progress", "failed")
        lines.append(_line(name, phase, current, axis, max(width - _BESIDE, _LEAST), paint).rstrip())
        lines += [paint("red", short(f"             ! {text}", width)) for text in _errors(phase)]
    return lines


def duration(time: timedelta) -> str:
    """How long something took, in its two largest units."""
    left = max(int(time.total_seconds()), 0)
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for place, (unit, size) in enumerate(units):
        if left >= size and unit != "s":
            smaller, next_size = units[place + 1]
            return f"{left // size}{unit} {left % size // next_size}{smaller}"
    return f"{left}s"


def _axis(cycle: Cycle, phases: dict[str, CyclePhase]) -> tuple[datetime, datetime] | None:
    known = [time for phase in phases.values() for time in (phase.started_at, phase.completed_at) if time is not None]
    if not known:
        return None
    going = any(phase.status == "in_progress" for phase in phases.values())
    return min(known), max(known + ([cycle.metadata.updated_at] if going else []))


def _line(
    name: str, phase: CyclePhase, current: bool, axis: tuple[datetime, datetime] | None, width: int, paint: Paint
) -> str:
    colour = COLOURS.get(phase.status, "dim")
    bar = paint(colour, _bar(phase, axis, width))
    mark = paint("bold", f"> {name:<8}") if current else f"  {name:<8}"
    times = ""
    if axis is not None and phase.started_at is not None:
        end = phase.completed_at or (axis[1] if phase.status == "in_progress" else None)
        begun = f"+{duration(phase.started_at - axis[0])}"
        lasted = "" if end is None else duration(end - phase.started_at)
        times = f"{begun:<9}{lasted}{' so far' if lasted and phase.completed_at is None else ''}"
    status = f"{phase.status:<11} " if times else phase.status
    return f"{mark} [{bar}] {paint(colour, status)}{times}"


def _bar(phase: CyclePhase, axis: tuple[datetime, datetime] | None, width: int) -> str:
    """Where a phase lies on the axis; dashes if it happened and nobody knows when."""
    if phase.status == "pending":
        return "." * width
    if axis is None or phase.started_at is None:
        return "-" * width
    whole = (axis[1] - axis[0]) / timedelta(seconds=1) or 1.0
    end = phase.completed_at or (axis[1] if phase.status == "in_progress" else phase.started_at)
    first = min(int(width * ((phase.started_at - axis[0]) / timedelta(seconds=1)) / whole), width - 1)
    last = min(max(round(width * ((end - axis[0]) / timedelta(seconds=1)) / whole), first + 1), width)
    filled = "#" * (last - first - 1) + _ENDS.get(phase.status, "#")
    return f"{'.' * first}{filled}{'.' * (width - last)}"


def _errors(phase: CyclePhase) -> list[str]:
    messages = [printable(_message(error)) for error in phase.errors or ()]
    more = len(messages) - _ERRORS
    return [*messages[-_ERRORS:], *([f"and {more} before them"] if more > 0 else [])]


def _message(error: Any) -> str:
    found = error.get("message", error) if isinstance(error, dict) else error
    return found if isinstance(found, str) else repr(found)


_BUCKET: Final = "agent-os-peer-state"
_CHOOSE: Final = "compare both; cycle import --theirs KEY takes the one there, cycle export --mine KEY the one here"
_WIDTH: Final = 80  # where nobody knows how wide a line may be
_LOCATION: Final = (
    Argument("nats", of="URL", help="a NATS server with JetStream, such as nats://127.0.0.1:4222"),
    Argument("bucket", help=f"its bucket ({_BUCKET})"),
    Argument("folder", option="--dir", of="FOLDER", help="instead: a folder of files KEY.json"),
)
_THEIRS: Final = Argument(
    "theirs", "texts", "--theirs", of="KEY", help="take this cycle as it is there, if it differs; may be repeated"
)
_MINE: Final = Argument("mine", "texts", of="KEY", help="write this cycle over whatever is there now; may be repeated")
_DRY_RUN: Final = Argument("dry_run", "flag", help="report what would happen, and change nothing")


@command(
    "cycle import",
    *_LOCATION,
    _THEIRS,
    _DRY_RUN,
    Argument("skip_bad", "flag", help="leave out what cannot be read"),
    Argument(
        "prefixes",
        "pairs",
        "--prefix",
        of="THEIRS=OURS",
        help="ours for a prefix of another form, such as acme.spec.v1.2=peer:spec:v1-2; may be repeated",
    ),
    more="All or nothing, after a backup. Fields that v2 does not have are kept under context.legacy.\n"
    "A cycle that diverged is left alone and reported, with exit code 9; --theirs takes the one there.\n"
    "--dir is the folder of cycles here; that of the workspace comes before: holdfast --dir W cycle import",
    op=Cycles.import_,
)
def import_(session: Session, given: dict[str, Any]) -> int:
    """Take in cycles from a NATS bucket or a folder, in any PEER format.

    All of a location, or a report of what would happen; nothing is imported if something is wrong.
    """
    from holdfast.interchange.peer.sync import bring

    dry_run, skip_bad = bool(given.get("dry_run")), bool(given.get("skip_bad"))
    with _location(given, writing=False) as location:
        before = nullcontext() if dry_run else snapshot(session)
        with before, _target(session, dry_run) as workspace, bar("import", workspace):
            chosen = {"theirs": given.get("theirs", ()), "prefixes": dict(given.get("prefixes", ()))}
            report = bring(workspace, location, dry_run, skip_bad, **chosen)
    _print(session, report)
    if not dry_run:
        session.wrote()
    return conflict_code(session, report, _CHOOSE)


def _print(session: Session, report: Any, more: Sequence[str] = ()) -> None:
    """Print a report: JSON, the keys that were written, or text with `more` lines."""
    if session.out.json:
        session.out.data(report)
    elif session.out.quiet:
        session.out.text(*report.created["cycles"], *report.updated["cycles"])
    else:
        would = "would be " if report.dry_run else ""
        keys = {name: getattr(report, name)["cycles"] for name in ("created", "updated", "unchanged")}
        lines = [f"{would}{name}: {', '.join(found)}" for name, found in keys.items() if found]
        lines += left_out(report, "entries")
        session.out.text(*([*lines, *problem_lines(report), *more] or ["no cycles"]))


def _target(session: Session, dry_run: bool) -> Any:
    """The workspace to import into; for a dry run into one that does not exist, an empty one in memory."""
    place = session.place
    if dry_run and place.folder is not None and place.chosen and not place.exists:
        from holdfast.workspace import open_workspace

        return open_workspace(":memory:", actor=session.actor)
    return session.open(writing=True)


@command(
    "cycle export",
    Argument("keys", "texts", "--cycle", word=True, rest=True, of="KEY", help="which; else all"),
    *_LOCATION,
    Argument("create", "flag", help="make the bucket if there is none"),
    _MINE,
    _DRY_RUN,
    more="If somebody else changed the same phase of a cycle there, it is left alone and the others are written:\n"
    "exit code 9, and the error has both documents and the revision. What others did to other phases is\n"
    "merged, also into the workspace. Keys of older formats stay, and are reported.",
)
def export(session: Session, given: dict[str, Any]) -> int:
    """Write cycles to a NATS bucket or a folder, over what was read alone.

    They are written as v2, never over what somebody else wrote meanwhile.
    """
    from holdfast.interchange.peer.sync import ExportReport, send

    dry_run = bool(given.get("dry_run"))
    refusal = None
    with session.open() as workspace, _location(given, writing=not dry_run) as location:
        try:
            sent = send(workspace, location, given.get("keys"), dry_run, mine=given.get("mine", ()))
        except errors.CycleConflict as refused:
            refusal, sent = refused, msgspec.convert(refused.details["sent"], ExportReport)
            if refusal.mine is not None:
                refusal.hint = _CHOOSE
    if not dry_run:
        session.wrote()
    if refusal is None or not session.out.json:
        apart = () if refusal is None else refusal.details["conflicts"]
        old = [f"{name}: replaced by v2; cycle old-keys lists such keys" for name in sent.old_keys]
        _print(session, sent, [*_refusals(apart), *map(printable, old)])
    if refusal is not None:
        raise refusal
    return 0


@command(
    "cycle old-keys",
    *_LOCATION,
    Argument("remove", "flag", help="remove those whose content the workspace has imported"),
    more="A key of an older format stays when its cycle is exported as v2. One may go if the workspace has a\n"
    "version of the cycle with all that the older keys say; others are listed with the reason, and stay.",
)
def old_keys(session: Session, given: dict[str, Any]) -> int:
    """List the keys of older formats whose cycles have v2 documents; remove them on request."""
    from holdfast.interchange.peer import view

    remove = bool(given.get("remove"))
    with session.open() as workspace, _location(given, writing=False) as location:
        found = (view.remove_old_keys if remove else view.old_keys)(workspace, location)
    if session.out.json:
        session.out.data(found)
    elif session.out.quiet:
        session.out.text(*(printable(old.name) for old in found if not old.kept))
    else:
        went = "removed" if remove else "may be removed"
        lines = [f"{old.name}: stays: {old.kept}" if old.kept else f"{old.name}: {went}" for old in found]
        session.out.text(*(map(printable, lines) if lines else ["no old keys"]))
    return 0


def _refusals(conflicts: Sequence[dict[str, Any]]) -> Iterator[str]:
    for each in conflicts:
        yield printable(f"{each['key']}: {each['message'].removeprefix(each['key']).lstrip()}")
        yield from difference_lines(each["differences"])


@contextmanager
def _location(given: dict[str, Any], writing: bool) -> Iterator[Location]:
    """The bucket or folder that is named."""
    url, folder = given.get("nats"), given.get("folder")
    if (url is None) == (folder is None):
        raise Usage("name one location: --nats URL, or --dir FOLDER", hint="the workspace's --dir comes before cycle")
    if folder is not None:
        from holdfast.interchange.peer.locations import Folder

        if "bucket" in given:
            raise Usage("--bucket needs --nats")
        yield Folder(folder, create=writing)
        return
    from holdfast.interchange.peer.locations import Bucket

    create = writing and bool(given.get("create"))
    with Bucket(url or "", given.get("bucket", _BUCKET), create=create) as bucket:
        yield bucket


@command(
    "cycle validate",
    Argument("document", word=True, required=True, help="the document: JSON, a file, or - for standard input"),
    op=Cycles.validate,
)
def validate(session: Session, given: dict[str, Any]) -> int:
    """Tell what is wrong with a document; nothing if it is sound.

    The document is JSON, that of a file, or that of standard input. Where there is no workspace, the document alone is
    checked; with one, also whether its steps are in the log.
    """
    text = given["document"]
    if text == "-" or text.lstrip()[:1] in ("{", "["):
        document = convert(Argument("document", "json", word=True), text)
    else:
        document = _document(text)
    place = session.find_place()
    if place is None or not (place.exists or place.chosen):
        found = unsound(document)
        session.out.result(Cycles.validate, found)
        if not found:
            tell(session, *Cycles.validate.route.nothing)
        return 1 if found else 0
    return 1 if run(session, Cycles.validate, {"document": document}) else 0


def _document(path: str) -> Any:
    """The document in a file. Raises Usage, which names the file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        hint = "give the name of a file, a JSON object in quotes, or - for standard input"
        raise Usage(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise Usage(f"{path} is not UTF-8 at byte {error.start}", hint="save it as UTF-8") from error
    try:
        document = msgspec.json.decode(text)
        check_keys(text)
    except (msgspec.DecodeError, RecursionError, errors.Invalid) as error:
        why = str(error).removeprefix("JSON is malformed: ") if text.strip() else "it is empty"
        raise Usage(f"{path} is not JSON: {why}", hint="restore it, or export the cycle again") from error
    return from_wire(document)


@command(
    "cycle show",
    Argument("cycle", word=True, required=True, of="KEY", help="its key, or PREFIX: its current one"),
    op=Cycles.get,
)
def show(session: Session, given: dict[str, Any]) -> int:
    """Draw the four phases of a cycle as a timeline."""
    with session.open() as workspace:
        cycle = workspace.cycles.get(given["cycle"])
    if session.out.json or session.out.quiet:
        session.out.result(Cycles.get, cycle)
        return 0
    from holdfast.faces.cli.views import painter

    width = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stdout.isatty() else _WIDTH
    session.out.text(*timeline(cycle, width, painter(session.out.colour)))
    return 0
