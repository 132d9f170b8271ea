"""Calls the operation that CONTRIBUTING.md adds, through every face: run by test_add_operation.py on a patched copy."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import holdfast

FOLDER = Path(sys.argv[1])
STORE = str(FOLDER / "store")


def laws() -> Any:
    """What the laws of the house say about the copy."""
    from tests.architecture.test_rooms import violations

    return sorted(violations())


def python() -> Any:
    """In this process: as a call of its own, inside a transaction, and awaited."""
    with holdfast.open(STORE, actor="ann") as workspace:
        id = workspace.leases.create(60).id
        alone = workspace.leases.extend(id, 10)  # type: ignore[attr-defined]  # only in the copy
        inside = workspace.transact(lambda tx: tx.leases.extend(id, 10))  # type: ignore[attr-defined]

        async def awaited() -> Any:
            return await workspace.aio.leases.extend(id, by=10)  # type: ignore[attr-defined]

        return [alone, inside, asyncio.run(awaited())]


def command_line() -> Any:
    """As a command, with its help."""
    assert "how many seconds to add" in _holdfast("help", "lease", "extend")
    id = _lease()
    assert _holdfast("lease", "extend", id, "10", "--dir", STORE).strip() == "70.0"
    return json.loads(_holdfast("lease", "extend", id, "10", "--dir", STORE, "--json"))["data"]


def http() -> Any:
    """As a request, as a call of a remote workspace, and in the OpenAPI document."""
    command = [sys.executable, "-m", "holdfast", "serve", "--dir", STORE, "--port", "0"]
    id = _lease()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[2]
            token = Path(STORE, "token").read_text().strip()
            known = json.loads(_request(f"{url}/openapi.json", token))
            assert "post" in known["paths"]["/api/leases/{id}/extend"]
            assert json.loads(_request(f"{url}/api/leases/{id}/extend", token, {"by": 10})) == 70
            with holdfast.connect(url, token=token, actor="ann") as remote:
                return remote.leases.extend(id, 10)  # type: ignore[attr-defined]
        finally:
            server.terminate()


def mcp() -> Any:
    """As a tool of the profile `all`."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "toy", "version": "1"}}
    call = {"name": "leases_extend", "arguments": {"id": _lease(), "by": 10}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    command = [sys.executable, "-m", "holdfast", "mcp", "--profile", "all", "--dir", STORE, "--actor", "ann"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for request in requests:
            server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answers = (json.loads(line) for line in server.stdout)
        answer = next(each for each in answers if each.get("id") == 2)
        server.stdin.close()
    _, content, _ = answer["result"]["content"][0]["text"].splitlines()  # between the marks of untrusted data
    return json.loads(content)["result"]


def _lease() -> str:
    return _holdfast("lease", "create", "60", "-q", "--dir", STORE).strip()


def _holdfast(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=True)
    return done.stdout


def _request(url: str, token: str, body: Any = None) -> bytes:
    headers = {"Authorization": f"Bearer {token}", "X-Agent-ID": "ann", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=300) as answer:
        found: bytes = answer.read()
        return found


if __name__ == "__main__":
    assert Path(holdfast.__file__).is_relative_to(FOLDER), holdfast.__file__
    print(json.dumps({each.__name__: each() for each in (laws, python, command_line, http, mcp)}))
