"""For all tests: where temporary files, state and settings lie, which signals count, and figures from workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.amounts import LONG

RAM = Path("/dev/shm")
ROOM = 2 << 30  # bytes that a RAM disk must have free: containers often have one of 64 MB
DISK = "HOLDFAST_TESTS_DISK"  # where temporary files lay before; tests of durability still use it


def _use_ram() -> None:
    """Put temporary files on a RAM disk, unless TMPDIR says where: most tests prove nothing about durability."""
    if "TMPDIR" in os.environ or not RAM.is_dir() or shutil.disk_usage(RAM).free < ROOM:
        return
    os.environ[DISK] = tempfile.gettempdir()
    os.environ["TMPDIR"] = str(RAM)
    tempfile.tempdir = None


def _hear_ctrl_c() -> None:
    """A shell starts what runs in its background with SIGINT ignored, and children inherit that: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_use_ram()
_hear_ctrl_c()
os.environ.setdefault("HOLDFAST_ROLLING", "0")  # no backups in the folder of whoever runs the tests
# How fast a machine makes data says nothing about the data, and other people's work slows it down.
# In CI its draws are those of the test, so that who runs a commit again sees the same; elsewhere they are new.
settings.register_profile(
    "holdfast",
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    derandomize=bool(os.environ.get("CI")) and not LONG,
)
settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kinds",
        default="all" if LONG else "",
        help="run the conformance suite on these kinds of workspaces (names with commas between them, or all) "
        "instead of those that the seed draws",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests that take long: if one of them came last, the other cores would wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders for state and configuration: no test writes into those of the person who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture
def on_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the machine's disk, for tests of durability; kept if the test fails."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=os.environ.get(DISK)))
    before = request.session.testsfailed
    yield folder
    if request.session.testsfailed == before:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def capsys(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> pytest.CaptureFixture[str]:
    """A worker's stdout leads nowhere: what is printed while capturing is off goes where its stderr does."""
    disabled = capsys.disabled

    @contextlib.contextmanager
    def shown() -> Iterator[None]:
        with disabled(), contextlib.redirect_stdout(sys.stderr):
            yield

    if hasattr(request.config, "workerinput"):
        monkeypatch.setattr(capsys, "disabled", shown)
    return capsys
