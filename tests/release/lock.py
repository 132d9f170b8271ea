"""`make lock`: what the targets of make install, with versions and the digests of all files, in locks/.

Versions are those of constraints.txt, which people write; uv finds what they need and asks the package index for the
digests. The locks hold for every platform with Python 3.11.5 or newer, and name no index. `locks/tools.in` lists what
a release needs besides.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from holdfast.faces.cli.commands.doctor import DEVELOPMENT
from tests.journal import ROOT

LOCKS: Final = ROOT / "locks"
TOOLS: Final = LOCKS / "tools.in"
UV: Final = ROOT / ".venv" / "tools" / "bin" / "uv"
_OPTIONS: Final = (
    "--universal",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--python-version",
    "3.11.5",
    "-q",
)


def lock(path: Path, *what: str) -> None:
    """Write one lock; uv prints it too."""
    subprocess.run(
        [UV, "pip", "compile", *_OPTIONS, *what, "-o", path], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    print(f"{path.relative_to(ROOT)}: {path.read_text().count('==')} packages")


def main() -> None:
    """Write them all."""
    for extra in DEVELOPMENT:
        lock(LOCKS / f"{extra}.txt", "pyproject.toml", "--extra", extra, "-c", "constraints.txt")
    lock(LOCKS / "tools.txt", str(TOOLS.relative_to(ROOT)))


if __name__ == "__main__":
    main()
