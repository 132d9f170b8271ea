"""Commands through a running server (issue 18): the same output, exit codes and identities, and nothing done twice.

Most tests carry out commands in this process, as a server would, so that each takes a fraction of a second; those about
sockets, processes and kills start a server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import holdfast
from holdfast import errors, private_socket
from holdfast.faces import cli as command_line
from holdfast.faces.cli import relay
from holdfast.faces.cli.command import all_commands
from holdfast.faces.cli.commands.server import carry_out
from holdfast.faces.cli.examples import examples_of
from holdfast.faces.http.listener import Settings, bind_private
from holdfast.private_socket import DECLINED, SOCKET, Request
from holdfast.route import Example
from holdfast.testing import ManualClock
from holdfast.workspace import Workspace
from holdfast.workspace.context import CallerGoneError
from tests.amounts import amount
from tests.cli.calling import PATIENCE, Answer, Shell
from tests.cli.test_cli_examples import CARE, Playground, is_plain
from tests.cli.test_held import *  # noqa: F403  # tokens are remembered the same: every test of them runs here too
from tests.http.running import Running

Call = Callable[..., Answer]
del test_what_was_granted_after_a_backup_is_void_after_its_restore  # noqa: F821  # no store is replaced under a server


class Wire:
    """Takes the place of the socket: requests are carried out here, as a server would. `lost` answers do not arrive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace: Workspace = holdfast.open(folder, actor="server")
        self.lost = False
        self.statuses: list[int] = []

    def exchange(self, request: Request) -> tuple[int, bytes]:
        done = carry_out(self.workspace, self.folder, request.encode())
        self.statuses.append(DECLINED if done is None else 0 if self.lost else 200)
        return self.statuses[-1], done or b""


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Wire]]:
    """Have commands on a folder relayed: `wired(folder)`."""
    wires: dict[str, Wire] = {}

    def connect(folder: str) -> Any:
        return wires.get(os.path.realpath(folder))

    def wire(folder: Path) -> Wire:
        return wires.setdefault(os.path.realpath(folder), Wire(folder))

    monkeypatch.setattr(relay, "connect", connect)
    monkeypatch.setattr(relay, "_exchange", lambda connection, request, *_: connection.exchange(request))
    yield wire
    for each in wires.values():
        each.workspace.close()


@pytest.fixture
def made(cli: Call, wired: Callable[[Path], Wire], project: Path) -> Call:
    """`holdfast WORDS` where a workspace has been made, relayed. The tests of `test_held` run with this."""
    assert cli("init").code == 0
    wired(project / ".holdfast")
    return cli


