"""The schema is frozen: stores of released versions open in this one, and their migrations never change (issue 26).

`tests/stores` has a store of each version, made by `python -m tests.release.stores`.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.kernel import migrations
from holdfast.kernel.store_files import FILE
from holdfast.workspace.registry import DOMAINS
from tests.release import stores


def lacks(found: Any, known: Any, where: str = "") -> list[str]:
    """Where an answer differs from a known one; it may have more fields."""
    if isinstance(known, dict) and isinstance(found, dict):
        gone = [f"{where}.{name} is gone" for name in known if name not in found]
        return gone + [line for name in known if name in found for line in lacks(found[name], known[name], name)]
    if isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        return [line for at, each in enumerate(known) for line in lacks(found[at], each, f"{where}[{at}]")]
    return [] if found == known else [f"{where} is {found!r}, not {known!r}"]


def test_what_is_compared_may_have_more_fields_and_nothing_less() -> None:
    known = {"tasks": [{"id": "a", "title": "b"}]}
    assert lacks({"tasks": [{"id": "a", "title": "b", "new": 1}], "more": 2}, known) == []
    assert lacks({"tasks": [{"id": "a"}]}, known) == ["tasks[0].title is gone"]
    assert lacks({"tasks": [{"id": "a", "title": "c"}]}, known) == ["title is 'c', not 'b'"]
    assert lacks({"tasks": []}, known) == ["tasks is [], not [{'id': 'a', 'title': 'b'}]"]


@pytest.mark.parametrize("version", stores.released())
def test_a_store_of_a_released_version_opens_answers_the_same_and_is_sound(version: str, tmp_path: Path) -> None:
    folder = stores.unpack(version, tmp_path)
    known = json.loads((stores.STORES / f"{version}.json").read_text())
    assert lacks(stores.open_and_read(folder), known) == []
    holdfast.upgrade(folder)
    assert lacks(stores.open_and_read(folder), known) == []
    with holdfast.open(folder, actor="me") as ws:
        task = ws.tasks.create("written by this version")
        assert ws.tasks.claim(task.id).version == 2
        assert ws.cells.set("run", "cell-1", "new") == known["cells"][1]["version"] + 1
        assert ws.check().problems == []


def test_a_store_made_now_has_something_in_every_table_and_answers_the_same_again(tmp_path: Path) -> None:
    answers = stores.make(tmp_path / "store")
    assert all(answers.values()), answers
    assert stores.open_and_read(tmp_path / "store") == answers


def test_every_domain_is_read() -> None:
    """A new domain is read too: else a store could lose what is in it, and nobody would see it."""
    code = " ".join(name for call in stores.READS.values() for name in call.__code__.co_names)
    called = {name for name in DOMAINS if f" {name} " in f" {code} "}
    assert called >= DOMAINS.keys() - {"routes", "clock"}, "add it to READS"


@pytest.mark.parametrize("version", stores.recorded())
def test_a_migration_that_was_released_never_changes(version: str) -> None:
    recorded, now = stores.recorded()[version], stores.schema_now()
    assert recorded["layout"] == now["layout"], "the layout was frozen with the first release"
    changed = {name for name, digest in recorded["migrations"].items() if now["migrations"].get(name) != digest}
    assert changed == set(), f"released with {version}: put the change into a migration of its own, with a new number"


def test_every_released_version_has_a_store_and_a_record() -> None:
    assert stores.released() == sorted(stores.recorded())


def older(folder: Path, layout: int) -> Path:
    """A store with something of everything, as a version before the first release left it."""
    stores.make(folder)
    with closing(apsw.Connection(str(folder / FILE))) as store:
        store.pragma("user_version", layout)
    return folder


def test_a_store_from_before_the_first_release_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = older(tmp_path / "store", migrations.LAYOUT - 1)
    before = (folder / FILE).read_bytes()
    for call in (lambda: holdfast.open(folder, actor="me"), lambda: holdfast.upgrade(folder)):
        with pytest.raises(errors.Unsupported, match=r"before 0\.2 .* cannot be upgraded"):
            call()
    assert main(["upgrade", "--dir", str(folder)]) == errors.Unsupported.exit_code
    said = capsys.readouterr().err
    assert "cannot be upgraded" in said
    assert "export its tasks" in said
    assert (folder / FILE).read_bytes() == before


def test_a_store_of_a_layout_to_come_is_refused_as_too_new(tmp_path: Path) -> None:
    folder = older(tmp_path / "store", migrations.LAYOUT + 1)
    with pytest.raises(errors.Behind, match="newer"):
        holdfast.open(folder, actor="me")
