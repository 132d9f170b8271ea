"""The contract of a log on real NATS servers, and what is its own: streams, durability, secrets, outages, hints."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest

import holdfast
from holdfast import errors
from holdfast.clock import Signal
from holdfast.hints import for_shell
from holdfast.kernel.journal import LogMoved
from holdfast.replication.jetstream import PART, JetStreamLog
from holdfast.replication.log import START, LostAnswer, Patience
from holdfast.replication.nats_connection import SHARDS, Connection, configuration, shard_of
from holdfast.testing import log_contract
from holdfast.testing.crowd import LONG, together
from holdfast.testing.log_contract import *  # noqa: F403
from tests.amounts import LONG as LONG_RUN
from tests.logs.nodes import RUN, eventually
from tests.worlds.nats import NatsCluster, NatsServer, shared_cluster, shared_server

PASSWORD = "s3cret-p4ssw0rd"


class PatientLog(JetStreamLog):
    """A client that waits while servers elect a leader, and settles lost answers, as a replica does.

    Three servers beside all other tests elect often. What was moved is passed on: that must be true at any time.
    """

    def head(self) -> int:
        return Patience(LONG).outlast(super().head)

    def time(self) -> int:
        return Patience(LONG).outlast(super().time)

    def append(self, entry: bytes, expected: int) -> int:
        send, in_doubt = super().append, False
        for _ in Patience(LONG).looks():
            try:
                return Patience(LONG).outlast(lambda: send(entry, expected))
            except LostAnswer:
                in_doubt = True
            except LogMoved:
                if not in_doubt:
                    raise
            if (end := self.head()) > expected:
                position, first = read(self, expected, end)[0]  # noqa: F405
                if first != entry:
                    raise LogMoved
                return position
        raise AssertionError("no append was decided")

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        return Patience(LONG).outlast(lambda: JetStreamLog.tail(self, after))

    def put(self, blob: bytes) -> str:
        return Patience(LONG).outlast(lambda: JetStreamLog.put(self, blob))

    def get(self, ref: str) -> bytes:
        return Patience(LONG).outlast(lambda: JetStreamLog.get(self, ref))

    def trim(self, before: int) -> None:
        Patience(LONG).outlast(lambda: JetStreamLog.trim(self, before))


# Each worker would start three servers of its own; without LONG one test does, below.
@pytest.fixture(params=["R1", "R3"] if LONG_RUN else ["R1"])
def servers(request: pytest.FixtureRequest) -> NatsCluster:
    """A single server, and a cluster of three: that one answers what the other never does."""
    return shared_server() if request.param == "R1" else shared_cluster()


@pytest.fixture
def url(servers: NatsCluster) -> str:
    """Where they are."""
    return f"{servers.url}?sync=always"


def client(url: str, name: str) -> JetStreamLog:
    """A client of a log that is made if it is not there; a stream that was just made may have no leader yet."""
    log = (PatientLog if "," in url else JetStreamLog)(url, name, create=True)
    Patience(LONG).outlast(log.head)
    return log


@pytest.fixture
def name() -> str:
    """A workspace that nobody else has."""
    return f"team.{os.urandom(6).hex()}"


@pytest.fixture
def log(url: str, name: str) -> Iterator[JetStreamLog]:
    """A fresh log."""
    log = client(url, name)
    yield log
    log.close()


@pytest.fixture  # type: ignore[no-redef]
def peer(url: str, name: str) -> Iterator[JetStreamLog]:
    """Another client, as another process would have: a connection of its own."""
    log = client(as_peer(url), name)
    yield log
    log.close()


@pytest.fixture
def server() -> Iterator[NatsCluster]:
    """A server that may be stopped and killed."""
    server = NatsCluster(1)
    yield server
    server.remove()


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    """Three servers that may be stopped and killed."""
    cluster = NatsCluster()
    yield cluster
    cluster.remove()


def as_peer(url: str, number: int = 0) -> str:
    """The same servers by an address of its own: they ask nobody who they are."""
    return url.replace("nats://", f"nats://peer{number}:peer@")


def api(url: str, subject: str, **query: Any) -> Any:
    """What a server answers to a request of JetStream's API."""

    async def run() -> Any:
        import nats

        client = await nats.connect(url.partition("?")[0].split(",")[0])
        try:
            return json.loads((await client.request(f"$JS.API.{subject}", json.dumps(query).encode(), timeout=10)).data)
        finally:
            await client.close()

    return asyncio.run(run())


