"""The recorded terminal session of the README: real commands, run in a new project, and what they printed.

Ids and times differ from run to run, so fixed ones replace them: a deadline is half an hour after everything else.
Nothing else is changed. Two agents share the project: `ada` and `ben`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINES = (
    "holdfast init",
    "holdfast create 'write the parser' --tag backend --priority 1",
    "holdfast create 'test the parser' --tag backend",
    "holdfast dep add {second} {first}    # the second waits for the first",
    "holdfast next --actor ada",
    'holdfast claim {first} --actor ben; echo "exit $?"',
    'holdfast next --actor ben; echo "exit $?"',
    "holdfast path lock 'src/parser/**' --task {first} --actor ada",
    'holdfast guard src/parser/lexer.py --actor ben; echo "exit $?"',
    "holdfast done {first} 'it parses' --actor ada",
    "holdfast next --actor ben",
    "holdfast log --summary",
)
IDS = ("hf-7k2q", "hf-3m9x")
FIXED = {
    r"until \d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(\.\d+)?": r"until 2026-03-01\g<1>13:00:00",
    r"since \d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(\.\d+)?": r"since 2026-03-01\g<1>12:30:00",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "01a1e099-10c0-7368-a282-4e0add882b97",
}


def record() -> str:
    """The session as text."""
    with tempfile.TemporaryDirectory() as home:
        project = Path(home) / "shop"
        project.mkdir()
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        return "\n".join(["```console", *_play(project, Path(home)), "```"])


def _play(project: Path, home: Path) -> list[str]:
    found: list[str] = []
    lines: list[str] = []
    for line in LINES:
        names = dict(zip(("first", "second"), found, strict=False))
        output = _run(line.format(**names), project, home)
        if line.startswith("holdfast create"):
            found.append(output.split()[0])
        shown = dict(zip(("first", "second"), IDS, strict=True))
        lines += [f"$ {line.format(**shown)}", *_shown(output, found, project).splitlines()]
    return lines


def _run(line: str, project: Path, home: Path) -> str:
    """What a shell prints for a line, errors among the rest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    state = {"XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config"), "HOLDFAST_ROLLING": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**kept, **state, "PATH": path, "USER": "you", "TZ": "UTC"}
    shell = ["bash", "-c", line]
    done = subprocess.run(
        shell, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


def _shown(output: str, ids: list[str], project: Path) -> str:
    for real, shown in zip(ids, IDS, strict=False):
        output = output.replace(real, shown)
    output = output.replace(str(project.resolve()), "~/shop").replace(str(project), "~/shop")
    output = re.sub(r"you@\S+", "you@host", output)
    for pattern, shown in FIXED.items():
        output = re.sub(pattern, shown, output)
    return output


if __name__ == "__main__":
    print(record())
