"""Cycles between a workspace and a bucket or folder, both ways, never over a revision that was not read.

    with Bucket("nats://localhost:4222", "agent-os-peer-state") as location:
        bring(workspace, location)
        send(workspace, location)

`bring` reads every format that PEER agents ever used; `send` writes v2 documents over the revision that it read. A
write that comes too late reads and decides again after 100, 300 and 900 ms; then the cycle is refused. A refused cycle
does not stop the others: one CycleConflict at the end reports them all. Keys of older formats stay and are reported;
`PREFIX.cycle.current` is updated. A key that somebody deleted is not created again: that is a conflict.

A merge is logged in the workspace, then written to the location, then adopted by the workspace. After a crash on the
way the location has everything of ours, and by the log entry the next export or import recognizes the merged document.
If it were adopted first, and somebody else were faster at the location, it would look like our own work.

Both use the operations of a workspace, so they work with any kind of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast import errors
from holdfast.domains.cycles.merge import digest
from holdfast.domains.cycles.rules import Key, find_prefix, parse
from holdfast.interchange.jsonl import Import, Place, refusal
from holdfast.interchange.peer.locations import Bucket, Entry, Folder, Location, Revision
from holdfast.interchange.peer.view import Entries, View, entries_of, look
from holdfast.interchange.peer.words import by_name
from holdfast.interchange.slices import BYTES, LINES, merged, problems_of
from holdfast.types import ImportProblem, ImportReport
from holdfast.types.cycles import CycleComparison

BACK_OFF: Final = (0.1, 0.3, 0.9)  # seconds
_PAGE: Final = 1000
_CHOOSE: Final = "compare both: bring(..., theirs=[key]) takes the one there, send(..., mine=[key]) overwrites it"
Document = dict[str, Any]


# --- from a location -------------------------------------------------------------------------------------------------


def bring(
    workspace: Any,
    location: Location,
    dry_run: bool = False,
    skip_bad: bool = False,
    theirs: Sequence[str] = (),
    prefixes: Mapping[str, str] | None = None,
) -> ImportReport:
    """Import the cycles of a location, all or nothing unless `skip_bad` is set; the location is only read.

    Of cycles that diverged, those in `theirs` are replaced by the documents of the location; ours stay in the log. The
    others are left alone and reported as conflicts. `prefixes` says which of ours stands for a prefix there that is
    not one of PEER's, or for a spec whose name has dots: `{"acme.spec.v1.2": "peer:spec:v1-2"}`. The document gets the
    name of ours; a problem names the entry as it is there. Raises InvalidName.
    """
    view = look(location, checked_prefixes(prefixes or {}))
    entries = entries_of(view.entries)
    chosen = {parse(key): None for key in theirs}
    documents = view.reading.documents
    for key in chosen:
        if key not in documents:
            raise errors.NotFound(f"{location.name} has no cycle {key} that can be read", key=str(key))
    try:
        report = _import(workspace, entries, dry_run, skip_bad)
    except errors.Invalid as refused:
        if not view.names:
            raise
        raise refusal(_named_there(view, problems_of(refused)), "entries") from refused
    for problems in (report.skipped, report.warnings):
        problems[:] = _named_there(view, problems)
    report.warnings.extend(ImportProblem(0, name, "warning", message) for name, message in view.warnings)
    for key in chosen:
        if str(key) not in (*report.created["cycles"], *report.updated["cycles"]):
            _adopt(workspace, key, documents[key], report)
    return report


def _named_there(view: View, problems: list[ImportProblem]) -> list[ImportProblem]:
    """Problems with the names that their entries have at the location."""
    return [msgspec.structs.replace(problem, id=view.name_there(problem.id)) for problem in problems]


def checked_prefixes(given: Mapping[str, str]) -> dict[str, str]:
    """A mapping of prefixes with ours in one spelling. Raises InvalidName."""
    found = {}
    for theirs, text in given.items():
        ours = find_prefix(text)
        if not theirs or ours is None:
            hint = "peer:spec:NAME, peer:instruction:NAME or peer:global; a name has letters, digits, - and _"
            raise errors.InvalidName(f"{text!r} cannot stand for the prefix {theirs!r}", hint=hint)
        found[theirs] = ours
    return found


def _import(workspace: Any, entries: Entries, dry_run: bool, skip_bad: bool) -> ImportReport:
    """Import entries in slices; with several, all are rehearsed before the first is written."""
    parts, reports, problems = [*_slices(entries)], list[ImportReport](), list[ImportProblem]()
    for rehearsal in (True, False) if len(parts) > 1 and not dry_run else (dry_run,):
        reports.clear()
        for part in parts:
            try:
                reports.append(workspace.cycles.import_(part, skip_bad=skip_bad, dry_run=rehearsal))
            except errors.Invalid as refused:
                if not rehearsal or len(parts) == 1:
                    raise
                problems += problems_of(refused)
        if problems:
            raise refusal(problems, "entries")
    return merged(reports, lambda table, id: 0)


def _slices(entries: Entries) -> Iterator[Entries]:
    """Parts of the entries with all of each cycle; those of a prefix with a meta document stay together."""
    sources = {name: by_name(name) for name in entries}
    whole = {source.prefix for source in sources.values() if source is not None and source.kind == "meta"}
    groups: dict[tuple[str, int], Entries] = {}
    current: dict[str, Entries] = {}  # of each prefix: in every part that has a cycle of it
    for name, source in sources.items():
        value = {name: entries[name]}
        if source is None:
            groups.setdefault(("", 0), {}).update(value)
        elif source.kind == "current" and source.prefix not in whole:
            current.setdefault(source.prefix, {}).update(value)
        else:
            groups.setdefault((source.prefix, 0 if source.prefix in whole else source.number), {}).update(value)
    for prefix, value in current.items():
        if not any(key[0] == prefix for key in groups):
            groups[prefix, 0] = value
    part, size = Entries(), 0
    for (prefix, _), group in groups.items():
        group = group | current.get(prefix, {})
        more = len(msgspec.json.encode(group))
        if part and (len(part) + len(group) > LINES or size + more > BYTES):
            yield part
            part, size = {}, 0
        part |= group
        size += more
    yield part


def _adopt(workspace: Any, key: Key, document: Document, report: ImportReport) -> None:
    """Replace our document; one that is damaged or deleted here stays in conflict, and its message says what to do."""
    try:
        ours = workspace.cycles.export(str(key))
    except (errors.NotFound, errors.Corrupt):
        return
    if digest(ours) == digest(document):
        return
    if not report.dry_run:
        workspace.cycles.adopt(document, ours["sequence"])
    report.conflicts[:] = [problem for problem in report.conflicts if problem.id != str(key)]
    report.unchanged["cycles"][:] = [each for each in report.unchanged["cycles"] if each != str(key)]
    report.updated["cycles"].append(str(key))


# --- to a location ---------------------------------------------------------------------------------------------------


class ExportReport(ImportReport, frozen=True, kw_only=True):
    """What an export did with every cycle, or would do. `old_keys` are those whose content is in v2 documents now.

    A cycle that was merged is updated, with a warning; one that is further at the location is skipped.
    """

    old_keys: list[str]


class Refusal(msgspec.Struct, frozen=True):
    """A cycle that was not written, and why: both documents, the revision of theirs, and where the two differ, by path.

    `advice` is what to do, if it is not to choose one of the two.
    """

    key: str
    message: str
    advice: str = ""
    revision: Revision | None = None
    mine: Document | None = None
    theirs: Document | None = None
    differences: dict[str, str] = {}


def refused(refusals: list[Refusal], location: str, sent: ExportReport) -> errors.CycleConflict:
    """One error that reports every cycle an export could not write; `mine` and `theirs` are those of the first."""
    first = refusals[0]
    more = f"; and {len(refusals) - 1} more: {', '.join(each.key for each in refusals[1:])}" if refusals[1:] else ""
    return errors.CycleConflict(
        first.message + more,
        hint="; ".join(dict.fromkeys(each.advice or _CHOOSE for each in refusals)),
        key=first.key,
        expected=None if first.mine is None else first.mine["sequence"],
        version=None if first.theirs is None else first.theirs["sequence"],
        value=first.theirs,
        mine=first.mine,
        theirs=first.theirs,
        revision=first.revision,
        place=location,
        conflicts=msgspec.to_builtins(refusals),
        sent=msgspec.to_builtins(sent),
    )


def send(
    workspace: Any,
    location: Location,
    keys: Sequence[str] | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    mine: Sequence[str] = (),
) -> ExportReport:
    """Write cycles, all or those named, as v2 documents. Raises CycleConflict at the end if some diverged.

    The error has all of these in `conflicts`, each with both documents, and in `sent` the report of the others. Those
    in `mine` are written over whatever the location has.
    """
    chosen = {parse(key) for key in mine}
    for key in sorted(chosen):
        workspace.cycles.get(str(key))
    wanted = _all(workspace) if keys is None else [*map(str, _named(workspace, keys)), *map(str, sorted(chosen))]
    export = _Export(workspace, location, dry_run, sleep, chosen)
    for name in dict.fromkeys(wanted):
        export.send(parse(name))
    return export.finish()


def _all(workspace: Any) -> Iterator[str]:
    after = ""
    while page := workspace.cycles.list(limit=_PAGE, after=after):
        yield from (info.key for info in page)
        after = page[-1].key


def _named(workspace: Any, keys: Sequence[str]) -> Iterator[Key]:
    """The named cycles. Raises NotFound before anything is written if one does not exist."""
    for key in keys:
        try:
            yield parse(workspace.cycles.get(key).cycle_id)
        except errors.Corrupt as damaged:  # reported with the others
            yield parse(damaged.details["key"] if find_prefix(key) else key)


class _Decision(msgspec.Struct, frozen=True):
    """What to do with a cycle: our document when that was decided, and the document to write."""

    how: Literal["create", "update", "unchanged", "merge", "skip", "refuse"]
    ours: Document
    document: Document
    why: str = ""
    shared: bool = False
    refusal: Refusal | None = None


_OUTCOMES: Final = {"create": "created", "update": "updated", "merge": "updated", "unchanged": "unchanged"}


class _Export:
    """Sends cycles to a location, one after the other."""

    def __init__(
        self, workspace: Any, location: Location, dry_run: bool, sleep: Callable[[float], None], mine: set[Key]
    ) -> None:
        self._cycles, self._location, self._sleep, self._mine = workspace.cycles, location, sleep, mine
        self._dry_run = dry_run
        self._view = self._first = look(location)
        self._found = Import("cycles")
        for name, message in self._view.warnings:
            self._found.warn(Place("cycles", 0, name), message)
        self._refusals: list[Refusal] = []
        self._done: set[Key] = set()

    def send(self, key: Key) -> None:
        """Write a cycle if nothing is lost by that; if somebody else was faster, read and decide again."""
        try:
            for pause in (*BACK_OFF, None):
                decision = self._decide(key)
                if self._dry_run or decision.how in ("unchanged", "skip", "refuse"):
                    break
                try:
                    self._write(key, decision)
                    break
                except errors.VersionMismatch as late:
                    decision = self._retry(key, decision, late, pause)
                    if decision.how == "refuse":
                        break
        except (errors.Corrupt, errors.Invalid) as refused:
            self._refusals.append(Refusal(str(key), refused.message, refused.hint))
            return
        self._report(key, decision)

    def _decide(self, key: Key) -> _Decision:
        problem, theirs = self._view.problem(key), self._view.reading.documents.get(key)
        home = self._view.home(key)
        if problem is None and home in self._view.entries.deleted and key not in self._mine:
            ours = self._cycles.export(str(key))
            return self._refuse(key, ours, None, None, "somebody deleted it there", done="created again")
        if theirs is None:
            ours = self._cycles.export(str(key))
            if problem is None or key in self._mine:
                return _Decision("create" if problem is None else "update", ours, ours)
            why = f"the entry there cannot be read: {problem[1]}"
            return self._refuse(key, ours, None, self._view.revision(problem[0]), why)
        found: CycleComparison = self._cycles.compare(theirs)
        ours, old = found.mine, self._view.reading.formats.get(key) != "v2"
        if found.how != "same" and key in self._mine:
            document = {**ours, "sequence": max(ours["sequence"], theirs["sequence"] + 1)}
            return _Decision("update", ours, document)
        if found.how == "refuse":
            source = self._view.reading.sources[key][0]
            return self._refuse(key, ours, theirs, self._view.revision(source), found.why, found)
        if found.how == "theirs":
            return _Decision("skip", ours, theirs, f"{found.why}: import it, sequence {theirs['sequence']}")
        if found.how == "same" and not old and home not in self._view.entries:  # it is there by another name
            return _Decision("create", ours, ours)
        if found.how == "same" and not old and home not in self._view.recovered:
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
        done: str = "overwritten",
    ) -> _Decision:
        at = "" if theirs is None else f", sequence {theirs['sequence']}"
        state = "is gone" if revision is None else f"is at revision {revision}{at}"
        message = f"{key} in {self._location.name} {state}: {why}; it was not {done}"
        apart = {} if found is None else {each.path: each.message for each in found.differences}
        refusal = Refusal(str(key), message, "", revision, ours, theirs, apart)
        return _Decision("refuse", ours, ours, why, refusal=refusal)

    def _write(self, key: Key, decision: _Decision) -> None:
        """Write a document and record that in the workspace. Raises VersionMismatch if others were faster."""
        home, ours, document = self._view.home(key), decision.ours["sequence"], decision.document
        if decision.how == "merge":
            self._log(key, decision, "merge", digest(document))
        elif key in self._mine:
            self._log(key, decision, "mine")
        self._location.write(home, self._encoded(document), self._view.revision(home))
        if decision.how == "merge" or document["sequence"] != ours:
            self._cycles.adopt(document, ours)
        else:
            self._cycles.sent(str(key), "write", ours, self._location.name)

    def _retry(self, key: Key, decision: _Decision, late: errors.VersionMismatch, pause: float | None) -> _Decision:
        """Read again after a pause; without one, refuse the cycle."""
        if pause is None:
            theirs = self._view.reading.documents.get(key)
            why = f"others were faster {len(BACK_OFF) + 1} times"
            return self._refuse(key, decision.ours, theirs, late.version, why)
        self._found.warn(_place(key), f"somebody else wrote it, {late.version}: read again")
        self._sleep(pause)
        self._view = look(self._location)
        return decision

    def _log(self, key: Key, decision: _Decision, how: str, digest: str = "") -> None:
        theirs = self._view.reading.documents.get(key)
        self._cycles.sent(
            str(key),
            how,
            decision.ours["sequence"],
            self._location.name[:1000],
            theirs=0 if theirs is None else theirs["sequence"],
            digest=digest,
            why=decision.why[:1000],
        )

    def _report(self, key: Key, decision: _Decision) -> None:
        """Report what was done with a cycle, here and in the log."""
        if decision.how in ("skip", "refuse") and not self._dry_run:
            self._log(key, decision, decision.how)
        if decision.how == "unchanged" and not (decision.shared or self._dry_run):
            self._cycles.sent(str(key), "write", decision.ours["sequence"], self._location.name[:1000])
        if decision.refusal is not None:
            self._refusals.append(decision.refusal)
        elif decision.how == "skip":
            self._found.skip(_place(key), decision.why)
        else:
            self._done.add(key)
            self._found.count(_OUTCOMES[decision.how], _place(key))
        if decision.how == "merge":
            self._found.warn(_place(key), f"merged {decision.why}")

    def finish(self) -> ExportReport:
        """Update the current cycle of each prefix. Raises CycleConflict if something was refused."""
        if not self._dry_run:
            last = {key.prefix: key.number for key in sorted(self._done)}
            for prefix, number in sorted(last.items()):
                try:
                    self._set_current(prefix, max(number, self._current(prefix)))
                except errors.VersionMismatch as late:
                    self._refusals.append(Refusal(f"{prefix}:cycle:current", late.message, "export again"))
        lists = {name: getattr(self._found.report, name) for name in ImportReport.__struct_fields__}
        report = ExportReport(**lists | {"dry_run": self._dry_run}, old_keys=[*self._old_keys()])
        if self._refusals:
            raise refused(self._refusals, self._location.name, report)
        return report

    def _old_keys(self) -> Iterator[str]:
        """Entries whose whole content is in v2 documents now, not only superseded by one."""
        reading = self._first.reading
        made = {key for key, format in reading.formats.items() if format != "v2"}
        for name in dict.fromkeys(name for key in made for name in reading.sources[key]):
            of = [key for key, sources in reading.sources.items() if name in sources]
            if name not in {key.dotted for key in of} and all(key in made and key in self._done for key in of):
                yield name

    def _current(self, prefix: str) -> int:
        """The number of the current cycle of the workspace, 0 if it cannot be read."""
        try:
            return int(self._cycles.get(prefix).metadata.cycle_number)
        except (errors.NotFound, errors.Corrupt):
            return 0

    def _set_current(self, prefix: str, number: int) -> None:
        """Write the number of the current cycle, unless the location has a higher one."""
        view = self._view
        for pause in (*BACK_OFF, None):
            if view.reading.current.get(prefix, 0) >= number:
                return
            name = next((name for name in view.entries if _is_current(name, prefix)), f"{prefix}:cycle:current")
            name = name if name in view.entries else name.replace(":", ".")
            try:
                self._location.write(name, str(number).encode(), view.revision(name))
                return
            except errors.VersionMismatch:
                if pause is None:
                    raise
                self._sleep(pause)
                view = look(self._location)

    def _encoded(self, document: Document) -> bytes:
        text = msgspec.json.encode(document)
        return msgspec.json.format(text, indent=self._location.indent) + b"\n" if self._location.indent else text


def _place(key: Key) -> Place:
    return Place("cycles", 0, str(key))


def _is_current(name: str, prefix: str) -> bool:
    source = by_name(name)
    return source is not None and (source.kind, source.prefix) == ("current", prefix)


__all__ = ["Bucket", "Entry", "ExportReport", "Folder", "Location", "Revision", "bring", "send"]
