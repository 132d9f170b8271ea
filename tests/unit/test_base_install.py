"""The package as it is built, and without its extras: everything can be looked at, a call says what to install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKED = "import sys; sys.modules['httpx'] = None; import holdfast\n"  # as if it were not installed


def printed(code: str) -> str:
    """What a fresh interpreter without httpx prints."""
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_can_be_looked_at_without_httpx() -> None:
    assert printed("print(all(hasattr(holdfast, name) for name in holdfast.__all__))") == "True"
    assert printed("from holdfast import *; print(connect.__name__)") == "connect"
    assert printed("import inspect; print(len(inspect.getmembers(holdfast)) > len(holdfast.__all__))") == "True"
    assert "connect(url: 'str | Sequence[str]'" in printed(
        "import pydoc; print(pydoc.plain(pydoc.render_doc(holdfast)))"
    )


def test_a_call_that_needs_httpx_says_what_to_install() -> None:
    code = (
        "try:\n    holdfast.connect('http://127.0.0.1:9', token='token', actor='me')\n"
        "except holdfast.errors.Unsupported as error:\n    print(error.message, '|', error.hint)"
    )
    message, hint = printed(code).split(" | ")
    assert "needs a package that is not installed" in message
    assert hint == "pip install 'holdfast[remote]'"


def test_a_build_has_no_module_that_is_gone_from_the_source(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    shutil.copy(ROOT / "setup.py", tmp_path)
    for file in ("src/holdfast/errors.py", "src/holdfast/__init__.py", "build/lib/holdfast/errors/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    subprocess.run([sys.executable, "setup.py", "-q", "build_py"], cwd=tmp_path, check=True, capture_output=True)
    built = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "build").rglob("*.py")}
    assert built == {"build/lib/holdfast/__init__.py", "build/lib/holdfast/errors.py"}
