"""Cycles in a real JetStream bucket (P9): import and export in every format, and writers at the same time."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.interchange.peer.locations import Bucket
from holdfast.interchange.peer.sync import bring, send
from holdfast.interchange.peer.view import old_keys, remove_old_keys
from holdfast.workspace import Workspace
from tests.amounts import amount
from tests.worlds.nats import server_binary

BUCKET = "agent-os-peer-state"
SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "cycles"
PATIENCE = 30.0
T1, T2 = "2025-08-01T08:00:00Z", "2025-08-01T09:00:00Z"
KEY, DOTTED = "peer:spec:search:cycle:3", "peer.spec.search.cycle.3"


def started(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server that says it is ready, on a port of its choice; it stores in this folder."""
    command = [server_binary(), "-a", "127.0.0.1", "-p", "-1", "-sd", str(folder), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    told: list[str] = []
    for line in process.stderr or ():  # ends with the server
        told.append(line)
        if "Server is ready" in line:
            break
    found = re.search(r"client connections on (\S+)", "".join(told))
    assert found, told
    return process, f"nats://{found[1]}"


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nats")
    process, url = started(folder, "-js")
    yield url
    stop(process)


class Others:
    """Other agents at the same bucket, by the client itself."""

    def __init__(self, url: str) -> None:
        self.url = url

    def do(self, work: Callable[[Any, Any], Coroutine[Any, Any, Any]]) -> Any:
        """Run something with a connection and JetStream."""

        async def run() -> Any:
            import nats

            client = await nats.connect(self.url)
            try:
                return await work(client, client.jetstream())
            finally:
                await client.close()

        return asyncio.run(run())

    def put(self, entries: dict[str, Any]) -> dict[str, int]:
        """Write values without looking, as agents with shells do; also under keys that have colons."""

        async def work(_: Any, stream: Any) -> dict[str, int]:
            values = await stream.key_value(BUCKET)
            done = {}
            for key, value in entries.items():
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                done[key] = await values.put(key, data, validate_keys=False)
            return done

        found: dict[str, int] = self.do(work)
        return found

    def delete(self, key: str) -> None:
        async def work(_: Any, stream: Any) -> None:
            await (await stream.key_value(BUCKET)).delete(key)

        self.do(work)

    def forget(self) -> None:
        """A bucket without anything, as upstream makes it."""

        async def work(_: Any, stream: Any) -> None:
            from nats.js.api import KeyValueConfig
            from nats.js.errors import NotFoundError

            with suppress(NotFoundError):
                await stream.delete_key_value(BUCKET)
            await stream.create_key_value(KeyValueConfig(bucket=BUCKET, history=50))

        self.do(work)


@pytest.fixture
def others(server: str) -> Others:
    found = Others(server)
    found.forget()
    return found


@pytest.fixture
def bucket(server: str, others: Others) -> Iterator[Bucket]:
    with Bucket(server, BUCKET) as place:
        yield place


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="planner") as workspace:
        yield workspace


def v2(**changes: Any) -> dict[str, Any]:
    metadata = {"spec_name": "search", "key_prefix": "peer:spec:search", "cycle_number": 3, "status": "in_progress"}
    plan = {"status": "in_progress", "started_at": T2, "sequence_at_start": 2, "errors": []}
    rest = {phase: {"status": "pending"} for phase in ("execute", "express", "review")}
    return {
        "version": 2,
        "cycle_id": KEY,
        "sequence": 2,
        "metadata": metadata | {"created_at": T1, "updated_at": T2, "current_phase": "plan"},
        "context": {"peer_mode": "new"},
        "phases": {"plan": plan, **rest},
        "history": [{"timestamp": T2, "phase": "plan", "event": "started", "sequence": 2}],
        **changes,
    }


