"""A replica that stopped is mended as its error says, in every face, and nothing that only it has is lost by that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.filesystem import LOG_URL, recorded_log
from holdfast.hints import for_http, for_shell, for_tools
from holdfast.kernel.store_files import FILE
from tests.logs.nodes import RUN
from tests.worlds.postgres import shared_server

Said = pytest.CaptureFixture[str]


@pytest.fixture
def url() -> str:
    """The address of a workspace that is not there yet."""
    return f"{shared_server().url}&workspace=mended-{os.urandom(6).hex()}"


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    """A node with a cell that was written three times."""
    with holdfast.open(url, folder=tmp_path / "node", actor="ann", create=True) as node:
        for _ in range(3):
            node.cells.increment(RUN, "cell")
    return tmp_path / "node"


def put_back(url: str, count: int) -> None:
    """Take the newest entries away, as a database restored from an older backup lacks them."""
    name = url.partition("workspace=")[2]
    with psycopg.connect(shared_server().url) as connection:
        connection.execute(
            "DELETE FROM holdfast.entries e USING holdfast.workspaces w WHERE w.id = e.workspace AND w.name = %s"
            " AND position > (SELECT max(position) FROM holdfast.entries WHERE workspace = w.id) - %s",
            (name, count),
        )


def cell(folder: Path) -> int:
    """What a folder has in its cell."""
    with holdfast.open(folder, actor="ann") as ws:
        return int(ws.cells.get(RUN, "cell").value)


def overwrite(url: str, folder: Path) -> None:
    """Write over the places of what was lost."""
    with holdfast.open(url, folder=folder, actor="bob") as other:
        for _ in range(6):
            other.cells.increment(RUN, "other")


@pytest.mark.parametrize("meanwhile", [lambda url, folder: None, overwrite], ids=["shorter", "written over"])
def test_a_replica_ahead_of_an_older_log_is_set_aside_only_if_asked_and_can_be_saved_first(
    folder: Path, url: str, tmp_path: Path, capsys: Said, meanwhile: Callable[[str, Path], None]
) -> None:
    put_back(url, 2)
    meanwhile(url, tmp_path / "other")
    at = ["--dir", str(folder)]
    for words in (["cell", "get", RUN, "cell"], ["rebuild"]):
        assert main([*words, *at]) == errors.Corrupt.exit_code
        said = capsys.readouterr().err
        assert "an older log was put back" in said
        assert f"holdfast backup --damaged FILE --dir {folder}" in said
        assert f"holdfast rebuild --ahead --dir {folder}" in said
        assert said.index("--damaged") < said.index("--ahead")
    with pytest.raises(errors.Corrupt, match="differs from its log"):
        holdfast.rebuild(folder)
    saved = str(tmp_path / "saved")
    assert main(["backup", "--damaged", saved, *at]) == 0
    assert main(["rebuild", "--ahead", *at]) == 0
    assert "the old one is " in capsys.readouterr().out
    assert cell(folder) == 1
    assert main(["restore", saved, "--dir", str(tmp_path / "looked at")]) == 0
    assert cell(tmp_path / "looked at") == 3


def test_a_running_node_hears_that_its_log_was_put_back_and_what_to_save(folder: Path, url: str) -> None:
    with holdfast.open(folder, actor="ann") as node:
        put_back(url, 2)
        with pytest.raises(errors.Corrupt, match="the log ends at") as refusal:
            node.cells.increment(RUN, "cell")
        assert "holdfast.salvage(path, file)" in refusal.value.hint


def test_a_damaged_replica_is_rebuilt_as_every_face_says(folder: Path, capsys: Said) -> None:
    with open(folder / FILE, "r+b") as file:
        file.seek(4096)
        file.write(b"x" * 8192)
    with pytest.raises(errors.Corrupt) as refusal:
        holdfast.open(folder, actor="ann").cells.get(RUN, "cell")
    hint = "holdfast.rebuild(path) makes a new replica from the log and sets this one aside"
    assert refusal.value.hint == hint
    assert for_shell(hint) == "holdfast rebuild makes a new replica from the log and sets this one aside"
    assert for_http(hint) == for_tools(hint) == hint.replace("holdfast.rebuild(path)", "`holdfast rebuild`")
    at = ["--dir", str(folder)]
    for words in (["cell", "get", RUN, "cell"], ["create", "bake"], ["doctor"]):
        assert main([*words, *at, "--actor", "ann"]) != 0
        said = "".join(capsys.readouterr())
        assert f"holdfast rebuild --dir {folder} makes a new replica" in said
        assert "restore the latest backup" not in said
        assert "holdfast restore FILE" not in said
    assert main(["rebuild", *at]) == 0
    assert cell(folder) == 3
    assert main(["doctor", *at, "--actor", "ann"]) == 0


def test_a_replica_of_which_a_part_was_removed_is_rebuilt(folder: Path, capsys: Said) -> None:
    (folder / FILE).rename(folder / f"{FILE}-wal")
    at = ["--dir", str(folder)]
    assert main(["list", *at]) == errors.Corrupt.exit_code
    assert f"holdfast rebuild --dir {folder} makes a new replica" in capsys.readouterr().err
    assert main(["rebuild", *at]) == 0
    assert cell(folder) == 3


def test_a_replica_whose_record_is_gone_is_told_so_everywhere_and_init_puts_it_back(
    folder: Path, url: str, capsys: Said
) -> None:
    (folder / LOG_URL).unlink()
    at = ["--dir", str(folder)]
    for words in (["list"], ["detach"], ["rebuild"], ["init"]):
        assert main([*words, *at]) == errors.Invalid.exit_code
        said = capsys.readouterr().err
        assert "is a replica of a log, but does not record which one" in said
        assert f"holdfast init --log URL --dir {folder}" in said
    with pytest.raises(errors.Invalid, match="does not record which one"):
        holdfast.detach(folder)
    assert main(["init", "--log", url, *at]) == 0
    assert "recorded the log of this replica: postgresql:" in capsys.readouterr().out
    assert recorded_log(folder) == url
    assert main(["detach", *at]) == 0


def test_what_is_no_replica_is_neither_rebuilt_nor_detached(tmp_path: Path, capsys: Said) -> None:
    holdfast.open(tmp_path / "plain", actor="ann").close()
    for function in (holdfast.rebuild, holdfast.detach):
        with pytest.raises(errors.Invalid, match="is not a replica of a log"):
            function(tmp_path / "plain")
        with pytest.raises(errors.NotFound):
            function(tmp_path / "nowhere")
    assert main(["rebuild", "--dir", str(tmp_path / "plain")]) == errors.Invalid.exit_code
    assert "holdfast replicate URL --dir" in capsys.readouterr().err


def test_a_backup_becomes_a_workspace_of_a_log_at_a_shell(folder: Path, url: str, tmp_path: Path, capsys: Said) -> None:
    saved, new, at = str(tmp_path / "saved"), f"{url}-again", ["--dir", str(tmp_path / "new")]
    assert main(["backup", saved, "--dir", str(folder)]) == 0
    assert main(["restore", saved, "--create", *at]) == 2
    assert main(["restore", saved, "--log", new, *at]) == errors.NotFound.exit_code
    assert not (tmp_path / "new").exists()
    assert main(["restore", saved, "--log", new, "--create", *at]) == 0
    assert f"it is the first replica of {new}" in capsys.readouterr().out
    assert holdfast.replicate(tmp_path / "joined", new) > 3
    assert cell(tmp_path / "joined") == cell(tmp_path / "new") == 3
