"""`make dist`: the wheel and the source archive in dist/, made twice in different folders and the same to the byte.

They are made of the files that git tracks, as they are in the working tree, with the setuptools of .venv. The time in
them is that of the newest commit, unless SOURCE_DATE_EPOCH names another. The wheel is made of the source archive, so
that this is shown to be whole. twine says whether an index would take them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.journal import ROOT

DIST: Final = ROOT / "dist"
TWINE: Final = ROOT / ".venv" / "tools" / "bin" / "twine"
_BUILD: Final = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"


def build(into: Path, work: Path) -> list[Path]:
    """Make both files in a folder, by way of an empty folder; returns them, the source archive first."""
    source = work / "source"
    copy_tracked(source)
    _run("sdist", source, into)
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    _run("wheel", unpacked, into)
    (wheel,) = into.glob("*.whl")
    return [archive, wheel]


def copy_tracked(to: Path) -> None:
    """Copy the files that git tracks, and no other."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):  # neither is part of a release
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


def _run(kind: str, source: Path, into: Path) -> None:
    """Have setuptools build in a process of its own, where new files get the modes that most machines give them."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch()}
    command = [sys.executable, "-c", _BUILD, kind, str(into)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, umask=0o022)
    if done.returncode:
        raise SystemExit(f"setuptools could not build the {kind}:\n{done.stdout}{done.stderr}")


def epoch() -> str:
    """The time in the files, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    found = os.environ.get("SOURCE_DATE_EPOCH")
    return found or subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Make both files twice, compare them, have twine check them, and leave them in dist/."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(suffix="-another") as second:
        made = []
        for place in (Path(first), Path(second) / "deeper"):
            (place / "files").mkdir(parents=True)
            made.append(build(place / "files", place))
        for one, other in zip(*made, strict=True):
            if one.name != other.name or digest(one) != digest(other):
                raise SystemExit(f"{one.name} differs from {other.name} of the second build: it is not reproducible")
        subprocess.run([TWINE, "check", "--strict", *made[0]], check=True)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for path in made[0]:
            shutil.copy(path, DIST)
            print(f"{path.stat().st_size:>9,} bytes  sha256 {digest(path)}  dist/{path.name}")
    print("two builds in different folders are the same to the byte")


if __name__ == "__main__":
    main()
