"""What make installs is pinned with digests, by the versions of constraints.txt (issue 26)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.faces.cli.commands.doctor import DEVELOPMENT
from tests.journal import ROOT
from tests.release.audit import CANNOT, Outcome, judge
from tests.release.lock import LOCKS, TOOLS

REMEDY = "run: make lock"
_PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", re.MULTILINE)


def name_of(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def pins(path: Path) -> dict[str, str]:
    """The packages of a file and their versions."""
    return {name_of(name): version for name, version in _PIN.findall(path.read_text())}


def test_there_is_a_lock_for_everything_that_make_installs() -> None:
    assert {path.stem for path in LOCKS.glob("*.txt")} == {*DEVELOPMENT, "tools"}
    makefile = (ROOT / "Makefile").read_text()
    installing = [line for line in makefile.splitlines() if "$(INSTALL)" in line]
    assert installing
    assert makefile.count("pip install") == 1, "INSTALL says how"
    assert [line for line in installing if "--require-hashes" not in line and "--no-deps" not in line] == []


@pytest.mark.parametrize("name", sorted({*DEVELOPMENT, "tools"}))
def test_every_package_of_a_lock_has_digests_and_none_names_an_index(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text()
    packages = [each for each in re.split(r"\n(?=\S)", text) if not each.startswith("#")]
    assert len(packages) == len(pins(LOCKS / f"{name}.txt")) > 1
    assert [each for each in packages if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", each)] == []
    assert "://" not in text


@pytest.mark.parametrize("extra", DEVELOPMENT)
def test_a_lock_has_the_versions_of_the_constraints_and_every_package_of_its_extra(extra: str) -> None:
    locked, wanted = pins(LOCKS / f"{extra}.txt"), pins(ROOT / "constraints.txt")
    assert {name: version for name, version in locked.items() if wanted.get(name, version) != version} == {}, REMEDY
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"][extra]]
    needed = {name_of(re.split(r"[<>=\[; ]", each)[0]) for each in named}
    assert needed - locked.keys() == set(), REMEDY


def test_every_constraint_is_of_a_package_that_some_lock_has() -> None:
    locked = {name for extra in DEVELOPMENT for name in pins(LOCKS / f"{extra}.txt")}
    assert pins(ROOT / "constraints.txt").keys() - locked == set(), f"remove it, or {REMEDY}"


def test_the_lock_of_the_tools_has_each_of_them() -> None:
    tools = {name_of(line) for line in TOOLS.read_text().splitlines() if not line.startswith("#")}
    assert tools - pins(LOCKS / "tools.txt").keys() == set(), REMEDY


def dependency(name: str, *advisories: str, skipped: str = "") -> dict[str, object]:
    """A package as pip-audit reports it."""
    if skipped:
        return {"name": name, "skip_reason": skipped}
    return {"name": name, "version": "1", "vulns": [{"id": each} for each in advisories]}


def test_an_audit_that_looked_nothing_up_says_that_it_cannot_and_not_that_all_is_well() -> None:
    nothing = judge("dev.txt", {"dependencies": [dependency("a", skipped="not found")]}, "")
    assert nothing == Outcome(True, [f"dev.txt: {CANNOT}: not found"])
    assert judge("dev.txt", None, "no route\n") == Outcome(True, [f"dev.txt: {CANNOT}: no route"])


def test_an_audit_passes_only_if_every_package_was_looked_up_and_none_has_an_advisory() -> None:
    sound, bad = dependency("a"), dependency("b", "PYSEC-1", "PYSEC-2")
    assert judge("dev.txt", {"dependencies": [sound]}, "").passes
    found = judge("dev.txt", {"dependencies": [sound, bad]}, "")
    assert not found.passes
    assert found.lines[1:] == ["dev.txt: b 1: PYSEC-1, PYSEC-2"]
    half = judge("dev.txt", {"dependencies": [sound, dependency("c", skipped="gone")]}, "")
    assert not half.passes
    assert half.lines[1:] == ["dev.txt: c was not audited: gone"]
