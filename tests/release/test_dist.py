"""What is in a release: the wheel and the source archive have all that a user needs and nothing else (issue 26)."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from tests.journal import ROOT
from tests.release.dist import build, digest

NAME = f"holdfast-{holdfast.__version__}"
SOURCE = ROOT / "src" / "holdfast"


class Files(NamedTuple):
    """What was built."""

    archive: Path
    wheel: Path

    def in_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as packed:
            return set(packed.namelist())

    def in_archive(self) -> set[str]:
        with tarfile.open(self.archive) as packed:
            return {entry.name.removeprefix(f"{NAME}/") for entry in packed if entry.isfile()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    work = tmp_path_factory.mktemp("release")
    (work / "files").mkdir()
    return Files(*build(work / "files", work))


def tracked() -> set[str]:
    """The files of the package: modules, the schema, the page, the mark that it is typed."""
    kept = {".py", ".sql", ".typed", ".js", ".css", ".html", ".svg"}
    return {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.suffix in kept}


@pytest.mark.early
def test_the_wheel_has_the_package_whole_and_nothing_else(files: Files) -> None:
    about = {f"{NAME}.dist-info/{it}" for it in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")}
    about |= {f"{NAME}.dist-info/licenses/LICENSE", f"{NAME}.data/scripts/holdfast"}
    assert files.in_wheel() == tracked() | about
    assert {
        "holdfast/py.typed",
        "holdfast/faces/web/static/index.html",
        "holdfast/kernel/schema/0001_foundation.sql",
    } <= (files.in_wheel())


def test_the_source_archive_has_what_makes_the_wheel_and_nothing_else(files: Files) -> None:
    about = {"LICENSE", "README.md", "PKG-INFO", "bin/holdfast", "pyproject.toml", "setup.cfg", "setup.py"}
    found = {name for name in files.in_archive() if ".egg-info/" not in name}
    assert found == {f"src/{name}" for name in tracked()} | about


def test_neither_has_tests_the_conformance_suite_or_anything_compiled(files: Files) -> None:
    every = files.in_wheel() | files.in_archive()
    assert [name for name in every if re.search(r"(^|/)(tests|conformance)/|\.(pyc|so|pyd|dylib)$", name)] == []
    testing = {Path(name).name for name in files.in_wheel() if "/testing/" in name}
    # docs/python.md describes these: a clock, a fixture, and what an adapter of a log must pass
    assert testing == {"__init__.py", "clock.py", "crowd.py", "faulty_log.py", "log_contract.py", "plugin.py"}


def test_the_wheel_runs_on_every_platform_and_says_its_version(files: Files) -> None:
    assert files.wheel.name == f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(files.wheel) as packed:
        about = packed.read(f"{NAME}.dist-info/METADATA").decode()
        assert packed.getinfo(f"{NAME}.data/scripts/holdfast").external_attr >> 16 & 0o777 == 0o755
    assert f"\nVersion: {holdfast.__version__}\n" in about
    assert "\nRequires-Python: >=3.11\n" in about


def test_the_same_sources_make_the_same_bytes_in_another_folder(files: Files, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "files").mkdir(parents=True)
    again = Files(*build(tmp_path / "elsewhere" / "files", tmp_path / "elsewhere"))
    assert [digest(path) for path in again] == [digest(path) for path in files]


def test_the_version_is_written_in_one_place() -> None:
    written = re.compile(rf"^[^#\n]*[\"'=]{re.escape(holdfast.__version__)}[\"']", re.MULTILINE)
    places = [SOURCE / "__init__.py", ROOT / "pyproject.toml", ROOT / "setup.py", *SOURCE.rglob("*.py")]
    assert {path for path in places if written.search(path.read_text())} == {SOURCE / "__init__.py"}
