"""`holdfast cycle import` and `export`: cycles to and from a JetStream bucket or a folder. `cycle show`: a timeline.

`cycle validate` is made by hand for the sake of files.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.faces.cli.bars import bar
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.backups import snapshot
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.performing import after_writing, perform
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.summaries import SUMMARIES
from holdfast.faces.cli.words import Argument, Usage, convert
from holdfast.ops import operation
from holdfast.types.cycles import CycleNote

if TYPE_CHECKING:
    from holdfast.carrying import Place

_BUCKET: Final = "agent-os-peer-state"
_CHOOSE: Final = "compare the two; cycle import --theirs KEY takes what is there, cycle export --mine KEY what is here"
_DIFFERENCES: Final = 20
_WIDTH: Final = 100  # where nobody knows how wide a line may be


def take_in(session: Session, given: dict[str, Any]) -> int:
    """Import every cycle that a place has, or tell what would happen; nothing is imported if something is wrong."""
    from holdfast.carrying import bring

    dry_run, skip_bad = bool(given.get("dry_run")), bool(given.get("skip_bad"))
    with _place(given, writing=False) as place:
        if not dry_run:
            snapshot(session)
        with _target(session, dry_run) as workspace, bar("import", workspace):
            report = bring(workspace, place, skip_bad, dry_run, theirs=given.get("theirs", ()))
    refused = dry_run and bool(report.skipped) and not skip_bad
    if session.out.json:
        session.out.data(report)
    elif session.out.quiet:
        session.out.text(*(() if refused else (*report.created, *report.updated)))
    elif refused:
        why = "nothing would be imported, because of what cannot be read; --skip-bad leaves it out"
        session.out.text(why, *_notes(report.skipped))
    else:
        counts = {name: getattr(report, name) for name in ("created", "updated", "unchanged")}
        session.out.text(*_told(counts, dry_run, (*report.conflicts, *report.skipped, *report.warnings)))
    if report.conflicts and not session.out.json:
        print(f"holdfast: {len(report.conflicts)} in conflict; {_CHOOSE}", file=sys.stderr)
    if not dry_run:
        after_writing(session)
    return 1 if refused else errors.CycleConflict.exit_code if report.conflicts else 0


def _target(session: Session, dry_run: bool) -> Any:
    """The workspace to import into; in its place an empty one, if it would only be made to say what would happen."""
    place = session.place
    if dry_run and place.folder is not None and place.chosen and not place.exists:
        from holdfast.workspace import open_workspace

        return open_workspace(":memory:", actor=session.actor)
    return session.open(writing=True)


def export(session: Session, given: dict[str, Any]) -> int:
    """Write cycles to a place as v2, each over the revision that was read; never over what somebody else wrote."""
    from holdfast.carrying import Sent, send

    dry_run = bool(given.get("dry_run"))
    refusal = None
    with session.open() as workspace, _place(given, writing=not dry_run) as place:
        try:
            sent = send(workspace, place, given.get("keys"), dry_run, mine=given.get("mine", ()))
        except errors.CycleConflict as refused:
            refusal, sent = refused, msgspec.convert(refused.details["sent"], Sent)
            if refusal.mine is not None:
                refusal.hint = _CHOOSE
    if not dry_run:
        after_writing(session)
    if session.out.quiet:
        session.out.text(*sent.created, *sent.updated, *sent.merged)
    elif not session.out.json:
        counts = {name: getattr(sent, name) for name in ("created", "updated", "merged", "unchanged")}
        old = [f"{name}: v2 has taken its place, and it may go" for name in sent.old_keys]
        apart = [] if refusal is None else msgspec.convert(refusal.details["conflicts"], list[CycleNote])
        session.out.text(*_told(counts, dry_run, (*sent.skipped, *sent.notes, *apart)), *map(printable, old))
    if refusal is not None:
        raise refusal
    if session.out.json:
        session.out.data(sent)
    return 0


@contextmanager
def _place(given: dict[str, Any], writing: bool) -> Iterator[Place]:
    """The place that is meant."""
    url, folder = given.get("nats"), given.get("folder")
    if (url is None) == (folder is None):
        raise Usage("name the place: --nats URL, or --dir FOLDER", hint="the workspace's own --dir comes before cycle")
    if folder is not None:
        from holdfast.carrying import Folder

        if "bucket" in given:
            raise Usage("--bucket belongs to --nats")
        yield Folder(folder, create=writing)
        return
    from holdfast.carrying import Bucket

    create = writing and bool(given.get("create"))
    with Bucket(url or "", given.get("bucket", _BUCKET), create=create) as bucket:
        yield bucket


def _told(counts: dict[str, list[str]], dry_run: bool, said: Sequence[CycleNote]) -> list[str]:
    would = "would be " if dry_run else ""
    lines = [f"{would}{name}: {', '.join(keys)}" for name, keys in counts.items() if keys]
    return [*lines, *_notes(said)] or ["no cycles"]


def _notes(said: Sequence[CycleNote]) -> Iterator[str]:
    """What there is to say, and of a conflict each place where the two differ."""
    for note in said:
        yield printable(f"{note.key}: {note.message.removeprefix(f'{note.key} ')}")
        yield from (printable(f"  {each.path}: {each.message}") for each in note.differences[:_DIFFERENCES])
        if len(note.differences) > _DIFFERENCES:
            yield f"  and {len(note.differences) - _DIFFERENCES} more; --json has all"


def validate(session: Session, given: dict[str, Any]) -> int:
    """Tell what is wrong with a document: JSON, that of a file, or that of standard input."""
    text = given["document"]
    if text != "-" and text.lstrip()[:1] not in ("{", "[") and os.path.isfile(text):
        with open(text, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    document = convert(Argument("document", "json", of="DOCUMENT"), text)
    return perform(session, operation("cycles.validate"), {"document": document})


def show(session: Session, given: dict[str, Any]) -> int:
    """Draw a cycle as a timeline of its phases."""
    op = operation("cycles.get")
    with session.open() as workspace:
        cycle = workspace.cycles.get(given["cycle"])
    if session.out.json or session.out.quiet:
        session.out.result(op, cycle)
        return 0
    from holdfast.faces.cli.timeline import timeline
    from holdfast.faces.cli.views import painter

    width = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stdout.isatty() else _WIDTH
    session.out.text(*timeline(cycle, width, painter(session.out.colour)))
    return 0


_PLACE: Final = (
    Argument("nats", option="--nats", of="URL", help="a NATS server with JetStream, such as nats://127.0.0.1:4222"),
    Argument("bucket", option="--bucket", help=f"its bucket ({_BUCKET})"),
    Argument("folder", option="--dir", of="FOLDER", help="instead: a folder of files KEY.json"),
)
_THEIRS: Final = Argument(
    "theirs", "texts", "--theirs", of="KEY", help="take this cycle as it is there, where it differs; may be repeated"
)
_MINE: Final = Argument(
    "mine", "texts", "--mine", of="KEY", help="write this cycle over whatever is there now; may be repeated"
)
_DRY_RUN: Final = Argument("dry_run", "flag", "--dry-run", help="say what would happen, and do nothing")
COMMANDS = (
    Command(
        "cycle import",
        SUMMARIES["cycle import"],
        (*_PLACE, _THEIRS, _DRY_RUN, Argument("skip_bad", "flag", "--skip-bad", help="leave out what cannot be read")),
        take_in,
        more=(
            "All or nothing, after a backup. What old formats have beyond is kept under context.legacy.\n"
            "A cycle that went another way here is left alone and told, with exit code 9; --theirs takes it over.\n"
            "--dir is the folder of cycles here; that of the workspace comes before: holdfast --dir W cycle import"
        ),
        op="cycles.import_",
    ),
    Command(
        "cycle export",
        "Write cycles to a NATS bucket or a folder, over what was read alone.",
        (
            Argument("keys", "texts", "--cycle", word=True, rest=True, of="KEY", help="which; else all"),
            *_PLACE,
            Argument("create", "flag", "--create", help="make the bucket if there is none"),
            _MINE,
            _DRY_RUN,
        ),
        export,
        more=(
            "If somebody else changed the same phase of a cycle there, it is left alone and the others are written:\n"
            "exit code 9, and the error has both documents and the revision. What others did to other phases is\n"
            "merged, also into the workspace. Keys of older formats stay, and are told."
        ),
    ),
    Command(
        "cycle validate",
        SUMMARIES["cycle validate"],
        (
            Argument(
                "document",
                option="--document",
                word=True,
                required=True,
                help="the document: JSON, a file, or - for standard input",
            ),
        ),
        validate,
        op="cycles.validate",
    ),
    Command(
        "cycle show",
        SUMMARIES["cycle show"],
        (
            Argument(
                "cycle",
                option="--cycle",
                word=True,
                required=True,
                of="KEY",
                help="its key, or PREFIX: its current one",
            ),
        ),
        show,
        op="cycles.get",
    ),
)