FRAGMENTS = {
    "cycle:current": b"3",
    "cycle:3:metadata": {"instruction": "create-spec", "spec": "search", "status": "running", "created_at": T1}
    | {"phases_completed": ["plan"]},
    "cycle:3:plan": {"steps": 2},
    "cycle:3:execution": b"half of it",
    "cycle:3:context.peer_mode": b"new",
}
FORMATS: dict[str, dict[str, Any]] = {
    "meta and cycle": {
        "peer.spec.search.meta": {"current_cycle": 3, "cycles": {"3": {"status": "running", "started_at": T1}}},
        DOTTED: {"cycle_number": 3, "started_at": T1, "phases": {"plan": {"status": "running", "output": {"a": 1}}}},
    },
    "fragments with dots": {f"peer.spec.search.{key}".replace(":", "."): value for key, value in FRAGMENTS.items()},
    "fragments with colons": {f"peer:spec:search:{key}": value for key, value in FRAGMENTS.items()},
    "1.0": {
        DOTTED: {
            "schema_version": "1.0",
            "sequence": 4,
            "status": "PLANNING",
            "metadata": {"key_prefix": "peer:spec:search", "cycle_number": 3, "created_at": T1, "last_updated_at": T2},
            "phases": {"plan": {"status": "in_progress", "started_at": T1}},
        }
    },
    "1.1": {
        DOTTED: {
            "version": 1.1,
            "cycle_id": DOTTED,
            "metadata": {"instruction_name": "create-spec", "status": "PLANNING", "created_at": T1, "updated_at": T2},
            "phases": {"plan": {"status": "in_progress", "started_at": T1}},
            "insights": ["kept"],
        }
    },
    "v2": {DOTTED: v2()},
}


@pytest.mark.parametrize("format", FORMATS)
def test_p9_every_format_of_a_bucket_is_imported_and_exported_as_v2(
    format: str, bucket: Bucket, others: Others, ws: Workspace
) -> None:
    others.put(FORMATS[format])
    assert bring(ws, bucket).created["cycles"] == [KEY]
    document = ws.cycles.export(KEY)
    sent = send(ws, bucket)
    assert sent.unchanged["cycles"] + sent.updated["cycles"] == [KEY]
    found = bucket.read()
    assert json.loads(found[DOTTED].value) == document
    for key, value in FORMATS[format].items():
        if key != DOTTED:
            assert found[key].value == (value if isinstance(value, bytes) else json.dumps(value).encode())
    ws.cycles.complete_phase(KEY, document["metadata"]["current_phase"], {"done": True})
    assert send(ws, bucket).updated["cycles"] == [KEY]
    assert json.loads(bucket.read()[DOTTED].value) == ws.cycles.export(KEY)
    with holdfast.open(":memory:", actor="other") as other:
        assert bring(other, bucket).created["cycles"] == [KEY]
        assert other.cycles.export(KEY) == ws.cycles.export(KEY)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
def test_p9_every_sample_goes_through_a_bucket(bucket: Bucket, others: Others) -> None:
    for file in sorted(SAMPLES.glob("*.json")):
        others.forget()
        value = json.loads(file.read_bytes())
        _, _, key = file.stem.partition("legacy-dot.")
        entries = value.get("keys") or {key or value.get("cycle_id", "sample").replace(":", "."): value}
        others.put(entries)
        with holdfast.open(":memory:", actor="x") as ws:
            created = bring(ws, bucket).created["cycles"]
            assert created, file.name
            sent = send(ws, bucket)
            there = [*sent.unchanged["cycles"], *sent.updated["cycles"], *sent.created["cycles"]]
            assert sorted(there) == created, file.name
            for cycle in created:
                assert ws.cycles.validate(ws.cycles.export(cycle)) == [], file.name


