"""A log opened by its address: who opens it closes it, its folder records it without secrets, and is then enough."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.filesystem import LOG_URL, recorded_log
from holdfast.replication.address import is_address, parse
from holdfast.replication.engine_log import SharedClient
from tests.logs.nodes import RUN
from tests.worlds import nats
from tests.worlds.postgres import shared_server


@pytest.fixture(params=["postgres", "jetstream"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a workspace that is not there yet."""
    name = f"team-{os.urandom(6).hex()}"
    if request.param == "jetstream":
        return f"{nats.shared_server().url}/{name}"
    return f"{shared_server().url}&workspace={name}"


_before: set[tuple[type, int, str]] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Worlds of other tests in this process may keep theirs."""
    _before.clear()
    _before.update(SharedClient._clients)


def is_closed() -> bool:
    """Whether no log that this test opened has a connection."""
    return {*SharedClient._clients} <= _before


def with_secret(url: str) -> str:
    """The same address with a password."""
    return url.replace("nats://", "nats://me:s3cret@") if "nats:" in url else f"{url}&password=s3cret"


def test_an_address_has_an_engine_a_workspace_and_a_form_without_secrets() -> None:
    url = "postgresql://me:s3cret@h1:5432,h2:5433/db?sslmode=verify-full&password=s3cret&workspace=team-a"
    address = parse(url)
    assert address.workspace == "team-a"
    assert address.public == "postgresql://me@h1:5432,h2:5433/db?sslmode=verify-full&workspace=team-a"
    assert address.conninfo == "postgresql://me:s3cret@h1:5432,h2:5433/db?sslmode=verify-full&password=s3cret"
    assert parse(address.public).public == address.public


def test_an_address_of_nats_has_its_workspace_as_the_path_and_no_user_at_all_in_public() -> None:
    """What stands there without a password is a token."""
    for login in ("me:s3cret", "s3cret"):
        address = parse(f"nats://{login}@h1,h2:4333/team-a?stream=private")
        assert (address.engine, address.workspace) == ("jetstream", "team-a")
        assert address.conninfo == f"nats://{login}@h1,h2:4333?stream=private"
        assert address.public == "nats://h1,h2:4333/team-a?stream=private"
    assert parse(address.public).public == address.public


@pytest.mark.parametrize(
    "url",
    [
        "nats://host",
        "nats://host/",
        "nats://host/a/b",
        "nats://host/?workspace=a",
        "postgresql://host/db",
        "postgresql://host/db?workspace=",
        "postgresql://host/db?workspace=a&workspace=b",
        "postgresql://host/db?workspace=../a",
        "postgresql:/host/db?workspace=a",
    ],
)
def test_an_address_that_names_no_workspace_is_invalid(url: str, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match=r"address of a log"):
        holdfast.open(url, folder=tmp_path / "node")
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize(
    "url",
    [
        "nats://joe:s3cret@h1,h2:99999/team-a",
        "nats://joe:s3cret@h1:port/team-a",
        "nats://joe:s3cret@h1,:4222/team-a",
        "nats://joe:s3cret@h1:0/team-a",
        "nats://joe:s3cret@[::1/team-a",
        "postgresql://joe:s3cret@[::1/db?workspace=team-a",
    ],
)
def test_an_address_that_no_server_can_have_is_invalid_at_once(url: str, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="not the address of") as refusal:
        holdfast.open(url, folder=tmp_path / "node")
    assert "s3cret" not in f"{refusal.value} {refusal.value.hint}"
    assert not (tmp_path / "node").exists()


def test_a_folder_that_cannot_join_yet_is_not_said_to_answer_reads(tmp_path: Path) -> None:
    for url in ("nats://127.0.0.1:1/team-a", "postgresql://127.0.0.1:1/db?workspace=team-a"):
        with pytest.raises(errors.Unreachable) as refusal:
            holdfast.open(url, folder=tmp_path / "node", patience=0.1)
        assert refusal.value.hint == "check the address, and retry; nothing was made"
    assert not (tmp_path / "node").exists()


def test_what_is_an_address_and_what_a_folder() -> None:
    assert is_address("postgresql://host/db?workspace=a")
    assert is_address("postgres://host/db?workspace=a")
    assert is_address("nats://host/a")
    assert not any(map(is_address, (".holdfast", "/tmp/postgresql", "https://host", Path("folder"))))


def test_a_workspace_is_made_only_if_asked_and_joined_by_its_address(url: str, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="no workspace team-"):
        holdfast.open(url, folder=tmp_path / "a", actor="ann", patience=0)
    with holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True) as a:
        a.cells.set(RUN, "cell", 1)
        with holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
            assert b.cells.increment(RUN, "cell") == 2
        assert a.using(at_least="latest").cells.get(RUN, "cell").value == 2
    assert is_closed(), "whoever opens a log by its address closes it"


def test_the_folder_records_its_log_and_is_then_enough(url: str, tmp_path: Path) -> None:
    holdfast.open(with_secret(url), folder=tmp_path / "a", actor="ann", create=True).close()
    assert recorded_log(tmp_path / "a") == parse(url).public
    assert "s3cret" not in (tmp_path / "a" / LOG_URL).read_text()
    assert stat.S_IMODE((tmp_path / "a" / LOG_URL).stat().st_mode) == 0o600
    with holdfast.open(tmp_path / "a", actor="ann") as a, holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
        a.cells.set(RUN, "cell", "by the folder alone")
        assert b.using(at_least="latest").cells.get(RUN, "cell").value == "by the folder alone"
    assert is_closed()


def test_a_replica_is_rebuilt_from_the_log_that_its_folder_records(url: str, tmp_path: Path) -> None:
    with holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True) as a:
        a.cells.set(RUN, "cell", 1)
    assert holdfast.rebuild(tmp_path / "a").exists()
    with holdfast.open(tmp_path / "a", actor="ann") as a:
        assert a.cells.increment(RUN, "cell") == 2
    assert holdfast.upgrade(tmp_path / "a") > 0
    assert is_closed()


def test_whatever_takes_a_log_takes_its_address_too(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a", log=with_secret(url), actor="ann", create=True) as a:
        a.cells.set(RUN, "cell", 1)
        saved = a.backup(tmp_path / "saved")
    assert recorded_log(tmp_path / "a") == parse(url).public
    assert holdfast.upgrade(tmp_path / "a", log=url) > 0
    assert holdfast.rebuild(tmp_path / "a", log=url).exists()
    assert holdfast.detach(tmp_path / "a", log=url) == 1
    with holdfast.open(tmp_path / "a", actor="ann") as a:
        assert a.cells.increment(RUN, "cell") == 2
    new = url.replace("team-", "again-")
    with pytest.raises(errors.NotFound, match="there is no workspace again-"):
        holdfast.restore(saved, tmp_path / "again", log=new)
    assert not (tmp_path / "again").exists()
    assert holdfast.restore(saved, tmp_path / "again", log=with_secret(new), create=True) > 1
    assert recorded_log(tmp_path / "again") == parse(new).public
    with pytest.raises(errors.Exists, match="already holds a workspace"):
        holdfast.restore(saved, tmp_path / "twice", log=new)
    assert not (tmp_path / "twice").exists()
    with holdfast.open(tmp_path / "again", actor="ann") as again:
        assert again.cells.increment(RUN, "cell") == 2
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / LOG_URL).write_text(url)
    with pytest.raises(errors.Exists, match="belongs to the log"):
        holdfast.restore(saved, tmp_path / "lost")
    for function in (holdfast.rebuild, holdfast.detach, holdfast.upgrade):
        with pytest.raises(errors.Invalid, match="is a replica of"):
            function(tmp_path / "again", log=url)
    assert is_closed()


def test_a_folder_of_another_log_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True).close()
    with pytest.raises(errors.Invalid, match="is a replica of"):
        holdfast.open(f"{url}-2", folder=tmp_path / "a", actor="ann", create=True)
    assert recorded_log(tmp_path / "a") == parse(url).public


def test_a_name_that_has_ended_is_not_joined_and_says_how_to_go_on(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True).close()
    holdfast.detach(tmp_path / "a")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes").write_text("mine")
    for name in ("b", "kept"):
        assert main(["init", "--log", url, "--dir", str(tmp_path / name), "--actor", "ann"]) == errors.Closed.exit_code
        said = capsys.readouterr().err
        assert "left this log at revision 0" in said
        assert "the name is used up: choose another, or free it, see docs/engines.md" in said
    assert not (tmp_path / "b").exists()
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["notes"]
    assert is_closed()


def test_an_address_without_a_workspace_names_the_options_that_it_has(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="this one has sslmode=, workspce= and no workspace=") as refusal:
        holdfast.open("postgresql://host/db?sslmode=prefer&workspce=team-a", folder=tmp_path / "node")
    assert "team-a" not in refusal.value.message


def test_a_command_says_once_that_the_log_is_away_and_claims_to_know_no_more_than_it_does(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True).close()
    at = ["--dir", str(tmp_path / "a")]
    for words in (["list"], ["ready"]):
        assert main([*words, *at]) == 0
        assert "its log is away" not in "".join(capsys.readouterr())
    away = "nats://localhost:1/team" if "nats:" in url else "postgresql://localhost:1/nothing?workspace=team"
    (tmp_path / "a" / LOG_URL).write_text(away)
    told = ""
    for words in (["list"], ["ready"]):
        assert main([*words, *at]) == 0
        told += "".join(capsys.readouterr())
        assert told.endswith("; that is as this node knows it: its log is away\n")
    assert main(["doctor", *at, "--actor", "ann"]) == 1
    told += capsys.readouterr().err
    assert told.count("this node answers reads from its replica") == 1


def test_arguments_that_do_not_go_together_are_invalid(url: str, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="needs a folder"):
        holdfast.open(url)
    with pytest.raises(errors.Invalid, match="not both"):
        holdfast.open(url, folder=tmp_path / "a", log=holdfast.MemoryLog())
    with pytest.raises(errors.Invalid, match="not both"):
        holdfast.open(url, log=url)
    with pytest.raises(errors.Invalid, match="given twice"):
        holdfast.open(tmp_path / "a", folder=tmp_path / "b", log=url)
    with pytest.raises(errors.Invalid, match="goes with the address"):
        holdfast.open(tmp_path / "a", folder=tmp_path / "b")


def test_a_replica_is_read_while_its_engine_is_away_and_a_write_is_unreachable(url: str, tmp_path: Path) -> None:
    with holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True) as a:
        a.cells.set(RUN, "cell", 1)
    away = "nats://localhost:1/team" if "nats:" in url else "postgresql://localhost:1/nothing?workspace=team"
    (tmp_path / "a" / LOG_URL).write_text(away)
    with holdfast.open(tmp_path / "a", actor="ann", patience=0.1) as a:
        assert a.cells.get(RUN, "cell").value == 1
        with pytest.raises(errors.Unreachable, match="localhost:1"):
            a.cells.set(RUN, "cell", 2)
        with pytest.raises(errors.Unreachable):
            a.using(at_least="latest").cells.get(RUN, "cell")


def test_commands_make_it_find_it_and_say_where_it_is(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(tmp_path / name) for name in ("a", "b")]
    assert main(["init", "--dir", folders[0], "--log", url]) == errors.NotFound.exit_code
    said = capsys.readouterr().err
    assert "no workspace team-" in said
    assert "--create" in said
    assert not (tmp_path / "a").exists()
    for folder in folders:
        assert main(["init", "--dir", folder, "--log", url, "--create", "--actor", "ann"]) == 0
        joined = f"joined {parse(url).public}, at revision 0; this node's replica is in {folder}"
        assert joined in capsys.readouterr().out
    assert main(["create", "bake", "--dir", folders[0], "--actor", "ann"]) == 0
    capsys.readouterr()
    assert main(["list", "--dir", folders[1]]) == 0
    assert "bake" in capsys.readouterr().out
    assert main(["where", "--dir", folders[1]]) == 0
    assert parse(url).public in capsys.readouterr().out
    assert main(["init", "--dir", str(tmp_path / "c"), "--create"]) == 2


def test_an_address_that_is_no_text_is_damage_and_not_a_folder_without_a_log(tmp_path: Path) -> None:
    (tmp_path / LOG_URL).write_bytes(b"postgresql://host/\xff\n")
    with pytest.raises(errors.Corrupt):
        holdfast.open(tmp_path, actor="agent")
    assert not (tmp_path / "holdfast.db").exists()