# --- warnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_command_shows_its_warnings_also_through_a_server(
    cli: Call, wired: Callable[[Path], Wire], project: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Which tasks were taken from whom, and that a clock is wrong: in the words of a shell. The server logs it too."""
    assert cli("init").code == 0
    told = []
    for served in (False, True):
        if served:
            wired(project / ".holdfast")
        caplog.clear()
        id = cli("create", "task", "-q", "--actor", "ada").out.strip()
        assert cli("claim", id, "--actor", "ada").code == 0
        answer = cli("release-stale-claims", "--timeout", "0s", "--actor", "ben", *options)
        assert answer.code == 0
        assert f"claims expired, and their tasks are open again: {id} of ada" in answer.err
        told.append(answer.err.replace(id, "ID"))
        assert bool(caplog.records) == served
        assert cli("cancel", id).code == 0
    assert told[0] == told[1]
    assert (json.loads(told[0])["note"] if options else told[0].removeprefix("holdfast: ")).startswith("claims expired")


def test_a_command_says_how_to_accept_a_clock_in_its_own_words(
    cli: Call, wired: Callable[[Path], Wire], project: Path
) -> None:
    clock = ManualClock()
    clock.jump(time.time() + 3600 - clock.wall() / 1e6)
    with holdfast.open(project / ".holdfast", actor="ada", clock=clock) as ws:
        ws.cells.set("run", "cell", 1)
    told = []
    for served in (False, True):
        if served:
            wired(project / ".holdfast")
        told.append(re.sub(r"\d+", "N", cli("cell", "set", "run", "cell", "2", "--actor", "ada").err))
    assert told[0] == told[1]
    assert told[0].startswith("holdfast: the workspace's time is N s ahead of this machine's clock")
    assert told[0].endswith("accept it: holdfast clock reset\n")


# --- the same output -------------------------------------------------------------------------------------------------

_RELAYED: Final = [
    example
    for command in all_commands()
    if command.relayed and command.name not in CARE
    for example in examples_of(command)
    if is_plain(example.line) and example.line not in CARE
]
_MASKS: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}"), "ID"),
    (re.compile(r"\b(hf|msg|m)-[0-9a-z]{4,}\b"), r"\1-ID"),
    (re.compile(r"just now |\d+ (s|min) ago"), "AGO"),
    (re.compile(r"\d+"), "N"),
)


def masked(ground: Playground, answer: tuple[int, str, str]) -> tuple[int, str, str]:
    """An answer without what differs from call to call: ids, times, tokens, the folder."""

    def mask(text: str) -> str:
        text = text.replace(str(ground.project), "PROJECT")
        for pattern, name in _MASKS:
            text = pattern.sub(name, text)
        return text

    code, out, err = answer
    return code, mask(out), mask(err)


_AGO: Final = (
    "holdfast park hf-7k2q 2h",
    "holdfast defer hf-7k2q 2d",
)  # durations: repeated, they end later, so an answer that is lost stays lost


@pytest.mark.parametrize("example", _RELAYED, ids=[example.line for example in _RELAYED])
def test_an_example_prints_the_same_directly_through_a_server_and_after_a_lost_answer(
    tmp_path: Path, wired: Callable[[Path], Wire], example: Example
) -> None:
    first = Playground(tmp_path)
    first.env |= {"HOME": os.environ["HOME"]}  # as the server has it
    for line in example.after:
        assert first.call(line)[0] == 0, line
    answers, revisions = {}, set()
    for way in ("direct", "relayed", "lost"):
        ground = copy(first)
        ground.project = ground.project.with_name(way)
        ground.store = ground.project / ".holdfast"
        shutil.copytree(first.project, ground.project)
        if way != "direct":
            wired(ground.store).lost = way == "lost"
        answers[way] = masked(ground, ground.call(example.line))
        with holdfast.open(ground.store, actor="reader") as workspace:
            revisions.add(workspace.revision)
    assert answers["relayed"] == answers["direct"]
    assert answers["lost"] == answers["direct"] or (answers["lost"][0] == 16 and example.line in _AGO)
    assert len(revisions) == 1


# --- what is relayed, and for whom -----------------------------------------------------------------------------------


@pytest.fixture
def wire(made: Call, wired: Callable[[Path], Wire], project: Path) -> Wire:
    """The wire of the project's workspace."""
    return wired(project / ".holdfast")


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are carried out here."""
    found: list[list[str]] = []
    real = command_line._run

    def run(arguments: list[str], key: str | None) -> int:
        found.append(arguments)
        return real(arguments, key)

    monkeypatch.setattr(command_line, "_run", run)
    return found


def test_a_command_through_a_server_does_nothing_here(made: Call, wire: Wire, direct: list[list[str]]) -> None:
    id = made("create", "Write it", "-q").id
    assert made("next", "-q", "--actor", "a").id == id
    assert made("done", id, "--actor", "a").code == 0
    assert made("next", "--actor", "a").code == 4
    assert made("cell", "get", "r", "c").code == 10
    assert made("frobnicate").code == 2
    assert (direct, wire.statuses) == ([], [200] * 6)


def test_i7_completion_goes_through_the_server_unless_another_workspace_is_meant(
    made: Call, wire: Wire, direct: list[list[str]], tmp_path: Path
) -> None:
    id = made("create", "Write it", "-q").id
    assert made("completion", "bash", "--", "show", "").out == f"{id}\n"
    assert made("completion", "bash", "--", "expl").out == "explain\n"
    assert (direct, wire.statuses) == ([], [200] * 3)
    assert made("completion", "bash", "--", "show", "--dir", str(tmp_path), "").out == ""
    assert (len(direct), wire.statuses[3:]) == (1, [DECLINED])


@pytest.mark.parametrize(
    "words",
    [
        ["where"],
        ["doctor"],
        ["help"],
        ["next", "--help"],
        ["--version"],
        ["--json", "where"],
        ["--dir", ".", "where"],
        ["cell", "set", "r", "c", "-"],
        ["create", "x", "--body=-"],
        ["ready", "--direct"],
        ["--direct", "ready"],
    ],
    ids=" ".join,
)
def test_some_commands_do_not_even_ask(made: Call, wire: Wire, direct: list[list[str]], words: list[str]) -> None:
    assert made(*words, stdin="1").code in (0, 1)
    assert (direct, wire.statuses) == ([words], [])


@pytest.mark.parametrize("line", ["next --wait 0.1", "lock acquire x --wait 0.1", "cell watch r c --timeout 0.1"])
def test_a_server_waits_for_nobody(made: Call, wire: Wire, direct: list[list[str]], line: str) -> None:
    made(*line.split(), "--actor", "a")
    assert (len(direct), wire.statuses) == (1, [DECLINED])


def test_another_version_is_not_used(
    made: Call, wire: Wire, direct: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_version", lambda: "0.0.1")
    assert made("create", "x", "-q").id
    assert (len(direct), wire.statuses) == (1, [DECLINED])


@pytest.mark.parametrize("what", ["view", "TZ", "HOME"])
def test_a_caller_with_other_files_or_another_time_zone_is_declined(
    made: Call, wire: Wire, direct: list[list[str]], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Paths would mean something else to the server, and it would print its own times."""
    environment = {**relay._environment(), what: "/other"}
    monkeypatch.setattr(relay, "_environment", lambda: environment)
    if what == "view":
        request = Request("0.1.0", "elsewhere", os.getcwd(), "k", None, {}, ["ready"], b"")
        assert carry_out(wire.workspace, wire.folder, request.encode()) is None
    else:
        assert made("ready").code == 0
        assert (len(direct), wire.statuses) == (1, [DECLINED])