def messages(log: JetStreamLog, url: str) -> dict[str, int]:
    """How many messages each subject of a workspace has."""
    found = api(url, f"STREAM.INFO.{log.stream}", subjects_filter=f"{log._subject}.>")["state"].get("subjects", {})
    return {subject.removeprefix(f"{log._subject}."): count for subject, count in found.items()}


# --- the waist -------------------------------------------------------------------------------------------------------

# Ten seconds of appends on three servers, to see pages of the tail that one server shows as well.
_LONG_ONLY = "test_pages_of_the_tail_together_are_the_whole_log_in_order_and_without_gap"


@pytest.mark.early
def test_l6_the_contract_holds_on_three_servers() -> None:
    """One that elects, refuses without a number and has replicas that lag: what a single server never does."""
    url = f"{shared_cluster().url}?sync=always"
    contract = {name: test for name, test in vars(log_contract).items() if name.startswith("test_")}
    contract.pop(_LONG_ONLY)
    assert len(contract) > 20
    for name, test in contract.items():
        workspace = f"{name[:40]}-{os.urandom(4).hex()}"
        log, peer = client(url, workspace), client(as_peer(url), workspace)
        clients = {"log": log, "peer": peer}
        try:
            test(**{argument: clients[argument] for argument in inspect.signature(test).parameters})
        except BaseException as error:
            error.add_note(f"in {name}")
            raise
        finally:
            peer.close()
            log.close()


def test_a_constructor_needs_no_server_and_a_call_is_unreachable() -> None:
    log = JetStreamLog("nats://localhost:1", "w")
    for call in (log.head, log.time, lambda: log.append(b"x", START), lambda: log.tail(START), lambda: log.put(b"x")):
        with pytest.raises(errors.Unreachable, match="localhost:1"):
            call()
    log.close()
    with pytest.raises(errors.Unreachable, match="closed"):
        log.head()


def test_an_unknown_workspace_is_made_only_if_asked(url: str, name: str) -> None:
    log = JetStreamLog(url, name)
    with pytest.raises(errors.NotFound, match=name):
        log.head()
    made = JetStreamLog(url, name, create=True)
    assert Patience().outlast(made.head) == log.head() == START
    made.close()
    log.close()


def test_workspaces_of_one_stream_share_nothing(url: str, name: str) -> None:
    names = [name, f"{name}.e", f"{name}-e", name.replace(".", "_")]
    logs = [JetStreamLog(f"{url}&stream=shared", each, create=True) for each in names]
    Patience().outlast(logs[0].head)
    blob = logs[0].put(b"mine")
    for log in logs:
        assert (log.head(), list(log.tail(START))) == (START, [])
        end = log.append(log.name.encode(), START)
        assert list(log.tail(START)) == [(end, log.name.encode())]
    for log in logs[1:]:
        with pytest.raises(KeyError):
            log.get(blob)
        log.trim(log.head())
    assert logs[0].get(blob) == b"mine"
    for log in logs:
        log.close()


def test_n6_names_spread_over_16_streams_and_an_address_may_name_one(url: str, name: str) -> None:
    found = Counter(shard_of(f"team-{number}") for number in range(1000))
    assert len(found) == SHARDS
    assert max(found.values()) < 3 * min(found.values())
    log = JetStreamLog(f"{url}&stream=private", name, create=True)
    assert Patience().outlast(log.head) == START
    assert log.stream == "private"
    other = JetStreamLog(url, name)
    with pytest.raises(errors.NotFound):
        other.head()
    log.close()
    other.close()


