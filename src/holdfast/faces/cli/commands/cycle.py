"""`holdfast cycle import` and `export`: cycles to and from a JetStream bucket or a folder. `cycle show`: a timeline."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.faces.cli.bars import bar
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.backups import snapshot
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.performing import after_writing
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.summaries import SUMMARIES
from holdfast.faces.cli.words import Argument, Usage
from holdfast.ops import operation

if TYPE_CHECKING:
    from holdfast.carrying import Place

_BUCKET: Final = "agent-os-peer-state"
_WIDTH: Final = 100  # where nobody knows how wide a line may be


def take_in(session: Session, given: dict[str, Any]) -> int:
    """Import every cycle that a place has, or tell what would happen; nothing is imported if something is wrong."""
    from holdfast.carrying import bring

    dry_run, skip_bad = bool(given.get("dry_run")), bool(given.get("skip_bad"))
    with _place(given, writing=False) as place:
        if not dry_run:
            snapshot(session)
        with session.open(writing=True) as workspace, bar("import", workspace):
            report = bring(workspace, place, skip_bad=skip_bad, dry_run=dry_run)
    if session.out.json:
        session.out.data(report)
    elif session.out.quiet:
        session.out.text(*report.created, *report.updated)
    else:
        counts = {name: getattr(report, name) for name in ("created", "updated", "unchanged")}
        session.out.text(*_told(counts, dry_run, (*report.conflicts, *report.skipped, *report.warnings)))
    if not dry_run:
        after_writing(session)
    return 0


def export(session: Session, given: dict[str, Any]) -> int:
    """Write cycles to a place as v2, each over the revision that was read; never over what somebody else wrote."""
    from holdfast.carrying import send

    dry_run = bool(given.get("dry_run"))
    with session.open() as workspace, _place(given, writing=not dry_run) as place:
        sent = send(workspace, place, keys=given.get("keys"), dry_run=dry_run)
    if session.out.json:
        session.out.data(sent)
    elif session.out.quiet:
        session.out.text(*sent.created, *sent.updated, *sent.merged)
    else:
        counts = {name: getattr(sent, name) for name in ("created", "updated", "merged", "unchanged")}
        old = [f"{name}: v2 has taken its place, and it may go" for name in sent.old_keys]
        session.out.text(*_told(counts, dry_run, (*sent.skipped, *sent.notes)), *map(printable, old))
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


def _told(counts: dict[str, list[str]], dry_run: bool, said: Any) -> list[str]:
    would = "would be " if dry_run else ""
    lines = [f"{would}{name}: {', '.join(keys)}" for name, keys in counts.items() if keys]
    return [*(lines or ["no cycles"]), *(printable(f"{note.key}: {note.message}") for note in said)]


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
_DRY_RUN: Final = Argument("dry_run", "flag", "--dry-run", help="say what would happen, and do nothing")
COMMANDS = (
    Command(
        "cycle import",
        SUMMARIES["cycle import"],
        (*_PLACE, _DRY_RUN, Argument("skip_bad", "flag", "--skip-bad", help="leave out what cannot be read")),
        take_in,
        more=(
            "All or nothing, after a backup. What old formats have beyond is kept under context.legacy.\n"
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
            _DRY_RUN,
        ),
        export,
        more=(
            "If somebody else changed the same phase of a cycle there, it is left alone: exit code 9, and the error\n"
            "has both documents and the revision. Keys of older formats stay, and are told."
        ),
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
