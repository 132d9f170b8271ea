"""OpenTelemetry (issue 26): a span and a measurement for each operation, one trace through all faces, nothing when off.

The SDK of OpenTelemetry receives what Holdfast emits through the API alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import holdfast
from holdfast import errors, telemetry
from holdfast.route import OBSERVED
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Received:
    """What was emitted."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self._reader])

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if name in ("", span.name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def durations(self) -> dict[tuple[str, str], int]:
        """How many measurements there are, by operation and error."""
        data = self._reader.get_metrics_data()
        assert data is not None
        (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
        assert (metric.name, metric.unit) == ("holdfast.operation.duration", "s")
        points = [point for point in metric.data.data_points if isinstance(point, HistogramDataPoint)]
        about = [dict(point.attributes or {}) for point in points]
        return {
            (str(each["db.operation.name"]), str(each.get("error.type", ""))): point.count
            for each, point in zip(about, points, strict=True)
        }


def said(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span, without those that all have."""
    return {name: value for name, value in (span.attributes or {}).items() if not name.startswith("db.")}


@pytest.fixture
def received() -> Iterator[Received]:
    found = Received()
    telemetry.enable(found.provider, found.meters)
    yield found
    telemetry.disable()


def test_a_write_says_its_revision_its_events_and_its_records(received: Received) -> None:
    with holdfast.open(":memory:", actor="ada") as ws:
        task = ws.tasks.create("first")
        ws.cells.set("run", "cell", 1)
    create, write = received.one("tasks.create"), received.one("cells.set")
    about = {"holdfast.actor": "ada", "holdfast.revision": 1, "holdfast.events": 1}
    assert said(create) == {**about, "holdfast.records": (task.id,)}
    assert said(write) == {**about, "holdfast.revision": 2}
    assert (create.kind, create.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert (create.attributes or {})["db.operation.name"] == "tasks.create"


def test_a_read_says_how_many_records_it_returned(received: Received) -> None:
    with holdfast.open(":memory:", actor="ada") as ws:
        made = [ws.tasks.create(f"task {number}").id for number in range(3)]
        ws.tasks.list()
        assert ws.cells.find("run", "cell") is None
    listed = received.one("tasks.list")
    assert (listed.attributes or {})["db.response.returned_rows"] == 3
    assert set(said(listed)["holdfast.records"]) == set(made)
    assert (received.one("cells.find").attributes or {})["db.response.returned_rows"] == 0


def test_a_refusal_is_an_answer_and_a_failure_an_error(received: Received, tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="ada") as ws:
        task = ws.tasks.create("first")
        ws.tasks.claim(task.id)
        with pytest.raises(errors.AlreadyClaimed):
            ws.using(actor="ben").tasks.claim(task.id)
        with pytest.raises(TypeError):
            ws.tasks.claim()  # type: ignore[call-arg]
        late = ws.tasks
    with pytest.raises(errors.Closed):
        late.create("too late")
    first, refused, failed = received.spans("tasks.claim")
    assert "error.type" not in (first.attributes or {})
    assert said(refused)["holdfast.refusal"] == said(refused)["error.type"] == "ALREADY_CLAIMED"
    assert refused.status.status_code is StatusCode.UNSET
    assert (said(failed)["error.type"], failed.status.status_code) == ("TypeError", StatusCode.ERROR)
    durations = received.durations()
    assert durations["tasks.claim", ""] == durations["tasks.claim", "ALREADY_CLAIMED"] == 1


def test_operations_inside_a_transaction_lie_in_the_trace_of_their_caller(received: Received) -> None:
    outer = received.provider.get_tracer("test")
    with holdfast.open(":memory:", actor="ada") as ws:
        with outer.start_as_current_span("outer") as span, ws.transaction() as tx:
            tx.cells.increment("run", "count")
            tx.cells.increment("run", "count")
        ws.cells.get("run", "count")
    first, second = received.spans("cells.increment")
    assert first.parent == second.parent == span.get_span_context()
    assert said(first)["holdfast.revision"] == said(second)["holdfast.revision"] == 1
    assert received.one("cells.get").parent is None


def test_awaited_calls_at_once_each_have_their_own_span_and_leave_none_behind(received: Received) -> None:
    tracer = received.provider.get_tracer("test")

    async def one(ws: holdfast.Workspace, number: int) -> None:
        with tracer.start_as_current_span(f"outer {number}"):
            await ws.aio.cells.set("run", f"cell-{number}", number)
            await ws.aio.locks.acquire(f"lock-{number}", ttl=5, wait=1)

    async def all_at_once(ws: holdfast.Workspace) -> None:
        await asyncio.gather(*(one(ws, number) for number in range(8)))

    with holdfast.open(":memory:", actor="ada") as ws:
        asyncio.run(all_at_once(ws))
    for number in range(8):
        outer = received.one(f"outer {number}")
        inner = [span for span in received.spans() if span.parent == outer.context]
        assert [span.name for span in inner] == ["cells.set", "locks.acquire"]
    assert sorted(said(span)["holdfast.revision"] for span in received.spans("cells.set")) == sorted(
        {said(span)["holdfast.revision"] for span in received.spans("cells.set")}
    )


def test_a_call_over_http_is_one_trace_from_the_client_to_the_store(received: Received, tmp_path: Path) -> None:
    with serving(tmp_path / "served") as server:
        with holdfast.connect(server.url, token=token_of(server), actor="ada") as ws:
            task = ws.tasks.create("over the network")
            ws.tasks.ready()
            with pytest.raises(errors.TaskNotFound):
                ws.tasks.get("hf-0000")

            async def awaited() -> None:
                assert (await ws.aio.tasks.claim(task.id)).revision == 2

            asyncio.run(awaited())
        names = ("tasks.create", "tasks.ready", "tasks.get", "tasks.claim")
        pairs = {name: {span.kind: span for span in received.spans(name)} for name in names}
    for name, pair in pairs.items():
        client, served = pair[SpanKind.CLIENT], pair[SpanKind.SERVER]
        assert (client.context.trace_id, client.context.span_id) == (
            served.context.trace_id,
            served.parent and served.parent.span_id,
        ), name
    assert said(pairs["tasks.create"][SpanKind.SERVER])["holdfast.revision"] == 1
    assert said(pairs["tasks.create"][SpanKind.CLIENT])["holdfast.revision"] == 1
    assert {said(span)["holdfast.refusal"] for span in pairs["tasks.get"].values()} == {"TASK_NOT_FOUND"}


def test_any_program_gives_its_trace_over_http_and_mcp(received: Received, tmp_path: Path) -> None:
    called = {"name": "task_create", "arguments": {"title": "x"}, "_meta": {"traceparent": PARENT}}
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with serving(tmp_path / "served") as server:
        bearer = {"authorization": f"Bearer {token_of(server)}", "x-agent-id": "ada"}
        put = httpx.put(
            f"{server.url}/api/cells/run/cell", json={"value": 1}, headers={**bearer, "traceparent": PARENT}
        )
        assert put.status_code == 200, put.text
        httpx.put(f"{server.url}/api/cells/run/other", json={"value": 1}, headers={**bearer, "traceparent": "nonsense"})
        accept = {**bearer, "accept": "application/json, text/event-stream"}
        for id, method, params in ((1, "initialize", about), (2, "tools/call", called)):
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            answer = httpx.post(f"{server.url}/mcp", json=message, headers=accept, timeout=PATIENCE)
            assert answer.status_code == 200, answer.text
    write, other = received.spans("cells.set")
    made = received.one("tasks.create")
    for span in (write, made):
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
        assert span.kind is SpanKind.SERVER
    assert other.parent is None


OFF = """
import asyncio, sys, holdfast
ws = holdfast.open(":memory:", actor="me")
ws.cells.set("run", "cell", 1)
ws.tasks.create("task")
async def awaited(): await ws.aio.cells.get("run", "cell")
asyncio.run(awaited())
remote = holdfast.connect("http://127.0.0.1:9", token="token", actor="me", timeout=0.1)
try: remote.cells.get("run", "cell")
except holdfast.errors.Unreachable: pass
print(*sorted(name for name in sys.modules if "opentelemetry" in name or name == "holdfast.telemetry"))
"""


def test_off_nothing_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_off_a_bound_operation_is_the_same_as_without_it() -> None:
    assert OBSERVED.by is None
    with holdfast.open(":memory:", actor="me") as ws:
        assert ws.cells.get.__code__ is ws._runner.bind(type(ws.cells).get).__code__


def test_without_its_package_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import holdfast.telemetry"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'holdfast[otel]'" in done.stderr


TOLD = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, ConsoleSpanExporter
import sys
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
trace.set_tracer_provider(provider)
from holdfast.faces.cli import main
sys.exit(main(["mcp", "--dir", sys.argv[1], "--actor", "ada"]))
"""


@pytest.mark.parametrize("wanted", ["1", "0"])
def test_a_command_observes_if_its_environment_says_so(tmp_path: Path, wanted: str) -> None:
    with holdfast.open(tmp_path / "store", actor="me"):
        pass
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    calls: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "task_create", "arguments": {"title": "x"}}},
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", TOLD, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_OTEL": wanted},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for call in calls:  # the end of the input would end it in the midst of a call
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **call}) + "\n")
        process.stdin.flush()
        if "id" in call:
            assert json.loads(process.stdout.readline())["id"] == call["id"]
    _, told = process.communicate(timeout=PATIENCE)
    assert ('"name": "tasks.create"' in told) is (wanted == "1"), told


def test_a_command_that_is_observed_ends_as_its_sdk_wants() -> None:
    """What was not sent yet is sent at the exit of a program; a command ends without one, unless it is observed."""
    code = (
        "import atexit, sys; atexit.register(print, 'sent'); {first}"
        "sys.argv = ['holdfast', 'version', '-q']; from holdfast.faces.cli import start; start()"
    )
    for first, said in (("import holdfast.telemetry; ", True), ("", False)):
        command = [sys.executable, "-c", code.format(first=first)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ("sent" in done.stdout) == said