def test_a_stream_that_is_not_made_for_workspaces_is_refused(server: NatsCluster) -> None:
    changes: list[dict[str, Any]] = [{"republish": None}, {"max_age": 10**9}, {"discard": "old"}]
    for number, change in enumerate(changes):
        stream = f"foreign{number}"
        assert "error" not in api(server.url, f"STREAM.CREATE.{stream}", **{**configuration(stream, 1), **change})
        log = JetStreamLog(f"{server.url}?stream={stream}", "w", create=True)
        with pytest.raises(errors.Invalid, match=f"stream {stream}"):
            log.head()
        log.close()


def test_more_replicas_than_servers_are_not_made_fewer(server: NatsCluster) -> None:
    log = JetStreamLog(f"{server.url}?replicas=3", "w", create=True)
    with pytest.raises(errors.Unreachable, match="3 replicas") as refusal:
        log.head()
    for hint in (refusal.value.hint, for_shell(refusal.value.hint)):
        assert hint.endswith("or write ?replicas=1 in the address")
    log.close()


@pytest.mark.parametrize("option", ["nonsense=1", "replicas=many", "sync=never", "stream=a.b", "monitor=x"])
def test_an_option_that_does_not_exist_is_invalid(option: str) -> None:
    with pytest.raises(errors.Invalid, match=option.partition("=")[0]):
        JetStreamLog(f"nats://host?{option}", "w")


def test_a_blob_of_many_parts_comes_back_whole_and_a_part_of_one_is_none(log: JetStreamLog, url: str) -> None:
    blob = os.urandom(11 * PART + 7)
    ref = log.put(blob)
    assert log.get(ref) == blob
    api(url, f"STREAM.PURGE.{log.stream}", filter=f"{log._subject}.b.{ref}.9")
    with pytest.raises(KeyError):
        log.get(ref)
    with pytest.raises(KeyError):
        log.get("no reference of ours")


def test_a_trim_leaves_the_entry_at_the_mark_and_one_mark(log: JetStreamLog, url: str) -> None:
    filled = fill(log, 20)  # noqa: F405
    log.put(b"early")
    for position, _ in (filled[5], filled[10], filled[-1]):
        log.trim(position)
    fill(log, 3)  # noqa: F405
    log.trim(log.head())
    found = messages(log, url)
    assert found["e"] == 1
    assert found["t"] <= 2
    assert not any(subject.startswith("b.") for subject in found)


def test_asking_for_the_end_leaves_one_probe_at_most(log: JetStreamLog, url: str) -> None:
    log.append(b"x", START)
    assert len({log.head() for _ in range(20)}) == 1
    assert messages(log, url).get("p", 0) <= 1


def test_logs_of_one_process_share_a_connection_and_close_it_with_the_last(server: NatsCluster) -> None:
    logs = [JetStreamLog(server.url, f"w{number}", create=True) for number in range(20)]
    for log in logs:
        log.enroll(Signal())
        log.append(b"x", START)
    assert server.servers[0].ask("varz")["connections"] == 1
    for log in logs:
        log.close()
    eventually(lambda: server.servers[0].ask("varz")["connections"] == 0)
    assert not any(key[2] == server.url for key in Connection._clients)


def test_what_was_heard_is_not_asked_for(log: JetStreamLog, peer: JetStreamLog) -> None:
    """A tail from the cache: with the line cut it still answers, for as long as silence is believed."""
    peer.enroll(waiter := Signal())
    end = log.append(b"one", START)
    assert waiter.wait(LONG)
    read(peer, START)  # noqa: F405
    position = log.append(b"two", end)
    eventually(lambda: end in peer._heard)
    peer._asked = peer._clock.monotonic()
    asked: list[object] = []
    peer._fetch = asked.append  # type: ignore[method-assign, assignment]
    assert list(peer.tail(end)) == [(position, b"two")]
    assert list(peer.tail(position)) == []
    assert asked == []


# --- durability and secrets ------------------------------------------------------------------------------------------


def test_n5_a_server_that_does_not_sync_every_write_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    server = NatsCluster(1, sync="2m")
    try:
        address = f"{server.url}?monitor={server.servers[0].monitor}"
        with caplog.at_level(logging.WARNING, "holdfast"):
            for name in ("a", "b"):
                log = JetStreamLog(address, name, create=True)
                assert log.head() == START
                (doubt,) = log.durability()
                assert "does not sync every write" in doubt
                log.close()
        assert len([record for record in caplog.records if "sync" in record.message]) == 1
    finally:
        server.remove()


