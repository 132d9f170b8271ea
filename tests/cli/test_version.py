"""`holdfast version`: what runs here, and with which extras (issue 26)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import apsw
import pytest

import holdfast
from holdfast.faces.cli.commands import doctor
from holdfast.kernel import migrations
from tests.cli.calling import Answer
from tests.release.smoke import extras

Cli = Callable[..., Answer]


def test_version_names_the_programs_the_schema_and_the_extras(cli: Cli) -> None:
    found = cli("version", "--json").data
    assert found == {
        "holdfast": holdfast.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "schema": migrations.known(),
        "extras": [extra for extra in sorted(extras()) if extra],  # dev brings the packages of all
    }
    lines = cli("version").out.splitlines()
    assert (lines[0], len(lines)) == (f"holdfast {holdfast.__version__}", 3)
    assert cli("--version").out.splitlines() == lines[:1]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (['msgspec; extra == "one"', 'no-such-package>=2; extra == "one"'], []),
        (['Ruamel_YAML[x]>=0.1; extra == "one"', 'msgspec; extra == "dev"'], ["one"]),
        (["msgspec; extra == 'a-b' and python_version > '3'"], ["a-b"]),
        (None, []),
    ],
)
def test_an_extra_is_there_when_all_its_packages_are(
    lines: list[str] | None, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: lines)
    assert doctor.versions().extras == found
