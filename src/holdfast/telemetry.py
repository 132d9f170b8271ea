"""OpenTelemetry: a span and a measurement for each operation, in every face, through the API alone.

    from holdfast import telemetry
    telemetry.enable()  # before a workspace is opened

What becomes of spans and measurements is the business of the SDK that the program sets up, or of none. Off, which is
the default, nothing of this is imported, and a call has no step more: operations ask `OBSERVED` when they are bound,
not when they are called.

A span lies in the trace that is current for the caller. A client sends that along, and a server and MCP take it from
`traceparent`: so the span of a call over HTTP has that of its client as parent, in whatever processes the two run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from copy import copy
from typing import Any, Final

from holdfast import __version__, errors
from holdfast.clock import SystemClock
from holdfast.operation import Operation
from holdfast.route import OBSERVED

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
except ImportError as error:
    raise errors.not_installed("telemetry", "otel", error) from error

_SCOPE: Final = "holdfast"
_SERVED: Final = contexts.create_key("holdfast-served")  # whether the caller is at the other end of a connection
_CALL: Final = contexts.create_key("holdfast-call")
# As the conventions for databases have them, in seconds.
_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_SHOWN: Final = 20  # records of a list
_clock: Final = SystemClock()


def enable(
    tracer_provider: trace.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
) -> None:
    """Observe the operations of workspaces that are opened from now on; by default with the global providers."""
    OBSERVED.by = Telemetry(tracer_provider, meter_provider)


def disable() -> None:
    """Observe no more; workspaces that are open go on as they began."""
    OBSERVED.by = None


class Telemetry:
    """Sees the calls of operations."""

    def __init__(
        self, tracer_provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None
    ) -> None:
        self.tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self.seconds = metrics.get_meter(_SCOPE, __version__, meter_provider).create_histogram(
            "holdfast.operation.duration",
            unit="s",
            description="How long operations took",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )

    def bind(self, op: Operation[..., Any], runner: Any) -> Callable[..., Any]:
        """The operation as a call of this runner that is observed.

        Streams, which have no end, are not, nor is what passes a call on to another runner, which observes it.
        """
        tx, remote = getattr(runner, "tx", None), hasattr(runner, "ask")
        if op.kind == "stream" or not (remote or tx is not None or hasattr(runner, "engine")):
            return _bound(op, runner)
        call = _bound(op, _noting(runner))
        actor = str(tx.actor if tx is not None else (runner._context if remote else runner.context).actor)

        def observed(*args: Any, **kwargs: Any) -> Any:
            seen = _Call(self, op, actor, remote)
            before = 0 if tx is None else tx.events
            try:
                result = seen.within.run(call, *args, **kwargs)
            except BaseException as error:
                seen.failed(error)
                raise
            if tx is not None:
                seen.note(tx, before)
            seen.ended(result)
            return result

        def awaited(*args: Any, **kwargs: Any) -> Any:
            return _Awaited(_Call(self, op, actor, remote), call, args, kwargs).result()

        return awaited if runner.awaits else observed

    @contextmanager
    def incoming(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """Within the block, the caller is the one that a request names in its headers or its `_meta`."""
        found = contexts.set_value(_SERVED, True, propagate.extract(carrier, contexts.get_current()))
        token = contexts.attach(found)
        try:
            yield
        finally:
            contexts.detach(token)

    def outgoing(self, headers: dict[str, str]) -> None:
        """Add the current trace to the headers of a request."""
        propagate.inject(headers)


def _bound(op: Operation[..., Any], runner: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = runner.bind(op)
    return found


def _noting(runner: Any) -> Any:
    """The runner, whose transactions note what they did for the call that they are made for."""
    if not hasattr(runner, "engine"):
        return runner
    noting = copy(runner)
    noting.submit, noting.do = _noted(runner.submit), _noted(runner.do)
    return noting


def _noted(submit: Callable[..., Any]) -> Callable[..., Any]:
    def call(body: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
        seen = contexts.get_value(_CALL)

        def noted(tx: Any) -> Any:
            before = tx.events
            result = body(tx)
            if isinstance(seen, _Call):
                seen.note(tx, before)
            return result

        return submit(noted, *args, **kwargs)

    return call


class _Call:
    """One call: its span, the context it runs in, and when it began."""

    __slots__ = ("_began", "_op", "_revision", "_tracing", "span", "within")

    def __init__(self, tracing: Telemetry, op: Operation[..., Any], actor: str, remote: bool) -> None:
        parent = contexts.get_current()
        served = contexts.get_value(_SERVED, parent)
        kind = trace.SpanKind.SERVER if served else trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL
        about = {"db.system.name": "holdfast", "db.operation.name": op.name, "holdfast.actor": actor}
        self._tracing, self._op, self._revision = tracing, op, 0
        self.span = tracing.tracer.start_span(op.name, parent, kind, about)
        self.within = copy_context()
        inside = contexts.set_value(_CALL, self, trace.set_span_in_context(self.span, parent))
        self.within.run(contexts.attach, contexts.set_value(_SERVED, False, inside))
        self._began = _clock.monotonic()

    def note(self, tx: Any, before: int) -> None:
        """A transaction of it did what it did; it had this many events before."""
        if written := tx.events - before:
            self._revision = tx.revision
            self.span.set_attributes({"holdfast.revision": tx.revision, "holdfast.events": written})

    def ended(self, result: Any) -> None:
        """It returned."""
        if records := _records(result):
            self.span.set_attribute("holdfast.records", records)
        revision = getattr(result, "revision", None)
        if self._op.writes and not self._revision and isinstance(revision, int):
            self.span.set_attribute("holdfast.revision", revision)  # of a server's transaction
        if not self._op.writes:
            rows = len(result) if isinstance(result, list | tuple) else int(result is not None)
            self.span.set_attribute("db.response.returned_rows", rows)
        self._end({})

    def failed(self, error: BaseException) -> None:
        """It was refused, which is an answer, or it failed."""
        code = error.code if isinstance(error, errors.HoldfastError) else type(error).__qualname__
        self.span.set_attribute("error.type", code)
        if isinstance(error, errors.HoldfastError) and error.status < 500:
            self.span.set_attribute("holdfast.refusal", code)
        else:
            self.span.set_status(trace.StatusCode.ERROR, str(error))
        self._end({"error.type": code})

    def _end(self, more: dict[str, str]) -> None:
        self.span.end()
        took = (_clock.monotonic() - self._began) / 1e6
        about = {"db.system.name": "holdfast", "db.operation.name": self._op.name, **more}
        self._tracing.seconds.record(took, about, context=trace.set_span_in_context(self.span))


def _records(result: Any) -> list[str]:
    """The ids of the records in a result, the first ones if it has many."""
    found = result[:_SHOWN] if isinstance(result, list | tuple) else [result]
    return [each.id for each in found if isinstance(getattr(each, "id", None), str)]


class _Awaited:
    """An awaited call. Its steps run in a context of its own: a server has no task for each, which would have one."""

    def __init__(self, seen: _Call, call: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> None:
        self._seen = seen
        self._call = call
        self._given = args, kwargs

    async def result(self) -> Any:
        """Await the call, and end its span."""
        try:
            result = await self
        except BaseException as error:
            self._seen.failed(error)
            raise
        self._seen.ended(result)
        return result

    def __await__(self) -> Generator[Any, Any, Any]:
        args, kwargs = self._given
        run = self._seen.within.run
        steps = run(self._call, *args, **kwargs).__await__()
        step, given = steps.send, None
        while True:
            try:
                waited = run(step, given)
            except StopIteration as stop:
                return stop.value
            try:
                step, given = steps.send, (yield waited)
            except BaseException as error:
                step, given = steps.throw, error
