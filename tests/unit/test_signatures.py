"""What a user sees of the operations: signatures, help and dir, on every kind of workspace; and the whole registry."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import operator
import pydoc
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, assert_type, get_type_hints

import pytest

import holdfast
from holdfast import RemoteWorkspace, Transaction, Workspace, errors
from holdfast.domains.tasks import Tasks
from holdfast.operation import REGISTRY, find_operation
from holdfast.schema import parameters
from holdfast.types import Event
from holdfast.types.tasks import Task
from holdfast.workspace.watch import AsyncWatch, Watch

DOMAINS = {
    *(
        "agents",
        "cells",
        "channels",
        "clock",
        "cycles",
        "events",
        "items",
        "leases",
        "links",
        "locks",
        "mail",
        "paths",
        "queues",
        "routes",
    ),
    *("stashes", "tasks", "threads", "trails"),
}
ROOT = {"activity", "board", "status", "timeline", "txn", "undo", "watch"}


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="me") as opened:
        yield opened


@pytest.fixture
def remote() -> Iterator[RemoteWorkspace]:
    """A client that has not called its server yet."""
    with holdfast.connect("http://127.0.0.1:9", token="token", actor="me") as connected:
        yield connected


def aio(ws: Any, look: Callable[[Any], Any]) -> Any:
    """What is seen of `ws.aio`."""

    async def seen() -> Any:
        return look(ws.aio)

    return asyncio.run(seen())


def inside(ws: Workspace, look: Callable[[Transaction], Any]) -> Any:
    """What is seen of a transaction."""
    with ws.transaction() as tx:
        return look(tx)


def test_a_signature_has_real_types_and_nothing_internal(ws: Workspace) -> None:
    seen = inspect.signature(ws.tasks.create)
    assert [*seen.parameters][:3] == ["title", "body", "type"]
    assert seen.parameters["title"].annotation is str
    assert seen.parameters["priority"].default == 2
    assert seen.return_annotation is Task
    assert inspect.signature(ws.tasks.claim_next).return_annotation == Task | None, "the result, not the steps to it"
    assert inspect.signature(ws.watch).return_annotation == Watch[Event]


def test_awaitable_operations_say_so(ws: Workspace, remote: RemoteWorkspace) -> None:
    for each in (ws, remote):
        assert aio(each, lambda at: inspect.signature(at.tasks.create).return_annotation) == Coroutine[Any, Any, Task]
        assert aio(each, lambda at: inspect.signature(at.watch).return_annotation) == AsyncWatch[Event]


@pytest.mark.parametrize("name", ["cells.get", "tasks.ready", "cells.set", "locks.acquire", "cells.watch"])
def test_an_awaitable_operation_is_a_coroutine(ws: Workspace, remote: RemoteWorkspace, name: str) -> None:
    def is_coroutine(at: Any) -> bool:
        work = REGISTRY[name].on(at)(*(["name"] * required))
        work.close()
        return inspect.iscoroutine(work)

    required = sum(each.default is each.empty for each in parameters(REGISTRY[name]))
    assert aio(ws, is_coroutine)
    assert aio(remote, is_coroutine)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operation_shows_the_arguments_that_a_caller_gives(name: str) -> None:
    op = REGISTRY[name]
    given = list(inspect.signature(op.function).parameters)[op.implicit_args :]
    with holdfast.connect("http://127.0.0.1:9", token="token", actor="me") as connected:
        bound = op.on(connected)
        assert list(inspect.signature(bound).parameters) == given
        assert bound.__doc__ == op.function.__doc__
        assert inspect.unwrap(bound) is op.function, "so that inspect.getsource finds it"


def test_help_shows_the_call_and_its_documentation(ws: Workspace) -> None:
    text = pydoc.plain(pydoc.render_doc(ws.tasks.create))
    assert "create(title: str, body: str = ''" in text
    assert "-> holdfast.types.tasks.Task" in text
    assert (inspect.getdoc(ws.tasks.create) or "-") in "\n".join(line.strip() for line in text.splitlines())


def test_help_of_a_domain_shows_its_calls_with_their_arguments(ws: Workspace) -> None:
    text = pydoc.plain(pydoc.render_doc(ws.tasks))
    assert "create(self, title: str, body: str = ''" in text
    assert "claim_next(self, agent: str | None = None, tags: collections.abc.Sequence[str] | None = None" in text
    assert "-> holdfast.types.tasks.Task" in text
    assert "Add tags to a task; those it has stay." in text
    assert "Call object" not in text
    assert Tasks.create(ws.tasks, "title") == ws.tasks.list()[0], "as it says: a method like any other"


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_what_a_framework_reads_of_a_call_is_true(ws: Workspace, remote: RemoteWorkspace, name: str) -> None:
    op = REGISTRY[name]

    def facts(at: Any) -> None:
        call = op.on(at)
        assert (call.__name__, call.__module__) == (op.method, op.__module__)
        home = importlib.import_module(call.__module__)
        assert operator.attrgetter(call.__qualname__)(home) is op
        hints = get_type_hints(call)
        assert hints.pop("return") == inspect.signature(call).return_annotation
        assert hints == {each.name: each.annotation for each in inspect.signature(call).parameters.values()}

    for each in (ws, remote):
        facts(each)
        aio(each, facts)


def test_dir_lists_what_can_be_called_and_nothing_else(ws: Workspace, remote: RemoteWorkspace) -> None:
    both = {"actor", "aio", "backup", "check", "clock_ahead", "close", "revision", "transact", "transaction", "using"}
    own = {"checkpoint", "is_lost", "node_state", "progress", "reach"}
    assert set(dir(ws)) == DOMAINS | ROOT | both | own
    assert set(dir(remote)) == DOMAINS | ROOT | both | {"whoami"}
    assert set(inside(ws, dir)) == DOMAINS | ROOT | {"actor", "now", "revision"}
    awaited = {"backup", "check", "loop", "revision", "transact", "transaction", "using"}
    assert set(aio(ws, dir)) == DOMAINS | ROOT | awaited
    assert set(aio(remote, dir)) == DOMAINS | ROOT | awaited | {"close"}


def test_dir_of_a_domain_lists_its_operations(ws: Workspace) -> None:
    for domain in DOMAINS:
        operations = {op.method for op in REGISTRY.within(domain)}
        assert set(dir(getattr(ws, domain))) == operations
        assert set(inside(ws, lambda tx, domain=domain: dir(getattr(tx, domain)))) == operations  # type: ignore[misc]


# --- what cannot travel ----------------------------------------------------------------------------------------------


def test_what_takes_a_function_is_refused_by_a_client(remote: RemoteWorkspace) -> None:
    # A type checker reports each of these: an ignore that is not needed is an error too.
    with pytest.raises(errors.Unsupported, match="transact takes a function, which cannot be sent to a server"):
        remote.transact(lambda tx: tx)  # type: ignore[attr-defined]
    with pytest.raises(errors.Unsupported, match="a transaction around a block does not stay open over HTTP"):
        remote.transaction()  # type: ignore[attr-defined]
    with pytest.raises(errors.Unsupported, match="a backup is made where the store is"):
        remote.backup("x")  # type: ignore[attr-defined]

    async def awaited() -> None:
        with pytest.raises(errors.Unsupported):
            await remote.aio.transact(lambda tx: tx)  # type: ignore[attr-defined]
        with pytest.raises(errors.Unsupported, match="does not stay open"):
            remote.aio.transaction()  # type: ignore[attr-defined]
        with pytest.raises(errors.Unsupported):
            await remote.aio.backup("x")  # type: ignore[attr-defined]

    asyncio.run(awaited())


def test_a_block_that_awaits_is_refused_with_what_to_use(ws: Workspace) -> None:
    async def awaited() -> None:
        with pytest.raises(errors.Unsupported) as refused:
            ws.aio.transaction()  # type: ignore[attr-defined]
        assert "pass a plain function to transact" in refused.value.hint

    asyncio.run(awaited())


def typed(ws: Workspace, remote: RemoteWorkspace) -> None:
    """For the type checker, which fails here if a type is not what it is said to be."""
    assert_type(ws.transact(lambda tx: tx.revision), int)
    with ws.transaction() as tx:
        assert_type(tx, Transaction)
    assert_type(ws.tasks.claim_next(), Task | None)
    assert_type(remote.tasks.claim_next(), Task | None)


async def typed_awaitables(ws: Workspace, remote: RemoteWorkspace) -> None:
    """The same for `ws.aio`."""
    assert_type(await ws.aio.tasks.claim_next(), Task | None)
    assert_type(asyncio.create_task(ws.aio.cells.increment("run", "cell")), asyncio.Task[int | float])
    assert_type(asyncio.create_task(remote.aio.cells.increment("run", "cell")), asyncio.Task[int | float])
    assert_type(await ws.aio.transact(lambda tx: tx.revision), int)
    assert_type(await remote.aio.tasks.claim_next(), Task | None)
    assert_type(ws.aio, holdfast.AsyncWorkspace)
    assert_type(remote.aio, holdfast.AsyncRemoteWorkspace)


# --- the registry ----------------------------------------------------------------------------------------------------


def answer(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["operation", "workspace", "schema", "domains.cells", "wire"])
def test_the_registry_is_whole_however_it_is_imported(module: str) -> None:
    code = f"import holdfast.{module}; from holdfast.operation import REGISTRY; print(len(REGISTRY))"
    assert answer(code) == str(len(REGISTRY))


def test_a_look_up_loads_no_other_domain() -> None:
    code = (
        "import sys; from holdfast.operation import REGISTRY; REGISTRY['cells.set'], REGISTRY['txn'];"
        "print('holdfast.domains.tasks' in sys.modules, REGISTRY['tasks.create'].name,"
        " 'holdfast.domains.cycles' in sys.modules)"
    )
    assert answer(code) == "False tasks.create False"


def test_a_name_that_is_no_operation_is_not_found() -> None:
    for name in ("", "tasks", "tasks.none", "none.get", "os.path", 7, None, ["txn"]):
        assert find_operation(name) is None
        if isinstance(name, str):
            assert name not in REGISTRY
    with pytest.raises(KeyError):
        REGISTRY["none.get"]


def test_a_call_with_wrong_arguments_is_named_as_it_was_typed(ws: Workspace, remote: RemoteWorkspace) -> None:
    with pytest.raises(TypeError, match=r"^holdfast\.open\(\) got an unexpected"):
        holdfast.open(":memory:", actr="me")  # type: ignore[call-arg]
    for workspace in (ws, remote):
        with pytest.raises(TypeError, match=r"^using\(\) got an unexpected"):
            workspace.using(foo=1)  # type: ignore[call-arg]
    with pytest.raises(errors.Invalid, match=r"^transact takes a function of one argument \(tx\), not int"):
        ws.transact(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["http://127.0.0.1:9", Path("https://host/name"), "unix:///run/holdfast.sock"])
def test_an_address_is_not_taken_for_a_folder(
    path: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.Invalid, match="is an address") as refused:
        holdfast.open(path)
    assert "holdfast.connect" in refused.value.hint
    assert list(tmp_path.iterdir()) == []