def test_what_means_another_workspace_is_declined(made: Call, wire: Wire, tmp_path: Path) -> None:
    other = tmp_path / "other"
    holdfast.open(other, actor="a").close()
    here, there = ["ready"], ["ready", "--dir", str(other)]
    for words, taken in ((here, True), (there, False)):
        request = Request(holdfast.__version__, relay.view(), os.getcwd(), "k", None, relay._environment(), words, b"")
        assert (carry_out(wire.workspace, wire.folder, request.encode()) is not None) == taken


def test_what_is_no_request_is_declined(wire: Wire) -> None:
    for body in (b"", b"\0" * 20, b"1\0" * 5, b"x", os.urandom(1000)):
        assert carry_out(wire.workspace, wire.folder, body) is None


def test_requests_and_answers_survive_the_way_with_any_text() -> None:
    words = ["note", "hf-1", "\udcff ü \n", ""]
    request = Request("1", "v", "/a b", "k", 80, {"HOLDFAST_ACTOR": "a=b"}, words, b"{\0}")
    assert vars(Request.decode(request.encode())) == vars(request)
    pieces = [(b"o", b"a\nb"), (b"e", b""), (b"f", b"held/x")]
    answer = private_socket.encode_answer(12, pieces)
    assert private_socket.decode_answer(answer) == (12, pieces)
    for cut in range(answer.index(b"held"), len(answer)):
        with pytest.raises(ValueError, match="cut short"):
            private_socket.decode_answer(answer[:cut])


def test_a_derived_actor_may_read_and_not_claim(made: Call, wire: Wire) -> None:
    made("create", "x")
    assert made("ready").code == 0
    refused = made("next", "--json")
    assert refused.code != 0
    assert refused.error["code"] == "INVALID_HOLDER"
    assert refused.err.replace("--direct ", "") == made("next", "--json", "--direct").err
    assert made("create", "y", USER="me").code == 0
    assert made("event", "list", "--json").data[-1]["actor"] == f"me@{os.uname().nodename}"
    assert wire.statuses == [200] * 5


def test_the_actor_is_the_option_then_the_environment(made: Call, wire: Wire) -> None:
    for number in range(2):
        made("create", f"task {number}")
    assert made("next", "--json", HOLDFAST_ACTOR="env").data["claimed_by"] == "env"
    assert made("next", "--json", "--actor", "opt", HOLDFAST_ACTOR="env").data["claimed_by"] == "opt"
    assert made("next", "--actor", "").code == 2


