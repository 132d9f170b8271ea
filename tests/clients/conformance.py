"""The official conformance suite of MCP against `holdfast serve`: the scenarios that need no tools of a fixture.

The suite knows no tokens, so a hook in its process adds the headers that every client of a server has. It wants a newer
Node than the clients do, which npm has too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

from tests.clients.scratch import INSTALLED, PATIENCE, PYTHON, Scratch, program

SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "completion-complete",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
    "server-sse-polling",
)
_HEADERS = """\
require("node:diagnostics_channel").subscribe("undici:request:create", ({ request }) => {
  request.addHeader("authorization", `Bearer ${process.env.TOKEN}`);
  request.addHeader("x-agent-id", "conformance");
});
"""


def scenario(name: str) -> None:
    """Run one scenario against a server of its own; its exit code and its count of failures decide."""
    node = program("node")
    with Scratch("git") as at:
        headers = at.base / "headers.cjs"
        headers.write_text(_HEADERS)
        token = at.data("token", "create", "--role", "agent")["secret"]
        command = [PYTHON, "-m", "holdfast", "serve", "--port", "0"]
        with subprocess.Popen(command, cwd=at.root, env=at.env, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://\S+", server.stdout.readline())
                assert found, "the server did not say where it listens"
                suite = INSTALLED / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
                words = [node, "--require", str(headers), str(suite), "server", "--url", f"{found[0]}/mcp"]
                done = subprocess.run(
                    [*words, "--scenario", name],
                    cwd=at.base,
                    env={**at.env, "TOKEN": token},
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                )
            finally:
                server.terminate()
    said = done.stdout + done.stderr
    assert (done.returncode, " 0 failed" in said) == (0, True), said[:3000]


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every scenario."""
    for name in SCENARIOS:
        yield name, partial(scenario, name)