def test_p9_a_concurrent_writer_makes_the_export_fail_with_its_revision(
    bucket: Bucket, others: Others, ws: Workspace
) -> None:
    others.put({DOTTED: v2()})
    bring(ws, bucket)
    ws.cycles.update_phase(KEY, "plan", {"steps": ["ours"]})
    theirs = v2(sequence=3)
    theirs["phases"] = {**theirs["phases"], "plan": {**theirs["phases"]["plan"], "output": {"steps": ["theirs"]}}}
    written: list[int] = []

    class Slow:
        """The bucket, where somebody else writes between our look and our write."""

        name, indent = bucket.name, bucket.indent
        read = staticmethod(bucket.read)
        history = staticmethod(bucket.history)
        remove = staticmethod(bucket.remove)

        def write(self, key: str, value: bytes, expected: Any) -> Any:
            written.extend(others.put({DOTTED: theirs}).values())
            return bucket.write(key, value, expected)

    with pytest.raises(errors.CycleConflict) as refused:
        send(ws, Slow(), sleep=lambda _: None)
    assert len(written) == 1
    assert refused.value.revision == written[0]
    assert refused.value.theirs == theirs
    assert refused.value.mine == ws.cycles.export(KEY)
    assert json.loads(bucket.read()[DOTTED].value) == theirs, "nothing was overwritten"


def test_p9_a_write_states_the_revision_that_it_goes_on_from(bucket: Bucket, others: Others) -> None:
    first = bucket.write("a", b"1", None)
    with pytest.raises(errors.VersionMismatch) as there:
        bucket.write("a", b"2", None)
    assert there.value.version == first
    second = bucket.write("a", b"2", first)
    with pytest.raises(errors.VersionMismatch) as late:
        bucket.write("a", b"3", first)
    assert late.value.version == second
    others.delete("a")
    assert bucket.read() == {}
    with pytest.raises(errors.VersionMismatch) as gone:
        bucket.write("a", b"3", second)
    assert gone.value.version is None
    assert bucket.write("a", b"3", None), "a key that was deleted can be made again"


def test_p9_a_bucket_of_hundreds_of_keys_is_read_whole(bucket: Bucket, others: Others) -> None:
    others.put({f"peer.spec.search.cycle.{number}.plan": str(number).encode() for number in range(1, 601)})
    found = bucket.read()
    assert {int(entry.value) for entry in found.values()} == set(range(1, 601))


def test_p9_a_bucket_is_never_read_as_empty_whenever_the_end_marker_comes(bucket: Bucket, others: Others) -> None:
    others.put({"peer.spec.large.cycle.1.plan": b"x" * 900_000, **FORMATS["v2"]})
    for _ in range(amount(60, 1000)):
        assert bucket.read().keys() == {"peer.spec.large.cycle.1.plan", DOTTED}


class Early:
    """A watch of the server whose end marker comes first, as if all had been delivered before the client asked."""

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher
        self.asked = 0
        self.stop = watcher.stop

    async def updates(self, timeout: float) -> Any:
        self.asked += 1
        return None if self.asked == 1 else await self._watcher.updates(timeout)


