"""Every planted bug still finds its place in the source; `make teeth` shows that each is caught."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.journal import ROOT
from tests.teeth.__main__ import apply
from tests.teeth.bug import Bug
from tests.teeth.bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_applies_and_is_still_python(bug: Bug, tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "holdfast" / bug.file).parent.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "holdfast" / bug.file, source / "holdfast" / bug.file)
    apply(bug, source)
    compile((source / "holdfast" / bug.file).read_text(), bug.file, "exec")


def test_there_are_enough_of_them_and_no_two_have_the_same_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 10
