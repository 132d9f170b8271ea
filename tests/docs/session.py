"""The recorded terminal sessions of the documents: real commands, run in a new project, and what they printed.

Ids and times differ from run to run, so fixed ones replace them: a deadline is half an hour ahead.
Nothing else is changed. In the README the agents `ada` and `ben` share the project, in the quickstart maya and ada.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SHORT = (
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
HOUR = (
    "holdfast init",
    "export HOLDFAST_ACTOR=maya",
    "holdfast create 'Fix the login page' --type bug --priority 1 --tag web",
    "holdfast create 'Write the manual'",
    "holdfast create 'Print the manual' --depends-on {second}",
    "holdfast list",
    "holdfast ready",
    "holdfast claim {first}",
    "holdfast note {first} 'The cookie is gone after a redirect.'",
    "holdfast ref add {first} fix/login",
    "holdfast assign {second} ada",
    "holdfast mail send ada 'Which chapters?' 'The old manual has nine.' --type request --task {second}",
    "holdfast mail inbox --actor ada",
    "holdfast mail reply m1 'All but the last two.' --actor ada",
    "holdfast mail action m1 --actor ada",
    "holdfast mail thread m1",
    "holdfast next --actor ada",
    "holdfast show {second}",
    "holdfast status",
    "holdfast done {first} 'The cookie is set again after the redirect.'",
    "holdfast show {first}",
    "holdfast close {second} 'Ada wrote seven chapters.' --actor ada",
    "holdfast search cookie",
    "holdfast ready",
    "holdfast log --summary",
)
NAMES = ("first", "second", "third")
IDS = ("hf-7k2q", "hf-3m9x", "hf-5t4w")
FIXED = {
    r"for another \d+ (s|min)": "for another 30 min",
    r"claimed by ada for \d+ s": "claimed by ada for 5 s",
    r"\d+ (?:s|min)  \d+ min left": "5 min  30 min left",
    r"(claimed +\w+) for \d+ s": r"\1 for 5 s",
    r"\b\d+ (?:s|min) ago\b": "just now",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "01a1e099-10c0-7368-a282-4e0add882b97",
}


def record(lines: tuple[str, ...]) -> str:
    """A session as text."""
    with tempfile.TemporaryDirectory() as home:
        project = Path(home) / "shop"
        project.mkdir()
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        return "\n".join(["```console", *_play(lines, project, Path(home)), "```"])


def _play(typed: tuple[str, ...], project: Path, home: Path) -> list[str]:
    found: list[str] = []
    lines: list[str] = []
    exported = ""
    for line in typed:
        if line.startswith("export "):
            exported = f"{line}; "
        output = _run(exported + line.format(**dict(zip(NAMES, found, strict=False))), project, home)
        if line.startswith("holdfast create"):
            found.append(output.split()[0])
        shown = dict(zip(NAMES, IDS, strict=True))
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
    print(record(HOUR))