def test_p9_an_end_marker_that_comes_first_ends_nothing(
    bucket: Bucket, others: Others, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nats.js.kv import KeyValue

    watch = KeyValue.watchall

    async def early(self: Any, **how: Any) -> Any:
        return Early(await watch(self, **how))

    monkeypatch.setattr(KeyValue, "watchall", early)
    assert bucket.read() == {}
    entries = FORMATS["fragments with dots"]
    others.put(entries)
    assert bucket.read().keys() == entries.keys()
    assert bring(ws, bucket).created["cycles"] == [KEY]


def test_p9_a_reading_that_lacks_a_key_is_an_error_and_no_answer(
    bucket: Bucket, others: Others, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    others.put({"a": b"1"})
    with Bucket(server, BUCKET, timeout=0.2) as short:
        listed = short._subjects

        async def more() -> Any:
            found, messages = await listed()
            return {*found, "b"}, messages

        async def unknown() -> Any:
            return set(), 1

        for wrong in (more, unknown):
            monkeypatch.setattr(short, "_subjects", wrong)
            with pytest.raises(errors.Unavailable, match="whenever it was read"):
                short.read()


def test_p9_a_corrupt_entry_is_recovered_from_the_history_of_the_bucket(
    bucket: Bucket, others: Others, ws: Workspace
) -> None:
    good = others.put({DOTTED: v2()})[DOTTED]
    for value in (b'{"version": 2,', b"\xff", v2(sequence=3, phases={})):
        bad = others.put({DOTTED: value})[DOTTED]
    with holdfast.open(":memory:", actor="other") as other:
        report = bring(other, bucket)
        assert report.created["cycles"] == [KEY]
        assert other.cycles.export(KEY)["sequence"] == 2
    (warning,) = report.warnings
    assert warning.id == DOTTED
    assert warning.message.startswith(f"revision {bad} cannot be read, so revision {good} counts")
    bring(ws, bucket)
    assert send(ws, bucket).updated["cycles"] == [KEY]
    assert json.loads(bucket.read()[DOTTED].value) == ws.cycles.export(KEY)
    assert send(ws, bucket).unchanged["cycles"] == [KEY]
    assert [json.loads(bucket.history(DOTTED)[0].value)["sequence"]] == [3], "the bucket keeps what could not be read"


def test_p9_an_entry_that_was_never_sound_stays_a_problem(bucket: Bucket, others: Others, ws: Workspace) -> None:
    others.put({DOTTED: b"{"})
    others.put({DOTTED: b"["})
    with pytest.raises(errors.Invalid, match=re.escape(DOTTED)):
        bring(ws, bucket)


def test_p9_a_key_that_was_deleted_is_a_conflict_and_not_made_again(
    bucket: Bucket, others: Others, ws: Workspace
) -> None:
    others.put({DOTTED: v2()})
    bring(ws, bucket)
    ws.cycles.start("another")
    others.delete(DOTTED)
    with pytest.raises(errors.CycleConflict, match="somebody deleted it there; it was not created again") as refused:
        send(ws, bucket)
    assert [each["key"] for each in refused.value.details["conflicts"]] == [KEY]
    assert refused.value.mine == ws.cycles.export(KEY)
    assert "peer.spec.another.cycle.1" in bucket.read(), "the others are written"
    assert send(ws, bucket, mine=[KEY]).created["cycles"] == [KEY]
    assert json.loads(bucket.read()[DOTTED].value) == ws.cycles.export(KEY)


@pytest.mark.parametrize("format", ["fragments with dots", "fragments with colons", "meta and cycle"])
def test_p9_old_keys_are_found_again_after_an_export_that_was_killed(
    format: str, bucket: Bucket, others: Others, ws: Workspace
) -> None:
    others.put(FORMATS[format])
    bring(ws, bucket)
    assert old_keys(ws, bucket) == [], "nothing is v2 yet"
    ws.cycles.complete_phase(KEY, ws.cycles.get(KEY).metadata.current_phase or "plan", {"done": True})
    left = send(ws, bucket).old_keys
    assert send(ws, bucket).old_keys == [], "the second export has forgotten"
    assert [(old.name, old.kept) for old in old_keys(ws, bucket)] == [(name, "") for name in sorted(left)]
    with holdfast.open(":memory:", actor="new") as stranger:
        bring(stranger, bucket)
        assert all("no version that was imported" in old.kept for old in remove_old_keys(stranger, bucket))
    assert left
    assert set(left) <= bucket.read().keys()
    assert [old.name for old in remove_old_keys(ws, bucket)] == sorted(left)
    assert not set(left) & bucket.read().keys()
    assert old_keys(ws, bucket) == []
    assert send(ws, bucket).unchanged["cycles"] == [KEY]


def test_p9_an_old_key_that_somebody_changed_stays(bucket: Bucket, others: Others, ws: Workspace) -> None:
    others.put(FORMATS["fragments with dots"])
    bring(ws, bucket)
    send(ws, bucket)
    others.put({"peer.spec.search.cycle.3.plan": {"steps": 3}})
    assert {old.kept for old in remove_old_keys(ws, bucket)} == {f"{KEY}: the workspace has imported something else"}
    assert "peer.spec.search.cycle.3.plan" in bucket.read()


def test_p9_a_foreign_key_and_a_mark_are_reported_and_stop_nothing(
    bucket: Bucket, others: Others, ws: Workspace
) -> None:
    others.put({"config.theme": b"dark", "notes": {"a": 1}, DOTTED: b"\xef\xbb\xbf" + json.dumps(v2()).encode()})
    report = bring(ws, bucket)
    assert report.created["cycles"] == [KEY]
    assert sorted(str(each.id) for each in report.warnings) == ["config.theme", "notes", DOTTED]
    assert send(ws, bucket).unchanged["cycles"] == [KEY]
    others.put({"peer.spec.v1.2.cycle.1": {"started_at": T1}})
    with pytest.raises(errors.Invalid, match="neither its name"):
        bring(ws, bucket)


def test_p9_a_bucket_that_is_not_there_is_made_only_if_wanted(server: str, others: Others) -> None:
    with pytest.raises(errors.NotFound, match="no-such-bucket"):
        Bucket(server, "no-such-bucket")
    with Bucket(server, "a-new-bucket", create=True) as made:
        assert made.read() == {}
    with Bucket(server, "a-new-bucket") as again:
        assert again.read() == {}
    with pytest.raises(errors.InvalidName):
        Bucket(server, "no bucket")


def test_p9_a_server_that_is_not_there_is_unavailable_and_its_password_is_not_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(errors.Unavailable) as refused:
        Bucket(f"nats://user:secret@127.0.0.1:{port}", BUCKET, timeout=2)
    assert str(port) in refused.value.message
    assert "secret" not in str(refused.value)


def test_p9_a_server_without_jetstream_is_told(tmp_path: Path) -> None:
    process, url = started(tmp_path)
    try:
        with pytest.raises(errors.Unavailable, match="JetStream"):
            Bucket(url, BUCKET)
    finally:
        stop(process)


def test_p9_who_may_not_call_is_told_so(tmp_path: Path) -> None:
    process, url = started(tmp_path, "-js", "--user", "a", "--pass", "right")
    try:
        with pytest.raises(errors.Unauthorized):
            Bucket(url.replace("//", "//a:wrong@"), BUCKET)
        with Bucket(url.replace("//", "//a:right@"), BUCKET, create=True) as place:
            assert place.read() == {}
            assert "right" not in place.name
    finally:
        stop(process)


def test_p9_a_server_that_goes_away_is_unavailable(tmp_path: Path) -> None:
    process, url = started(tmp_path, "-js")
    try:
        with Bucket(url, BUCKET, create=True) as place:
            place.write("a", b"1", None)
            process.kill()
            process.wait(PATIENCE)
            with pytest.raises(errors.Unavailable):
                place.read()
            with pytest.raises(errors.Unavailable):
                place.write("a", b"2", 1)
    finally:
        stop(process)


def test_p9_the_command_line_imports_and_exports(
    server: str, others: Others, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others.put(FORMATS["fragments with colons"])
    store = str(tmp_path / "store")
    place = ["--nats", server, "--bucket", BUCKET]

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["--dir", store, "--actor", "planner", "cycle", *words])
        return (code, *capsys.readouterr())

    assert call("import", *place, "-q")[:2] == (0, f"{KEY}\n")
    code, out, _ = call("export", *place)
    assert (code, out.splitlines()[0]) == (0, f"updated: {KEY}")
    assert "peer:spec:search:cycle:3:plan: replaced by v2" in out
    code, out, _ = call("old-keys", *place)
    assert (code, "peer:spec:search:cycle:3:plan: may be removed" in out) == (0, True)
    assert "peer:spec:search:cycle:3:plan: removed" in call("old-keys", *place, "--remove")[1]
    assert call("old-keys", *place)[1] == "no old keys\n"
    assert call("complete-phase", KEY, "execute", '{"files": 1}')[0] == 0
    theirs = {**v2(), "metadata": {**v2()["metadata"], "created_at": T2}}
    revision = others.put({DOTTED: theirs})[DOTTED]
    code, out, told = call("export", *place, "--json")
    assert (code, out) == (errors.CycleConflict.exit_code, "")
    error = json.loads(told)
    assert (error["code"], error["details"]["revision"]) == ("CYCLE_CONFLICT", revision)
    assert error["details"]["theirs"] == theirs
    assert call("import", "--nats", server, "--bucket", "nowhere")[0] == errors.NotFound.exit_code
    assert call("export", "--nats", server, "--bucket", "made", "--create", "-q")[:2] == (0, f"{KEY}\n")