def test_n5_a_server_that_syncs_is_in_no_doubt_and_one_that_does_not_say_is(server: NatsCluster) -> None:
    monitor = server.servers[0].monitor
    for option, doubts in ((f"monitor={monitor}", 0), ("sync=always", 0), ("", 1), ("monitor=1", 1)):
        log = JetStreamLog(f"{server.url}?{option}", "w", create=True)
        assert len(log.durability()) == doubts, option
        log.close()


def test_n5_fewer_than_three_replicas_in_a_cluster_are_reported(name: str) -> None:
    log = JetStreamLog(f"{shared_cluster().url}?sync=always&stream=single&replicas=1", name, create=True)
    Patience().outlast(log.head)
    (doubt,) = log.durability()
    assert "1 of 3 replicas" in doubt
    log.close()
    log = JetStreamLog(f"{shared_cluster().url}?sync=always", name, create=True)
    assert Patience().outlast(log.durability) == ()
    assert api(shared_cluster().url, f"STREAM.INFO.{log.stream}")["config"]["num_replicas"] == 3
    log.close()


@pytest.mark.parametrize("login", [f"me:{PASSWORD}", PASSWORD, f"me:{PASSWORD}%2F"])
def test_no_message_shows_a_password(login: str) -> None:
    server = NatsCluster(1, settings='authorization { user: me, password: "another" }')
    try:
        for address in (server.url, "nats://localhost:1"):
            log = JetStreamLog(address.replace("nats://", f"nats://{login}@"), "w")
            with pytest.raises(errors.Unreachable) as caught:
                log.head()
            log.close()
            error: BaseException | None = caught.value
            while error is not None:
                assert PASSWORD not in f"{error} {error!r}"
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    finally:
        server.remove()


def test_n1_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    cases: list[tuple[str, dict[str, str]]] = [
        (f"{{ user: me, password: {PASSWORD} }}", {"NATS_USER": "me", "NATS_PASSWORD": PASSWORD}),
        (f"{{ token: {PASSWORD} }}", {"NATS_TOKEN": PASSWORD}),
        (f"{{ users: [ {{ nkey: {public} }} ] }}", {"NATS_NKEY": str(tmp_path / "seed")}),
    ]
    for settings, environ in cases:
        server = NatsCluster(1, settings=f"authorization {settings}")
        log = JetStreamLog(server.url, "w", create=True)
        try:
            with pytest.raises(errors.Unreachable):
                log.head()
            with monkeypatch.context() as patch:
                for variable, value in environ.items():
                    patch.setenv(variable, value)
                assert Patience().outlast(log.head) == START
        finally:
            log.close()
            server.remove()


def test_missing_rights_are_named(name: str) -> None:
    rights = 'publish: ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>", "$JS.API.DIRECT.GET.>"]'
    users = f"users: [{{ user: me, password: me, permissions: {{ {rights} }} }}, {{ user: all, password: all }}]"
    server = NatsCluster(1, settings=f"authorization {{ {users} }}")
    try:
        log = JetStreamLog(server.url.replace("//", "//all:all@"), name, create=True)
        position = log.append(b"x", START)
        log.close()
        log = JetStreamLog(server.url.replace("//", "//me:me@"), name)
        assert list(log.tail(START)) == [(position, b"x")]
        with pytest.raises(errors.Unreachable, match="permissions violation"):
            log.head()
        log.close()
    finally:
        server.remove()


# --- outages ---------------------------------------------------------------------------------------------------------


def test_a_log_finds_its_server_again_after_a_restart(server: NatsCluster) -> None:
    log = JetStreamLog(server.url, "w", create=True)
    position = log.append(b"one", START)
    server.servers[0].stop()
    eventually(lambda: not is_connected(log))
    with pytest.raises(errors.Unreachable):
        log.append(b"two", position)
    server.start()
    last = Patience().outlast(lambda: log.append(b"two", position))
    assert list(log.tail(START)) == [(position, b"one"), (last, b"two")]
    log.close()