def test_a_hook_is_answered_with_what_its_client_sent(made: Call, wire: Wire, project: Path) -> None:
    assert made("path", "lock", "src/**", "--actor", "ada").code == 0
    for file, code in (("src/x.py", 2), ("doc/x.md", 0)):
        sent = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_input": {"file_path": str(project / file)}}
        answers = [made("guard", "--hook", "claude", *more, stdin=json.dumps(sent)) for more in ((), ("--direct",))]
        assert answers[0] == answers[1]
        assert answers[0].code == code
    assert wire.statuses == [200] * 3


def test_a_hook_that_is_declined_has_its_input_still(made: Call, wire: Wire, tmp_path: Path) -> None:
    """The file lies in another project: this server does not know who has locked it."""
    other = tmp_path / "else"
    other.mkdir()
    with holdfast.open(other / ".holdfast", actor="bob") as workspace:
        workspace.paths.lock(["x.py"])
    sent = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_input": {"file_path": str(other / "x.py")}}
    assert made("guard", "--hook", "claude", stdin=json.dumps(sent)).code == 2
    assert wire.statuses == [DECLINED]


def test_a_terminal_gets_colours_and_rows_that_fit(made: Call, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    made("create", "a long title " * 20)
    monkeypatch.setattr(relay, "columns", lambda _: 60)
    shown = made("ready", TERM="xterm").out
    assert "\x1b[1m" in shown
    assert len(re.sub(r"\x1b\[\d*m", "", shown.splitlines()[0])) <= 60
    assert "\x1b" not in made("ready", TERM="dumb").out


def test_a_refusal_folds_where_the_terminal_of_its_caller_ends(
    made: Call, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = made("done", "hf-nope", "--actor", "a").err
    request = Request("v", "/", "/", "k", None, {}, ["list"], b"", 1.5, 30)
    assert (Request.decode(request.encode()).columns, Request.decode(request.encode()).error_columns) == (None, 30)
    monkeypatch.setattr(relay, "columns", lambda stream: getattr(stream, "columns", 30))
    told = made("done", "hf-nope", "--actor", "a").err
    assert wire.statuses == [200] * 2
    assert len(told.splitlines()) > len(plain.splitlines())
    assert told.split() == plain.split()


# --- lost answers ----------------------------------------------------------------------------------------------------


def test_a_lost_answer_is_settled_by_its_key(made: Call, wire: Wire) -> None:
    ids = [made("create", f"task {number}", "-q").id for number in range(3)]
    wire.lost = True
    assert made("next", "-q", "--actor", "a").id == ids[0]
    assert made("done", ids[0], "--actor", "a").code == 0
    assert made("create", "another", "-q").code == 0
    wire.lost = False
    assert len(made("list", "--all", "--json").data) == 4
    assert made("show", ids[0], "--json").data["status"] == "closed"
    assert made("show", ids[1], "--json").data["claimed_by"] is None


@pytest.mark.parametrize(
    "line",
    [
        *("create BAD", "create x --tag BAD", "cell set r BAD 1", "claim BAD --actor a", "mail send BAD s b --actor a"),
        *("stash create BAD --type context", "note hf-1 BAD", "next --actor BAD", "lock acquire BAD --actor a"),
    ],
)
def test_words_that_are_not_utf_8_are_refused_with_the_same_words(made: Call, wire: Wire, line: str) -> None:
    words = [word.replace("BAD", "x\udcff") for word in line.split()]
    for more in ((), ("--json",)):
        relayed, direct = made(*words, *more), made(*words, *more, "--direct")
        assert relayed == direct
        assert relayed.code == 1
        assert "surrogate at position 1" in relayed.err
    assert "surrogate at position 1" in relayed.error["error"]
    assert wire.statuses == [200, 200]


def test_what_changes_nothing_leaves_nothing_through_a_server_either(made: Call, wire: Wire) -> None:
    """Its key would be a write, and a write makes an agent known."""
    codes = {"next": 4, "lock release door": 0, "cell delete run cell": 0, "path release src/**": 0}
    for number, (line, code) in enumerate(codes.items()):
        for way in ((), ("--direct",)):
            assert made(*line.split(), *way, "--actor", f"agent-{number}").code == code, line
    assert made("agent", "list", "--json").data == []
    assert len(wire.statuses) == len(codes) + 1
    assert made("next", "--actor", "known", "--key", "k").code == 4
    assert [agent["name"] for agent in made("agent", "list", "--json").data] == ["known"], (
        "a key of the caller's is kept"
    )


def test_a_repeated_call_that_had_found_nothing_may_find_something_now(
    made: Call, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen the first answer."""
    carry = wire.exchange

    def exchange(request: Request) -> tuple[int, bytes]:
        found = carry(request)
        wire.workspace.tasks.create("it comes meanwhile")
        return found

    monkeypatch.setattr(wire, "exchange", exchange)
    wire.lost = True
    assert made("next", "--actor", "a").code == 0


def test_what_cannot_be_settled_is_an_unknown_outcome_with_its_key(
    made: Call, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.lost = True
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.workspace.open_briefly", _busy)
        refused = made("create", "x", "--json")
    assert (refused.code, refused.error["code"]) == (16, "OUTCOME_UNKNOWN")
    key = re.search(r"--key (\w+)", refused.error["hint"])
    assert key
    wire.lost = False
    again = made("create", "x", "--json", "--key", key[1])
    assert [task["id"] for task in made("list", "--json").data] == [again.data["id"]]


def _busy(*_: object, **__: object) -> None:
    raise errors.Busy("it is busy")


# --- sockets and processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_the_socket_is_for_its_owner_alone_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        bound = bind_private(tmp_path)
    finally:
        os.umask(before)
    assert bound is not None
    with bound:
        assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600


def test_a_path_may_be_longer_than_the_address_of_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    if not os.path.isdir("/proc/self/fd"):
        assert bind_private(folder) is None
        return
    bound = bind_private(folder)
    assert bound is not None
    with bound:
        bound.listen()
        connection = relay.connect(str(folder))
        assert connection is not None
        connection.close()


def test_what_a_killed_server_left_costs_nothing_and_is_replaced(made: Call, project: Path) -> None:
    folder = project / ".holdfast"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / SOCKET))
    assert (folder / SOCKET).is_socket()
    assert relay_connect(str(folder)) is None
    bound = bind_private(folder)
    assert bound is not None
    bound.close()


relay_connect: Final = relay.connect  # the real one: `made` replaces it


def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / SOCKET).write_text("mine")
    assert bind_private(tmp_path) is None
    assert (tmp_path / SOCKET).read_text() == "mine"
    assert relay.connect(str(tmp_path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_socket_of_another_user_is_not_used(made: Call, project: Path) -> None:
    """Whoever may write to the folder could put one there, and have our commands and say what we forget."""
    folder = project / ".holdfast"
    bound = bind_private(folder)
    assert bound is not None
    with bound:
        bound.listen()
        found = relay_connect(str(folder))
        assert found is not None
        found.close()
        os.chown(folder / SOCKET, 65534, 65534)
        assert relay_connect(str(folder)) is None


@pytest.mark.parametrize("path", ["../outside", "/outside", "held/../../outside", "outside", ""])
def test_a_server_can_have_nothing_forgotten_but_tokens(tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / ".holdfast" / "held").mkdir(parents=True)
    (tmp_path / ".holdfast" / "outside").write_text("mine")
    with pytest.raises(ValueError, match="no token"):
        relay._obey(0, [(private_socket.FORGET, path.encode())], str(tmp_path / ".holdfast"))
    assert outside.exists()
    assert (tmp_path / ".holdfast" / "outside").exists()


def test_a_server_whose_socket_was_removed_is_said_to_be_out_of_reach(served: Running, shell: Shell) -> None:
    (served.folder / SOCKET).unlink()
    assert shell("create", "x", "-q").id
    assert "its socket server.sock is missing or cannot be opened; restart the server" in shell("where").out


def test_the_private_socket_cannot_be_chosen_for_callers_with_tokens(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="private socket"):
        Settings(folder=tmp_path, socket=tmp_path / SOCKET).check()


@pytest.fixture
def served(shell: Shell, project: Path) -> Iterator[Running]:
    """A server on the project's workspace."""
    assert shell("init").code == 0
    running = Running(project / ".holdfast")
    yield running
    running.end()


def test_a_server_serves_its_private_socket_without_a_token_and_its_port_as_ever(served: Running) -> None:
    path = served.folder / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(served.folder.stat().st_mode) == 0o700
    private = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=private, base_url="http://localhost", timeout=PATIENCE) as client:
        made = client.post("/api/tasks", json={"title": "x"}, headers={"x-agent-id": "me"})
        assert made.status_code == 201
        assert client.get("/api/tasks", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/api/tasks", headers={"origin": "http://evil.example"}).status_code == 403
        assert client.get("/api/tasks", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.post("/command", content=b"nonsense").status_code == DECLINED
    assert httpx.get(served.url + "/api/tasks").status_code == 401
    assert httpx.post(served.url + "/command", content=b"").status_code == 401
    assert served.call("POST", "/command", content=b"").status_code == 405


def test_where_and_doctor_say_whether_commands_go_through_a_server(
    served: Running, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = shell("where", "--json").data
    assert through["server"]["used"] is True
    assert str(served.process.pid) in through["server"]["address"]
    assert "commands go through it" in shell("where").out
    assert "commands go through it" in shell("doctor").out
    assert "commands go through it, but not with --direct" in shell("where", "--direct").out
    served.end()
    left = shell("where", "--json").data
    assert left["server"] is None
    assert "no server is running on it" in shell("doctor").out


def test_servers_that_are_killed_in_the_middle_lose_and_double_nothing(shell: Shell, project: Path) -> None:
    """Loops of commands, while servers come and are killed: every task is taken once, and done once."""
    assert shell("init").code == 0
    count, kills = amount(12, 150), amount(2, 15)
    tasks = [{"title": f"task {number}"} for number in range(count)]
    assert shell("bulk", "create", "--tasks", "-", stdin=json.dumps(tasks)).code == 0
    with ThreadPoolExecutor(3) as loops:
        working = [loops.submit(_work, shell, f"loop-{number}") for number in range(3)]
        for _ in range(kills):
            running = Running(project / ".holdfast")
            taken = _events(project, "claim")
            while _events(project, "claim") < min(taken + count // kills // 2, count):
                assert not all(each.done() for each in working), [each.result() for each in working]
            running.process.send_signal(signal.SIGKILL)
            running.end()
        done = [id for each in working for id in each.result(PATIENCE)]
    assert len(done) == len(set(done)) == count
    with holdfast.open(project / ".holdfast", actor="judge") as workspace:
        assert workspace.check().ok
        events = [(event.op, event.id) for event in workspace.events.list(kinds=["task"], limit=1000)]
    assert set(Counter(event for event in events if event[0] in ("claim", "complete")).values()) == {1}


def _work(shell: Shell, actor: str) -> list[str]:
    """Take and finish tasks until nothing is ready; returns those that were finished."""
    finished = []
    mine = shell.with_(HOLDFAST_ACTOR=actor)
    while (taken := mine("next", "-q")).code == 0:
        assert mine("done", taken.id, "-q").code == 0
        finished.append(taken.id)
    assert taken.code == 4, taken
    return finished


def _events(project: Path, op: str) -> int:
    with holdfast.open(project / ".holdfast", actor="judge") as workspace:
        return len([event for event in workspace.events.list(kinds=["task"], limit=1000) if event.op == op])


def test_a_store_removed_under_a_server_is_reported_and_not_made_anew(served: Running, shell: Shell) -> None:
    """A new store would be another than the one that the server has open."""
    db, away = served.folder / "holdfast.db", served.folder / "away.db"
    assert shell("create", "x", "-q").id
    db.rename(away)
    for words in (["where"], ["doctor"], ["create", "y"], ["create", "y", "--dir", str(served.folder)], ["init"]):
        refused = shell(*words)
        told = refused.out if words == ["doctor"] else refused.err
        assert refused.code == (1 if words == ["doctor"] else 16), refused
        assert "was removed or moved while a server runs on it" in told
        assert str(served.process.pid) in told
        assert "init" not in told
    assert not db.exists()
    away.rename(db)


def test_a_moved_folder_says_that_its_server_has_lost_it_and_is_used_directly(
    served: Running, shell: Shell, project: Path
) -> None:
    assert shell("create", "x", "-q").id
    moved = served.folder.rename(project / "moved")
    assert shell("create", "y", "-q", "--dir", str(moved)).id
    assert len(shell("list", "--json", "--dir", str(moved)).data) == 2
    for command in ("where", "doctor"):
        told = shell(command, "--dir", str(moved)).out
        assert "commands do not go through it: its store was removed, moved or replaced while it ran" in told
        assert "restart the server" in told
    moved.rename(served.folder)
    assert shell("create", "z", "-q").id, "the server has given up what it had open: the command uses the store"
    assert len(shell("list", "--json").data) == 3


# --- a server that is stopped, or hangs ------------------------------------------------------------------------------


@pytest.fixture
def stopped(served: Running) -> Iterator[Running]:
    """A server that takes nothing: it is stopped."""
    served.process.send_signal(signal.SIGSTOP)
    _await_state(served.process.pid, "T")
    yield served
    served.process.send_signal(signal.SIGCONT)


def _await_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < deadline


_LINUX: Final = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only /proc tells that a process is stopped")


@_LINUX
def test_a_stopped_server_is_passed_by_with_a_word_about_it(stopped: Running, shell: Shell) -> None:
    pid = stopped.process.pid
    made = shell("create", "x", "-q")
    assert made.id
    assert made.err == (
        f"holdfast: the server (pid {pid}) is stopped\n"
        f"  let it continue (kill -CONT {pid}), or end it (kill -9 {pid})\n"
    )
    note, refused = shell("claim", "nobody", "--json", "--actor", "a").err.splitlines()
    assert json.loads(note)["note"] == f"the server (pid {pid}) is stopped"
    assert json.loads(refused)["code"] == "TASK_NOT_FOUND"
    assert shell("guard", "x.py").code == 0
    where = shell("where", "--json").data["server"]
    assert (where["used"], where["why"].partition(";")[0]) == (
        False,
        f"commands do not go through it: the server (pid {pid}) is stopped",
    )
    stopped.process.send_signal(signal.SIGCONT)
    assert [task["id"] for task in shell("list", "--json").data] == [made.id], "what it was offered, it did not do"
    assert shell("where", "--json").data["server"]["used"] is True


def test_a_server_that_took_a_command_and_hangs_is_waited_for_with_a_word_about_it(
    made: Call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the command and does not answer: the store settles it by the key, and `guard` does not wait for long."""
    monkeypatch.setattr(relay, "SILENCE", 0.01)
    monkeypatch.setattr(relay, "TIMEOUT", 0.05)
    monkeypatch.setattr(relay, "connect", relay_connect)
    monkeypatch.setattr(relay, "_exchange", relay_exchange)
    bound = bind_private(project / ".holdfast")
    assert bound is not None
    with bound, ThreadPoolExecutor(1) as other:
        bound.listen()
        for words, code in ((("create", "x"), 0), (("claim", "nobody", "--actor", "a"), 10)):
            hanging = other.submit(_take, bound)
            answer = made(*words)
            assert (answer.code, answer.err.count("the server of this folder does not answer")) == (code, 1)
            request = hanging.result(PATIENCE)
            assert request.words == list(words)
            with pytest.raises(CallerGoneError):  # now it is too late to begin
                carry_out(holdfast.open(project / ".holdfast", actor="server"), project / ".holdfast", request.encode())
    assert len(made("list", "--json").data) == 1


def _take(bound: socket.socket) -> Request:
    """Take a command and never answer."""
    connection, _ = bound.accept()
    with connection:
        head = connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        body = b""
        while len(body) < length:
            body += connection.recv(1 << 16)
        while connection.recv(1 << 16):
            pass
        return Request.decode(body)


def test_a_write_that_its_caller_no_longer_waits_for_is_not_begun(
    wire: Wire, made: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came in time and waited for its turn in the store: that is where it is decided."""
    request = Request(holdfast.__version__, relay.view(), os.getcwd(), "k", None, relay._environment(), [], b"")
    request.words = ["create", "late", "--actor", "a"]
    request.until = time.monotonic() + PATIENCE
    with monkeypatch.context() as later:
        later.setattr("holdfast.workspace.context.monotonic", lambda: request.until)
        with pytest.raises(CallerGoneError):
            carry_out(wire.workspace, wire.folder, request.encode())
    assert made("list", "--json").data == []
    assert carry_out(wire.workspace, wire.folder, request.encode()) is not None
    assert len(made("list", "--json").data) == 1


relay_exchange: Final = relay._exchange
