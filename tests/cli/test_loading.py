"""How the command line finds its own modules: as the import system does, only sooner."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SPECS = """
import sys
if sys.argv[1] == "ours":
    import holdfast.__main__
from holdfast.workspace import Workspace
from holdfast.domains.tasks import claims
for name, module in sorted(sys.modules.items()):
    if name.startswith("holdfast.") and name != "holdfast.__main__":
        spec = module.__spec__
        facts = spec.origin, spec.cached, spec.submodule_search_locations, spec.has_location
        print(name, module.__file__, module.__package__, *facts, sep="|")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, compiled, that processes load instead of this one."""
    copy = tmp_path / "lib" / "holdfast"
    source = Path(holdfast.__file__).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(copy, quiet=1)
    return copy


def said(package: Path, *arguments: str, **environment: str) -> str:
    """What a Python says that loads the copy."""
    env = {**os.environ, "PYTHONPATH": str(package.parent), **environment}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_those_that_the_import_system_finds(package: Path) -> None:
    ours = said(package, "-c", SPECS, "ours").splitlines()
    usual = said(package, "-c", SPECS, "usual").splitlines()
    assert len(usual) > 40
    assert set(usual) <= set(ours)
    found = "import holdfast.__main__, holdfast.workspace as w; print(type(w.__spec__.loader).__name__, w.__file__)"
    assert said(package, "-c", found) == f"Module {package / 'workspace' / '__init__.py'}\n"


def test_what_was_edited_is_loaded_anew_and_its_code_names_its_file(package: Path) -> None:
    edited = package / "ids.py"
    edited.write_text(edited.read_text() + "\nEDITED = lambda: None\n")
    code = "import holdfast.__main__, holdfast.ids as it; print(it.EDITED.__code__.co_filename)"
    assert said(package, "-c", code) == f"{edited}\n"
    assert said(package, "-c", code) == f"{edited}\n"  # from the bytecode that the first one wrote


def test_a_package_that_moved_names_where_it_is(package: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved" / "holdfast"
    moved.parent.mkdir()
    package.rename(moved)
    code = "import holdfast.__main__, holdfast.ids as it; print(it.new_secret.__code__.co_filename)"
    assert said(moved, "-c", code) == f"{moved / 'ids.py'}\n"


@pytest.mark.parametrize("flags", [("-O",), ("-B",), ("-X", "pycache_prefix=elsewhere")], ids=" ".join)
def test_other_bytecode_or_none_is_left_to_the_import_system(package: Path, flags: tuple[str, ...]) -> None:
    shutil.rmtree(package / "kernel" / "__pycache__")
    out = said(package, *flags, "-m", "holdfast", "version", PYTHONDONTWRITEBYTECODE="1")
    assert holdfast.__version__ in out


def test_bytecode_that_is_damaged_in_its_head_is_not_believed(package: Path) -> None:
    for each in (package / "kernel" / "__pycache__").iterdir():
        each.write_bytes(b"\0" * 16 + each.read_bytes()[16:])
    assert holdfast.__version__ in said(package, "-m", "holdfast", "version", PYTHONDONTWRITEBYTECODE="1")