def is_connected(log: JetStreamLog) -> bool:
    connected = log._open()._connected
    return connected.done() and not isinstance(connected.result(), Exception)


def test_waiters_are_woken_when_the_server_is_back_and_hear_of_others(server: NatsCluster) -> None:
    log, peer = (JetStreamLog(url, "w", create=True) for url in (server.url, as_peer(server.url)))
    waiter, position = Signal(), log.append(b"one", START)
    peer.enroll(waiter)
    assert list(peer.tail(START)) == [(position, b"one")]
    eventually(lambda: peer._open().listens(peer))
    server.servers[0].stop(signal.SIGKILL)
    eventually(lambda: not peer._open().listens(peer))
    while waiter.wait(0):
        pass
    server.start()
    assert waiter.wait(LONG), "everybody is woken when the connection is there again"
    eventually(lambda: peer._open().listens(peer))
    while waiter.wait(0):
        pass
    last = Patience().outlast(lambda: log.append(b"two", position))
    assert waiter.wait(LONG)
    assert list(peer.tail(position)) == [(last, b"two")]
    log.close()
    peer.close()


def test_an_append_to_a_server_that_stands_still_is_a_lost_answer(server: NatsCluster) -> None:
    log = JetStreamLog(server.url, "w", create=True)
    position = log.append(b"one", START)
    server.servers[0].send(signal.SIGSTOP)
    with pytest.raises(LostAnswer):
        log.append(b"two", position)
    server.servers[0].send(signal.SIGCONT)
    assert [entry for _, entry in read(log, START, Patience().outlast(log.head))][0] == b"one"  # noqa: F405, RUF015
    log.close()


@pytest.mark.early
def test_a_leader_that_is_cut_off_does_not_say_where_the_log_ends(cluster: NatsCluster) -> None:
    """It would go on answering for more than ten seconds, while another may have been elected."""
    log = JetStreamLog(f"{cluster.url}?sync=always", "w", create=True)
    position = Patience().outlast(lambda: log.append(b"one", START))
    leader = leader_of(cluster, log)
    others = [server for server in cluster.servers if server is not leader]
    alone = JetStreamLog(f"nats://127.0.0.1:{leader.port}?sync=always", "w")
    assert alone.head() == position
    for server in others:
        server.send(signal.SIGSTOP)
    with pytest.raises(errors.Unreachable):
        alone.head()
    with pytest.raises((errors.Unreachable, LostAnswer)):
        alone.append(b"two", position)
    for server in others:
        server.send(signal.SIGCONT)
    assert Patience(LONG).outlast(alone.head) >= position
    alone.close()
    log.close()


def leader_of(cluster: NatsCluster, log: JetStreamLog) -> NatsServer:
    found: list[NatsServer] = []

    def look() -> bool:
        leader = cluster.leader_of(log.stream)
        found[:] = [leader] if leader is not None else []
        return bool(found)

    eventually(look)
    return found[0]


@pytest.mark.early
def test_three_nodes_write_through_the_end_of_the_leader_and_nothing_is_lost_or_doubled(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    logs = [JetStreamLog(as_peer(f"{cluster.url}?sync=always", n), "w", create=True) for n in range(3)]
    nodes = [holdfast.open(tmp_path / f"node-{n}", actor=f"n{n}", log=log, patience=LONG) for n, log in enumerate(logs)]

    def work(node: holdfast.Workspace) -> int:
        return len([node.cells.increment(RUN, "cell") for _ in range(20)])

    def crash() -> int:
        eventually(lambda: nodes[0].cells.find(RUN, "cell") is not None)
        leader = leader_of(cluster, logs[0])
        leader.stop(signal.SIGKILL)
        cluster.start()
        return 0

    assert together(crash, *(lambda node=node: work(node) for node in nodes)) == [0, 20, 20, 20]
    for node in nodes:
        assert node.using(at_least="latest").cells.get(RUN, "cell").value == 60
        assert node.check().problems == []
        node.close()
    for log in logs:
        log.close()
