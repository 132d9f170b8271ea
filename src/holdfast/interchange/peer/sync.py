"""Cycles between a workspace and a bucket or folder, both ways, never over a revision that was not read.

A write that comes too late reads again, after 100, 300 and 900 ms, and decides again; then it is refused. What must be
refused does not keep the others back: it is told at the end, all of it, in one CycleConflict. Older keys of a cycle
stay where they are, and are told; `PREFIX.cycle.current` follows.

A merge is noted in the workspace, then written there, then adopted here. Who is killed on the way leaves a place that
has all of ours, and a note by which the next export or import knows it again and goes on from it, also if ours went on
meanwhile. Adopted first, what was merged could not be told from our own work when somebody else is faster there.

    with Bucket("nats://localhost:4222", "agent-os-peer-state") as place:
        bring(workspace, place)
        send(workspace, place)

`bring` reads every format that there was; `send` writes v2 with the revision that it read, so that whoever wrote
meanwhile is never overwritten. Made of the operations of a workspace, so that it works with any kind of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast import errors
from holdfast.domains.cycles.merge import digest
from holdfast.domains.cycles.rules import Key, find_prefix, parse
from holdfast.interchange.peer import Reading, read
from holdfast.interchange.peer.places import Bucket, Entry, Folder, Place, Revision
from holdfast.interchange.peer.words import by_name
from holdfast.types.cycles import CycleComparison, CycleNote, CycleProblem, CycleReport


class Refusal(msgspec.Struct, frozen=True):
    """A cycle that was not written, and why; both sides, the revision that is there, and each place where they differ.

    `advice` says what to do where it is not to choose one of the two.
    """

    key: str
    message: str
    advice: str = ""
    revision: Revision | None = None
    mine: dict[str, Any] | None = None
    theirs: dict[str, Any] | None = None
    differences: list[CycleProblem] = []


def refused(refusals: list[Refusal], place: str, sent: Any) -> errors.CycleConflict:
    """The error for cycles that were left alone; its own sides are those of the first."""
    first = refusals[0]
    more = f"; and {len(refusals) - 1} more: {', '.join(each.key for each in refusals[1:])}" if refusals[1:] else ""
    choose = "compare the two: bring(..., theirs=[key]) takes what is there, send(..., mine=[key]) writes ours over it"
    return errors.CycleConflict(
        first.message + more,
        hint="; ".join(dict.fromkeys(each.advice or choose for each in refusals)),
        key=first.key,
        expected=None if first.mine is None else first.mine["sequence"],
        version=None if first.theirs is None else first.theirs["sequence"],
        value=first.theirs,
        mine=first.mine,
        theirs=first.theirs,
        revision=first.revision,
        place=place,
        conflicts=msgspec.to_builtins(refusals),
        sent=sent,
    )


def bring(
    workspace: Any, place: Place, skip_bad: bool = False, dry_run: bool = False, theirs: Sequence[str] = ()
) -> CycleReport:
    """Import what a place has, all or nothing unless what is bad is to be skipped; the place is only read.

    Of cycles that are here already and went another way, those in `theirs` are taken as the place has them; ours stay
    in the log. The other ones are left alone, and told as conflicts.
    """
    entries = entries_of(place.read())
    chosen = {parse(key): None for key in theirs}
    documents = read(entries).documents if chosen else {}
    for key in chosen:
        if key not in documents:
            raise errors.NotFound(f"{place.name} has no cycle {key} that can be read", key=str(key))
    report: CycleReport = workspace.cycles.import_(entries, skip_bad=skip_bad, dry_run=dry_run)
    for key in chosen:
        if str(key) not in (*report.created, *report.updated):
            _adopt(workspace, key, documents[key], report)
    return report


def _adopt(workspace: Any, key: Key, document: dict[str, Any], report: CycleReport) -> None:
    """Take theirs; one that is broken or deleted here stays in conflict, which says what to do."""
    try:
        ours = workspace.cycles.export(str(key))
    except (errors.NotFound, errors.Corrupt):
        return
    if digest(ours) == digest(document):
        return
    if not report.dry_run:
        workspace.cycles.adopt(document, ours["sequence"])
    report.conflicts[:] = [note for note in report.conflicts if note.key != str(key)]
    report.unchanged[:] = [each for each in report.unchanged if each != str(key)]
    report.updated.append(str(key))


def entries_of(found: dict[str, Entry]) -> dict[str, Any]:
    """What a place has, as texts where they are some: bytes would travel to a server in a larger form."""
    return {key: _text(entry.value) for key, entry in found.items()}


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # the import tells what is wrong with it


BACK_OFF: Final = (0.1, 0.3, 0.9)  # seconds
_PAGE: Final = 1000
Document = dict[str, Any]


class Sent(msgspec.Struct):
    """What became of every cycle, or would: their keys. `old_keys` are those whose content is in v2 documents now.

    `skipped` were not written, because the place has all of it; `notes` tells of merges and of races that were lost.
    """

    created: list[str] = []
    updated: list[str] = []
    unchanged: list[str] = []
    merged: list[str] = []
    skipped: list[CycleNote] = []
    notes: list[CycleNote] = []
    old_keys: list[str] = []
    dry_run: bool = False


class _View(msgspec.Struct, frozen=True):
    """A place as it was read."""

    entries: dict[str, Entry]
    reading: Reading

    def home(self, key: Key) -> str:
        """Under which name the document of a cycle is written: where it is, if it is v2 already."""
        return self.reading.sources[key][0] if self.reading.formats.get(key) == "v2" else key.dotted

    def revision(self, name: str) -> Revision | None:
        """The revision of what has a name."""
        return self.entries[name].revision if name in self.entries else None

    def problem(self, key: Key) -> tuple[str, str] | None:
        """What cannot be read of a cycle: its name, and why."""
        for name, message in self.reading.problems:
            source = by_name(name)
            if source is not None and source.number and source.key == key:
                return name, message
        return None


class _Decision(msgspec.Struct, frozen=True):
    """What becomes of ours, as it was when that was decided, and the document that is written."""

    how: Literal["create", "update", "unchanged", "merge", "skip", "refuse"]
    ours: Document
    document: Document
    why: str = ""
    shared: bool = False
    refusal: Refusal | None = None


def send(
    workspace: Any,
    place: Place,
    keys: Sequence[str] | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    mine: Sequence[str] = (),
) -> Sent:
    """Write cycles, all or those named, as v2 documents; CycleConflict at the end if some went another way there.

    The error has all of these in `conflicts`, each with both sides, and in `sent` what was written nevertheless. Those
    in `mine` are written over whatever is there now.
    """
    chosen = {parse(key) for key in mine}
    for key in sorted(chosen):
        workspace.cycles.get(str(key))
    wanted = _all(workspace) if keys is None else [*map(str, _named(workspace, keys)), *map(str, sorted(chosen))]
    sending = _Sending(workspace, place, dry_run, sleep, chosen)
    for name in dict.fromkeys(wanted):
        sending.carry(parse(name))
    sending.finish()
    return sending.sent


def _all(workspace: Any) -> Iterator[str]:
    after = ""
    while page := workspace.cycles.list(limit=_PAGE, after=after):
        yield from (info.key for info in page)
        if len(page) < _PAGE:
            return
        after = page[-1].key


def _named(workspace: Any, keys: Sequence[str]) -> Iterator[Key]:
    """The cycles that are meant; NotFound before anything is written if one is not there."""
    for key in keys:
        try:
            yield parse(workspace.cycles.get(key).cycle_id)
        except errors.Corrupt as broken:  # which is told with the others
            yield parse(broken.details["key"] if find_prefix(key) else key)


class _Sending:
    """Cycles on their way to a place, one after the other."""

    def __init__(
        self, workspace: Any, place: Place, dry_run: bool, sleep: Callable[[float], None], mine: set[Key]
    ) -> None:
        self._cycles, self._place, self._sleep, self._mine = workspace.cycles, place, sleep, mine
        self._view = self._first = self._look()
        self._refusals: list[Refusal] = []
        self._done: dict[Key, _Decision] = {}
        self.sent = Sent(dry_run=dry_run)

    def _look(self) -> _View:
        found = self._place.read()
        return _View(found, read(entries_of(found)))

    def carry(self, key: Key) -> None:
        """Do with a cycle what can be done; who comes too late looks and decides again, a few times."""
        try:
            for pause in (*BACK_OFF, None):
                decision = self._decide(key)
                if self.sent.dry_run or decision.how in ("unchanged", "skip", "refuse"):
                    break
                try:
                    self._write(key, decision)
                    break
                except errors.VersionMismatch as late:
                    decision = self._outrun(key, decision, late, pause)
                    if decision.how == "refuse":
                        break
        except errors.Corrupt as broken:
            self._refusals.append(Refusal(str(key), broken.message, broken.hint))
            return
        self._note(key, decision)

    def _decide(self, key: Key) -> _Decision:
        problem, theirs = self._view.problem(key), self._view.reading.documents.get(key)
        if theirs is None:
            ours = self._cycles.export(str(key))
            if problem is None or key in self._mine:
                return _Decision("create" if problem is None else "update", ours, ours)
            why = f"what is there cannot be read: {problem[1]}"
            return self._refuse(key, ours, None, self._view.revision(problem[0]), why)
        found: CycleComparison = self._cycles.compare(theirs)
        ours, old = found.mine, self._view.reading.formats.get(key) != "v2"
        if found.how != "same" and key in self._mine:
            document = {**ours, "sequence": max(ours["sequence"], theirs["sequence"] + 1)}
            return _Decision("update", ours, document)
        if found.how == "refuse":
            return self._refuse(key, ours, theirs, self._view.revision(self._view.home(key)), found.why, found)
        if found.how == "theirs":
            return _Decision("skip", ours, theirs, f"{found.why}: import it, sequence {theirs['sequence']}")
        if found.how == "same" and not old:
            return _Decision("unchanged", ours, ours, shared=found.shared)
        return _Decision("merge" if found.how == "merge" else "update", ours, found.document, found.why)

    def _refuse(
        self,
        key: Key,
        ours: Document,
        theirs: Document | None,
        revision: Revision | None,
        why: str,
        found: CycleComparison | None = None,
    ) -> _Decision:
        at = "" if theirs is None else f", sequence {theirs['sequence']}"
        told = f"{key} in {self._place.name} is at revision {revision}{at}: {why}; nothing was written over it"
        apart = [] if found is None else found.differences
        return _Decision("refuse", ours, ours, why, refusal=Refusal(str(key), told, "", revision, ours, theirs, apart))

    def _write(self, key: Key, decision: _Decision) -> None:
        """Write a document and have the workspace know; VersionMismatch if others were faster, there or here."""
        home, ours, document = self._view.home(key), decision.ours["sequence"], decision.document
        if decision.how == "merge":
            self._tell(key, decision, "merge", digest(document))
        elif key in self._mine:
            self._tell(key, decision, "mine")
        self._place.write(home, self._encoded(document), self._view.revision(home))
        if decision.how == "merge" or document["sequence"] != ours:
            self._cycles.adopt(document, ours)
        else:
            self._cycles.sent(str(key), "write", ours, self._place.name)

    def _outrun(self, key: Key, decision: _Decision, late: errors.VersionMismatch, pause: float | None) -> _Decision:
        """Somebody else was faster: look again; refused if that was the last time."""
        if pause is None:
            theirs = self._view.reading.documents.get(key)
            return self._refuse(
                key, decision.ours, theirs, late.version, f"others were faster {len(BACK_OFF) + 1} times"
            )
        self.sent.notes.append(CycleNote(str(key), f"somebody else wrote it, {late.version}: read again"))
        self._sleep(pause)
        self._view = self._look()
        return decision

    def _tell(self, key: Key, decision: _Decision, how: str, digest: str = "") -> None:
        theirs = self._view.reading.documents.get(key)
        self._cycles.sent(
            str(key),
            how,
            decision.ours["sequence"],
            self._place.name[:1000],
            theirs=0 if theirs is None else theirs["sequence"],
            digest=digest,
            why=decision.why[:1000],
        )

    def _note(self, key: Key, decision: _Decision) -> None:
        """Say what became of it, here and in the log."""
        if decision.how in ("skip", "refuse") and not self.sent.dry_run:
            self._tell(key, decision, decision.how)
        if decision.how == "unchanged" and not (decision.shared or self.sent.dry_run):
            self._cycles.sent(str(key), "write", decision.ours["sequence"], self._place.name[:1000])
        if decision.refusal is not None:
            self._refusals.append(decision.refusal)
        elif decision.how == "skip":
            self.sent.skipped.append(CycleNote(str(key), decision.why))
        else:
            self._done[key] = decision
            kinds = {"create": self.sent.created, "update": self.sent.updated, "merge": self.sent.merged}
            kinds.get(decision.how, self.sent.unchanged).append(str(key))
        if decision.how == "merge":
            self.sent.notes.append(CycleNote(str(key), f"merged {decision.why}"))

    def finish(self) -> None:
        """Tell which cycle is the current one and which keys are old; CycleConflict if something was refused."""
        if not self.sent.dry_run:
            last = {key.prefix: key.number for key in sorted(self._done)}
            for prefix, number in sorted(last.items()):
                try:
                    self._point(prefix, max(number, self._current(prefix)))
                except errors.VersionMismatch as late:
                    self._refusals.append(Refusal(f"{prefix}:cycle:current", late.message, "export again"))
        self.sent.old_keys = [*self._old_keys()]
        if self._refusals:
            raise refused(self._refusals, self._place.name, msgspec.to_builtins(self.sent))

    def _old_keys(self) -> Iterator[str]:
        """Entries that are in v2 documents now: of every cycle that they tell of, and not only superseded by one."""
        reading = self._first.reading
        made = {key for key, format in reading.formats.items() if format != "v2"}
        for name in dict.fromkeys(name for key in made for name in reading.sources[key]):
            of = [key for key, sources in reading.sources.items() if name in sources]
            if name not in {key.dotted for key in of} and all(key in made and key in self._done for key in of):
                yield name

    def _current(self, prefix: str) -> int:
        """The number of the current cycle; of those that are there if it was deleted."""
        try:
            return int(self._cycles.get(prefix).metadata.cycle_number)
        except (errors.NotFound, errors.Corrupt):
            return 0

    def _point(self, prefix: str, number: int) -> None:
        """Let the place know which cycle is the current one; a higher number stays."""
        view = self._view
        for pause in (*BACK_OFF, None):
            if view.reading.current.get(prefix, 0) >= number:
                return
            name = next((name for name in view.entries if _is_current(name, prefix)), f"{prefix}:cycle:current")
            name = name if name in view.entries else name.replace(":", ".")
            try:
                self._place.write(name, str(number).encode(), view.revision(name))
                return
            except errors.VersionMismatch:
                if pause is None:
                    raise
                self._sleep(pause)
                view = self._look()

    def _encoded(self, document: Document) -> bytes:
        text = msgspec.json.encode(document)
        return msgspec.json.format(text, indent=self._place.indent) + b"\n" if self._place.indent else text


def _is_current(name: str, prefix: str) -> bool:
    source = by_name(name)
    return source is not None and (source.kind, source.prefix) == ("current", prefix)


__all__ = ["Bucket", "Entry", "Folder", "Place", "Revision", "Sent", "bring", "send"]
