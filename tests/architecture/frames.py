"""How much of the house one claim walks through: frames down to its statements, and functions entered by each face.

Printed by `make house`. A function counts once, however often it is entered; modules, class bodies and comprehensions
do not count.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import holdfast

TITLE = "SELECT t.seq"  # the statement that finds the best task
_FOLDER = f"{Path(holdfast.__file__).parent}{os.sep}"


def is_ours(code: CodeType) -> bool:
    """Whether a function of the package was entered."""
    named = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    return named and bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_filename.startswith(_FOLDER)


def depths() -> dict[str, int]:
    """Frames of ours from `ws.tasks.claim_next()` to its first statement, and to the one that finds the task."""
    found: dict[str, int] = {}

    def trace(_: Any, sql: str, __: Any) -> bool:
        frames = 0
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames += frame.f_code.co_filename.startswith(_FOLDER)
            frame = frame.f_back
        found.setdefault("first statement", frames)
        if sql.startswith(TITLE):
            found.setdefault("its query", frames)
        return True

    with holdfast.open(":memory:", actor="me") as ws:
        for number in range(2):
            ws.tasks.create(f"task {number}")
        ws.tasks.claim_next()
        ws._engine.store.writer.exec_trace = trace
        ws.tasks.claim_next()
    return found


@contextmanager
def entered() -> Iterator[set[CodeType]]:
    """The functions of ours that this thread enters in the block, and every thread that is started in it."""
    found: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_ours(frame.f_code):
            found.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def in_process() -> int:
    """Functions that the second claim of a process enters."""
    with holdfast.open(":memory:", actor="me") as ws:
        for number in range(2):
            ws.tasks.create(f"task {number}")
        ws.tasks.claim_next()
        with entered() as found:
            ws.tasks.claim_next()
        return len(found)


def on_the_command_line() -> tuple[int, int]:
    """Functions that `holdfast next` enters, and modules that it loads."""
    with tempfile.TemporaryDirectory() as folder:
        with holdfast.open(f"{folder}/store", actor="me") as ws:
            ws.tasks.create("task")
        code = "from tests.architecture.frames import run_next; run_next()"
        environment = {**os.environ, "HOLDFAST_DIR": f"{folder}/store", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    functions, modules = json.loads(done.stdout.splitlines()[-1])
    return functions, modules


def run_next() -> None:
    """In a process of its own: `holdfast next`, and then the figures."""
    loaded = {name for name in sys.modules if name.startswith("holdfast.")}
    for name in loaded:  # what this module itself needed
        del sys.modules[name]
    from holdfast.faces.cli import main

    with entered() as found:
        main(["next", "--actor", "me", "-q"])
    print(json.dumps([len(found), sum(name.startswith("holdfast") for name in sys.modules)]))


def over_http() -> tuple[int, int]:
    """Functions that a server enters for a claim by its address, and for one by the tool of MCP."""
    from holdfast.faces.http.listener import Settings
    from holdfast.faces.http.server import Server

    with tempfile.TemporaryDirectory() as folder, entered() as found:
        server = Server(Settings(folder=Path(folder), port=0))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert server.ready.wait(60)
            return _asked(server.url, (Path(folder) / "token").read_text().strip(), found)
        finally:
            server.stop()
            thread.join()


def _asked(url: str, token: str, found: set[CodeType]) -> tuple[int, int]:
    headers = {"x-agent-id": "me", "authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        for number in range(5):
            client.post("/api/tasks", json={"title": f"task {number}"}).raise_for_status()

        def by_address() -> None:
            client.post("/api/tasks/claim-next", json={}).raise_for_status()

        def by_tool() -> None:
            called = {"name": "task_claim", "arguments": {}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
            assert "in_progress" in client.post("/mcp", json=message).raise_for_status().text

        return _second(by_address, found), _second(by_tool, found)


def _second(call: Callable[[], None], found: set[CodeType]) -> int:
    """What a call enters when it is made again."""
    call()
    found.clear()
    call()
    return len(found)


def main() -> None:
    """Print the figures."""
    steps = depths()
    functions, modules = on_the_command_line()
    by_address, by_tool = over_http()
    print("frames from ws.tasks.claim_next() down to")
    for what, depth in steps.items():
        print(f"    {what:24}{depth}")
    print("functions entered by a claim")
    print(f"    in process              {in_process()}")
    print(f"    holdfast next           {functions} ({modules} modules)")
    print(f"    HTTP                    {by_address}")
    print(f"    MCP over HTTP           {by_tool}")


if __name__ == "__main__":
    main()
