"""The package as it is built, and without its extras: everything can be looked at, a call says what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.faces.cli.commands.doctor import DEVELOPMENT

ROOT = Path(__file__).parents[2]
EXTRAS_GONE = ("httpx", "httptools", "uvicorn", "mcp", "psycopg", "nats", "rich", "cryptography", "opentelemetry")
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS_GONE!r})); import holdfast\n"  # as if not installed


def printed(code: str) -> str:
    """What a fresh interpreter without any extra prints."""
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_can_be_looked_at_without_extras() -> None:
    assert printed("print(all(hasattr(holdfast, name) for name in holdfast.__all__))") == "True"
    assert printed("from holdfast import *; print(connect.__name__)") == "connect"
    assert printed("import inspect; print(len(inspect.getmembers(holdfast)) > len(holdfast.__all__))") == "True"
    assert "connect(url: 'str | Sequence[str]'" in printed(
        "import pydoc; print(pydoc.plain(pydoc.render_doc(holdfast)))"
    )


def test_a_client_needs_no_extra() -> None:
    code = (
        "try:\n    holdfast.connect('http://127.0.0.1:9', token='token', actor='me', timeout=1).revision\n"
        "except holdfast.errors.Unreachable as error:\n    print(error.code)"
    )
    assert printed(code) == "UNREACHABLE"


EXTRAS = {
    "server": ("httptools", "main(['serve', '--port', '0'])"),
    "mcp": ("mcp", "main(['mcp', '--actor', 'ann'])"),
    "postgres": ("psycopg", "main(['replicate', 'postgresql://db.example/x?workspace=w'])"),
    "jetstream": ("nats", "main(['replicate', 'nats://db.example/w'])"),
    "langgraph": ("langchain_core", ""),  # whose import fails, below
    "openai-agents": ("agents", ""),  # the session needs nothing of it
    "otel": ("opentelemetry", ""),  # tests/unit/test_telemetry.py
    "demo": ("rich", ""),  # which the demo does without
}
OTHERS = {
    "server": ("cryptography", "main(['serve', '--port', '0', '--tls', 'auto'])"),
    "jetstream": ("nats", "main(['cycle', 'export', '--nats', 'nats://db.example'])"),
}


def test_the_readme_has_a_line_for_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    assert {*project["optional-dependencies"]} - {*DEVELOPMENT} == {*EXTRAS}
    assert [extra for extra in EXTRAS if f"`pip install '.[{extra}]'`" not in readme] == []


def test_whatever_needs_an_extra_that_is_missing_names_the_line_of_the_readme(tmp_path: Path) -> None:
    calls = [(extra, *call) for table in (EXTRAS, OTHERS) for extra, call in table.items() if call[1]]
    tries = "\n".join(
        f"sys.modules[{package!r}] = None; print({extra!r}, {call}, file=sys.stderr, flush=True)"
        for extra, package, call in calls
    )
    where = {**os.environ, "HOLDFAST_DIR": str(tmp_path / "w")}
    code = f"import sys\nfrom holdfast.faces.cli import main\nmain(['init', '--dir', 'w'])\n{tries}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=where
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    for extra, _, call in calls:
        said = "\n".join(lines[: lines.index(f"{extra} 1") + 1])
        assert "needs a package that is not installed" in said, (call, said)
        assert f"  pip install 'holdfast[{extra}]'" in said, (call, said)
        del lines[: lines.index(f"{extra} 1") + 1]


def test_an_integration_without_its_extra_is_an_import_error_that_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['langchain_core'] = sys.modules['langgraph'] = None\n"
        "try:\n    from holdfast.integrations.langgraph import HoldfastSaver\n"
        "except ImportError as error:\n    print(error)"
    )
    said = printed(code)
    assert said.startswith("holdfast.integrations.langgraph needs a package that is not installed: "), said
    assert said.endswith("; pip install 'holdfast[langgraph]'"), said


def test_a_build_has_no_module_that_is_gone_from_the_source(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    shutil.copy(ROOT / "setup.py", tmp_path)
    for file in ("src/holdfast/errors.py", "src/holdfast/__init__.py", "build/lib/holdfast/errors/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    subprocess.run([sys.executable, "setup.py", "-q", "build_py"], cwd=tmp_path, check=True, capture_output=True)
    built = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "build").rglob("*.py")}
    assert built == {"build/lib/holdfast/__init__.py", "build/lib/holdfast/errors.py"}
