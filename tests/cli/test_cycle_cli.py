"""Cycles on the command line (issue 9): a timeline, and folders that they come from and go to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.faces.cli.commands.cycle import duration, timeline
from holdfast.faces.cli.views import painter
from holdfast.types.cycles import Cycle
from tests.cli.calling import Answer

Cli = Callable[..., Answer]
KEY = "peer:spec:login:cycle:1"
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def at(minutes: float) -> str:
    return (START + timedelta(minutes=minutes)).isoformat()


def cycle(status: str = "in_progress", updated: float = 40, **phases: dict[str, Any]) -> Cycle:
    """A cycle whose phases are these; the others are pending."""
    going = [name for name, phase in phases.items() if phase["status"] != "completed"]
    metadata: dict[str, Any] = {
        "key_prefix": "peer:spec:login",
        "cycle_number": 1,
        "status": status,
        "instruction": "create-spec",
    }
    metadata |= {"created_at": at(0), "updated_at": at(updated), "current_phase": going[0] if going else None}
    every = {name: phases.get(name, {"status": "pending"}) for name in ("plan", "execute", "express", "review")}
    document = {"version": 2, "cycle_id": KEY, "sequence": 9, "metadata": metadata, "context": {}, "history": []}
    return msgspec.convert({**document, "phases": every}, Cycle)


def drawn(found: Cycle, width: int = 68) -> list[str]:
    return timeline(found, width, painter(False))


PLAN = {"status": "completed", "started_at": at(0), "completed_at": at(10)}


# --- the timeline ----------------------------------------------------------------------------------------------------


def test_p11_the_phases_lie_one_after_the_other_on_one_axis() -> None:
    execute = {"status": "in_progress", "started_at": at(10)}
    lines = drawn(cycle(plan=PLAN, execute=execute))
    assert lines[0] == f"{KEY}  in_progress in execute  sequence 9  create-spec"
    assert lines[3:] == [
        "  plan     [#####...............] completed   +0s      10m 0s",
        "> execute  [.....##############>] in_progress +10m 0s  30m 0s so far",
        "  express  [....................] pending",
        "  review   [....................] pending",
    ]


def test_p11_a_failed_phase_shows_where_and_why() -> None:
    execute: dict[str, Any] = {"status": "failed", "started_at": at(10), "completed_at": at(20)}
    execute["errors"] = [{"message": "out of time", "timestamp": at(20)}, "and of patience"]
    lines = drawn(cycle("failed", plan=PLAN, execute=execute))
    assert lines[0].startswith(f"{KEY}  failed in execute")
    assert lines[4] == "> execute  [..........#########x] failed      +10m 0s  10m 0s"
    assert lines[5:7] == ["             ! out of time", "             ! and of patience"]


def test_p11_a_phase_of_which_no_time_is_known_is_dashed() -> None:
    lines = drawn(cycle("completed", plan={"status": "completed"}, execute={"status": "completed"}))
    assert lines[0].startswith(f"{KEY}  completed  ")
    assert lines[3] == "  plan     [--------------------] completed"


def test_p11_a_phase_that_took_no_time_is_seen_all_the_same() -> None:
    instant = {"status": "completed", "started_at": at(0), "completed_at": at(0)}
    assert "[#...................]" in drawn(cycle(plan=instant, execute={**PLAN, "status": "in_progress"}))[3]
    assert "[#...................]" in drawn(cycle(plan=instant))[3], "the axis has no length at all"
    backwards = {"status": "completed", "started_at": at(10), "completed_at": at(0)}
    assert "#" in drawn(cycle(plan=backwards))[3]


def test_p11_what_others_wrote_is_shown_and_not_obeyed_and_no_line_is_too_long() -> None:
    errors = [{"message": "\x1b[2J" + "x" * 300}, {"no": "message"}, None, 7, "a", "b", "c"]
    lines = drawn(cycle(plan={"status": "in_progress", "started_at": at(0), "errors": errors}), 60)
    assert not any("\x1b" in line for line in lines)
    assert max(len(line) for line in lines[3:]) <= 68
    assert sum("!" in line for line in lines) == 6, "the last five, and how many there were"


@pytest.mark.parametrize("width", [10, 40, 80, 300])
def test_p11_the_bars_are_as_wide_as_the_terminal_leaves_room_for(width: int) -> None:
    plain = drawn(cycle(plan=PLAN, execute={"status": "in_progress", "started_at": at(10)}), width)
    coloured = timeline(cycle(plan=PLAN, execute={"status": "in_progress", "started_at": at(10)}), width, painter(True))
    assert [ANSI.sub("", line).rstrip() for line in coloured] == plain
    assert coloured != plain
    assert len({line.index("]") for line in plain[3:]}) == 1
    assert plain[3].index("]") == max(width - 48, 8) + 12


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59.9, "59s"), (60, "1m 0s"), (3725, "1h 2m"), (90000, "1d 1h"), (-5, "0s")]
)
def test_p11_a_duration_has_two_units(seconds: float, told: str) -> None:
    assert duration(timedelta(seconds=seconds)) == told


def test_p11_cycle_show_prints_text_without_colour_where_no_terminal_is(made: Cli) -> None:
    made("cycle", "start", "--spec", "login")
    made("cycle", "start-phase", KEY, "plan")
    shown = made("cycle", "show", "peer.spec.login")
    assert (shown.code, "\x1b" in shown.out) == (0, False)
    assert "> plan     [" in shown.out
    assert made("cycle", "show", KEY, "--json").data["phases"]["plan"]["status"] == "in_progress"
    assert made("cycle", "show", KEY, "-q").id == KEY
    assert made("cycle", "show", "peer:spec:nobody").code == 10
    assert made("cycle", "show", "nonsense").code == 1


# --- folders ---------------------------------------------------------------------------------------------------------


def test_p9_a_folder_takes_cycles_to_another_workspace(made: Cli, project: Path) -> None:
    made("cycle", "start", "--spec", "login")
    assert made("cycle", "export", "--dir", "peer", "--dry-run").code == 10, "the folder is not made for that"
    assert made("cycle", "export", "--dir", "peer").out == f"created: {KEY}\n"
    assert made("cycle", "export", "--dir", "peer", "--dry-run").out == f"would be unchanged: {KEY}\n"
    assert json.loads((project / "peer" / "peer.spec.login.cycle.1.json").read_bytes())["cycle_id"] == KEY
    assert made("--dir", "copy", "cycle", "import", "--dir", "peer", "--dry-run").out == f"would be created: {KEY}\n"
    assert made("--dir", "copy", "cycle", "import", "--dir", "peer").out == f"created: {KEY}\n"
    again = made("--dir", "copy", "cycle", "import", "--dir", "peer", "--json").data
    assert (again["created"], again["unchanged"]) == ({"cycles": []}, {"cycles": [KEY]})
    assert made("--dir", "copy", "cycle", "get", KEY, "--json").data["cycle_id"] == KEY


def test_p9_only_what_is_named_is_exported(made: Cli) -> None:
    for spec in ("login", "search"):
        made("cycle", "start", "--spec", spec)
    assert made("cycle", "export", KEY, "--dir", "peer", "-q").out == f"{KEY}\n"
    assert made("cycle", "export", "peer:spec:nobody:cycle:1", "--dir", "peer").code == 10


def test_p9_one_place_must_be_named(made: Cli) -> None:
    for words in ([], ["--nats", "nats://127.0.0.1:1", "--dir", "x"], ["--dir", "x", "--bucket", "b"]):
        for command in ("import", "export"):
            assert made("cycle", command, *words).code == 2, words
    assert made("cycle", "import", "--dir", "nowhere").code == 10


def test_p9_what_cannot_be_read_is_told_by_its_key(made: Cli, project: Path) -> None:
    (project / "peer").mkdir()
    (project / "peer" / "peer.spec.login.cycle.1.json").write_text("{")
    (project / "peer" / "peer.spec.search.cycle.1.plan.json").write_text("a plan")
    refused = made("cycle", "import", "--dir", "peer", "--json")
    assert (refused.code, "peer.spec.login.cycle.1" in refused.error["error"]) == (1, True)
    assert made("cycle", "list", "--json").data == []
    skipped = made("cycle", "import", "--dir", "peer", "--skip-bad")
    assert skipped.code == 0
    first, count, second, *_ = skipped.out.splitlines()
    assert (first, count) == ("created: peer:spec:search:cycle:1", "1 entry skipped")
    assert second.startswith("peer.spec.login.cycle.1: error: it is not JSON")


def both_changed(made: Cli, project: Path) -> tuple[Path, dict[str, Any]]:
    """A cycle of which here and in a file another draft was written, and the file."""
    made("cycle", "start", "--spec", "login")
    made("cycle", "start-phase", KEY, "plan")
    made("cycle", "export", "--dir", "peer")
    file = project / "peer" / "peer.spec.login.cycle.1.json"
    theirs = json.loads(file.read_bytes())
    theirs["sequence"] += 1
    theirs["phases"]["plan"]["output"] = {"draft": "theirs"}
    file.write_text(json.dumps(theirs))
    made("cycle", "update-phase", KEY, "plan", '{"draft": "ours"}')
    return file, theirs


def test_p9_a_conflict_has_an_exit_code_both_sides_and_the_revision(made: Cli, project: Path) -> None:
    file, theirs = both_changed(made, project)
    refused = made("cycle", "export", "--dir", "peer", "--json")
    assert (refused.code, refused.error["code"]) == (9, "CYCLE_CONFLICT")
    details = refused.error["details"]
    assert details["theirs"] == theirs
    assert details["mine"]["phases"]["plan"]["output"] == {"draft": "ours"}
    assert len(details["revision"]) == 64
    assert json.loads(file.read_bytes()) == theirs


def draft(made: Cli) -> str:
    return str(made("cycle", "get", KEY, "--json").data["phases"]["plan"]["output"]["draft"])


def test_p4_a_conflict_shows_both_sides_and_the_others_are_written(made: Cli, project: Path) -> None:
    both_changed(made, project)
    made("cycle", "start", "--spec", "search")
    told = made("cycle", "export", "--dir", "peer")
    assert told.code == 9
    assert told.out.splitlines()[0] == "created: peer:spec:search:cycle:1"
    assert '  $.phases.plan.output.draft: "ours" became "theirs"' in told.out
    assert "--theirs KEY" in told.err
    assert (project / "peer" / "peer.spec.search.cycle.1.json").exists()
    told = made("cycle", "import", "--dir", "peer")
    assert (told.code, '"ours" became "theirs"' in told.out, "--mine KEY" in told.err) == (9, True, True)
    assert made("cycle", "import", "--dir", "peer", "--dry-run", "--json").code == 9


def test_p4_theirs_or_mine_ends_a_conflict(made: Cli, project: Path) -> None:
    file, _ = both_changed(made, project)
    assert made("cycle", "import", "--dir", "peer", "--theirs", KEY).out == f"updated: {KEY}\n"
    assert draft(made) == "theirs"
    made("cycle", "update-phase", KEY, "plan", '{"draft": "ours"}')
    file.write_text(file.read_text().replace("theirs", "theirs again"))
    assert made("cycle", "export", "--dir", "peer").code == 9
    assert made("cycle", "export", "--dir", "peer", "--mine", KEY).out == f"updated: {KEY}\n"
    assert json.loads(file.read_bytes())["phases"]["plan"]["output"] == {"draft": "ours"}
    assert made("cycle", "import", "--dir", "peer").out == f"unchanged: {KEY}\n"


def test_p4_a_document_from_elsewhere_is_adopted_at_the_sequence_that_was_read(made: Cli, project: Path) -> None:
    _, theirs = both_changed(made, project)
    assert made("cycle", "adopt", json.dumps(theirs), "--sequence", "2").code == 9
    assert made("cycle", "adopt", json.dumps(theirs), "--sequence", "3", "--json").data["sequence"] == 4
    assert draft(made) == "theirs"


def test_p9_a_dry_run_says_that_an_import_would_be_refused_and_makes_no_workspace(made: Cli, project: Path) -> None:
    (project / "peer").mkdir()
    (project / "peer" / "peer.spec.login.cycle.1.json").write_text("{")
    (project / "peer" / "peer.spec.search.cycle.1.plan.json").write_text("a plan")
    told = made("--dir", "copy", "cycle", "import", "--dir", "peer", "--dry-run")
    assert (told.code, told.err.startswith("holdfast: 1 entry cannot be imported")) == (1, True)
    assert "peer.spec.login.cycle.1: error: it is not JSON" in told.err
    told = made("--dir", "copy", "cycle", "import", "--dir", "peer", "--dry-run", "--skip-bad")
    assert (told.code, told.out.splitlines()[0]) == (0, "would be created: peer:spec:search:cycle:1")
    assert not (project / "copy").exists()


def test_p9_what_is_skipped_is_not_called_no_cycles(made: Cli, project: Path) -> None:
    file, _ = both_changed(made, project)
    made("cycle", "import", "--dir", "peer", "--theirs", KEY)
    file.write_text(file.read_text().replace("theirs", "further"))
    told = made("cycle", "export", "--dir", "peer")
    assert (
        told.code,
        told.out.startswith(f"1 entry skipped\n{KEY}: warning: nothing was done here since"),
        "no cycles" in told.out,
    ) == (
        0,
        True,
        False,
    )


@pytest.mark.parametrize(
    "address", ["", "nats://", "nats://host:99999", "nats://[::1", "nats://host:x", "http://host", "nats://:4222"]
)
def test_p9_what_is_no_address_of_a_server_is_refused(made: Cli, address: str) -> None:
    for command in ("import", "export"):
        told = made("cycle", command, "--nats", address, "--json")
        assert (told.code, told.error["code"]) == (1, "INVALID"), told
        assert "nats://127.0.0.1:4222" in told.error["hint"]


def test_p5_a_document_of_a_file_is_validated(made: Cli, project: Path) -> None:
    made("cycle", "start", "--spec", "login")
    made("cycle", "export", "--dir", "peer")
    file = project / "peer" / "peer.spec.login.cycle.1.json"
    assert made("cycle", "validate", str(file)).code == 0
    file.write_text(file.read_text().replace('"version": 2', '"version": 3'))
    told = made("cycle", "validate", str(file), "--json")
    assert (told.code, told.data[0]["path"]) == (1, "$.version")
    assert made("cycle", "validate", "{}").code == 1
    assert made("cycle", "validate", "nowhere.json").code == 2


# --- without a workspace, and from elsewhere -------------------------------------------------------------------------


def test_p5_a_phase_without_an_output_on_which_another_began_is_reported(cli: Cli, project: Path) -> None:
    """`cycle validate` needs no workspace: it checks the document alone."""
    execute = {"status": "in_progress", "started_at": at(10)}
    document = msgspec.to_builtins(cycle(plan=PLAN | {"output": {"steps": 1}}, execute=execute))
    (project / "sound.json").write_text(json.dumps(document))
    sound = cli("cycle", "validate", "sound.json")
    assert (sound.code, sound.out.strip()) == (0, "")
    document["phases"]["plan"]["output"] = None
    wrong = cli("cycle", "validate", "-", "--json", stdin=json.dumps(document))
    assert (wrong.code, "$.phases.plan.output" in wrong.out) == (1, True), wrong.out
    assert not (project / ".holdfast").exists()
    assert cli("init").code == 0
    assert cli("cycle", "validate", "-", stdin=json.dumps(document)).code == 1


def test_p5_a_file_that_holds_no_document_is_named(cli: Cli, project: Path) -> None:
    document = json.dumps(msgspec.to_builtins(cycle(plan=PLAN | {"output": {"steps": 1}})))
    for name, content, told in (
        ("marked.json", b"\xef\xbb\xbf" + document.encode(), ""),
        ("empty.json", b"\n", "empty.json is not JSON: it is empty"),
        ("broken.json", document.encode()[:-9], "broken.json is not JSON"),
        ("twice.json", b'{"a": 1, "a": 2}', "twice.json is not JSON: duplicate key"),
        ("bytes.json", b"\xff", "bytes.json is not UTF-8"),
        (".", None, ". cannot be read: Is a directory"),
        ("nowhere.json", None, "nowhere.json cannot be read: No such file"),
    ):
        if content is not None:
            (project / name).write_bytes(content)
        found = cli("cycle", "validate", name)
        assert (found.code, told in found.err, "shell" in found.err) == (2 if told else 0, True, False), found.err


def test_p8_cycles_of_other_prefixes_come_in_by_a_mapping(made: Cli, project: Path) -> None:
    there = project / "theirs"
    there.mkdir()
    document = msgspec.to_builtins(cycle(plan=PLAN | {"output": {"steps": 1}}))
    document["metadata"]["spec_name"] = "v1.2"
    text = json.dumps(document).replace("peer:spec:login", "acme.spec.v1.2")
    (there / "acme.spec.v1.2.cycle.1.json").write_text(text)
    (there / "peer.spec.door.cycle.2.json").write_text(json.dumps({"started_at": at(0)}))
    assert "acme" in made("cycle", "import", "--dir", "theirs", "--dry-run").out
    taken = made("cycle", "import", "--dir", "theirs", "--prefix", "acme.spec.v1.2=peer:spec:v1-2", "--json")
    assert taken.code == 0, taken.err
    assert sorted(taken.data["created"]["cycles"]) == ["peer:spec:door:cycle:2", "peer:spec:v1-2:cycle:1"]
    found = made("cycle", "document", "peer:spec:v1-2:cycle:1", "--json").data
    assert (found["cycle_id"], found["metadata"]["key_prefix"]) == ("peer:spec:v1-2:cycle:1", "peer:spec:v1-2")
    assert found["metadata"]["spec_name"] == "v1-2"
    again = made("cycle", "import", "--dir", "theirs", "--prefix", "acme.spec.v1.2=peer:spec:v1-2", "--json")
    assert again.data["created"]["cycles"] == []
    refused = made("cycle", "import", "--dir", "theirs", "--prefix", "acme.spec.v1.2=else:v1.2")
    assert (refused.code, "cannot stand for the prefix" in refused.err) == (1, True)
    both = made("cycle", "import", "--dir", "theirs", "--prefix", "acme.spec.v1.2=peer:spec:door", "--skip-bad")
    assert both.code == 0, both.err
    (there / "acme.spec.v1.3.cycle.1.json").write_text(
        text.replace("v1.2", "v1.3").replace('"version": 2', '"version": 3')
    )
    named = made("cycle", "import", "--dir", "theirs", "--prefix", "acme.spec.v1.3=peer:spec:v1-3")
    assert (named.code, "acme.spec.v1.3.cycle.1: error: unknown version 3" in named.err) == (1, True), named.err


def test_p8_our_own_cycles_come_in_under_another_name_and_go_back_as_they_were(cli: Cli, project: Path) -> None:
    """Whatever the key is mapped to, the names in the document follow: of specs, and of instructions."""

    def document(place: str, key: str) -> Any:
        return cli("--dir", place, "cycle", "document", key, "--json").data

    for kind, name, other in (("spec", "login", "signin"), ("instruction", "release", "ship")):
        start = ("--spec", name, "--instruction", "create-spec") if kind == "spec" else ("--instruction", name)
        ours, theirs = f"peer:{kind}:{name}", f"peer:{kind}:{other}"
        assert cli("--dir", "a", "cycle", "start", *start).code == 0
        assert cli("--dir", "a", "cycle", "export", "--dir", f"out-{kind}").code == 0
        there = cli("--dir", "b", "cycle", "import", "--dir", f"out-{kind}", "--prefix", f"{ours}={theirs}")
        assert there.code == 0, there.err
        metadata, field = document("b", theirs)["metadata"], "spec_name" if kind == "spec" else "instruction"
        assert (metadata[field], metadata["key_prefix"]) == (other, theirs)
        assert cli("--dir", "b", "cycle", "export", f"{theirs}:cycle:1", "--dir", f"back-{kind}").code == 0
        back = cli("--dir", "c", "cycle", "import", "--dir", f"back-{kind}", "--prefix", f"{theirs}={ours}")
        assert back.code == 0, back.err
        assert document("c", ours) == document("a", ours)
        again = cli("--dir", "a", "cycle", "import", "--dir", f"back-{kind}", "--prefix", f"{theirs}={ours}", "--json")
        assert again.data["unchanged"]["cycles"] == [f"{ours}:cycle:1"], again.err
