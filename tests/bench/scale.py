"""Many workspaces in one server, many in one cluster, and many watchers of one workspace: what they cost.

The workspaces of a server are folders below its own, all open, and nobody calls. Those of a cluster are logs of three
replicas that a node of this process listens to; of the busy ones each gets an entry a second. The watchers are sockets
of this process; each must get every event. `make bench ARGS="scale"`.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import holdfast
from holdfast.clock import Signal
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import START, Patience
from tests.bench.engines import in_threads
from tests.bench.load_server import Served
from tests.bench.measure import Bench, Row, percentile
from tests.bench.streams import trial
from tests.http.running import command
from tests.worlds.nats import NatsCluster

WORKSPACES = 1000
WATCHERS = 5000
CLUSTERED = 10_000
BUSY = 100  # one of so many
POLLS = 400  # a second, for all workspaces of a process
ENTRY = bytes(400)
IDLE = 20.0  # seconds
SETTLED = 3.0  # for which a server that has opened all workspaces opens no file
CHANGES = 20
FEW = 10


def run(bench: Bench) -> list[Row]:
    """Figures for each idle workspace, as the difference between few and many, and for many watchers."""
    _allow_files()
    return [*_workspaces(bench), *_cluster(bench), *_watchers(bench)]


def _allow_files() -> None:
    """Every watcher is a socket here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _workspaces(bench: Bench) -> list[Row]:
    many = bench.count(WORKSPACES, 20)
    few, full = (_idle(bench, count) for count in (FEW, many))
    more = many - FEW
    memory, files = ((full[at] - few[at]) / more for at in range(2))
    bench.say(
        f"  {many} idle workspaces in one server: {memory / 1e6:.2f} MB and {files:.1f} descriptors each;"
        f" {full[2]:.0f} threads ({FEW}: {few[2]:.0f}) and {full[3]:.1%} of a core in all ({FEW}: {few[3]:.1%})"
    )
    return [
        Row("scale", f"memory of each of {many} idle workspaces", memory / 1e6, "MB", at_most=2.0),
        Row("scale", f"{many} idle workspaces", full[3] * 100, "% of a core", at_most=10.0),
        Row("scale", "descriptors of each", files, ""),
        Row("scale", f"threads of a server with {many}", full[2], "", at_most=few[2] + 2),
    ]


def _idle(bench: Bench, count: int) -> tuple[float, float, float, float]:
    """Memory, descriptors and threads of a server with so many open workspaces, and its share of a core."""
    folder = bench.folder / f"scale-{count}"
    template = bench.folder / "template"
    if not template.exists():
        with holdfast.open(template, actor="bench") as ws:
            ws.tasks.create("bake")
    for number in range(count):
        shutil.copytree(template, folder / "workspaces" / f"w{number}")
    with Served(command(folder, "--port", "0"), folder) as served:
        process = Path(f"/proc/{served.pid}")
        _settle(process, max(0.5, SETTLED * min(1.0, bench.scale)))
        began, cpu = time.perf_counter(), served.cpu
        time.sleep(IDLE * min(1.0, max(0.1, bench.scale)))
        share = (served.cpu - cpu) / (time.perf_counter() - began)
        files, threads = len([*(process / "fd").iterdir()]), len([*(process / "task").iterdir()])
        found = served.memory, files, threads, share
    shutil.rmtree(folder)
    return found


def _settle(process: Path, pause: float) -> None:
    """Wait until the server has opened all of its workspaces: it opens no more files for a while."""
    before = -1
    while before != (before := len([*(process / "fd").iterdir()])):
        time.sleep(pause)


def _cluster(bench: Bench) -> list[Row]:
    """The servers of a cluster with many workspaces, each with an entry and a listener."""
    count = bench.count(CLUSTERED, 100)
    servers, logs = NatsCluster(), list[JetStreamLog]()
    try:
        logs += [JetStreamLog(f"{servers.url}?sync=always", f"w{number}", create=True) for number in range(count)]
        ends = [START] * count

        def fill(thread: int) -> None:
            for number in range(thread, count, 32):
                log = logs[number]
                log.enroll(Signal())
                Patience(60).outlast(log.head)
                ends[number] = log.append(ENTRY, START)

        in_threads(32, fill)
        seconds = IDLE * min(1.0, max(0.1, bench.scale))
        busy = _share(servers, logs, ends, seconds, max(1, count // BUSY))
        idle = _share(servers, logs, ends, seconds, 0)  # last: servers tidy up for a while after many were made
        memory = max(_memory(server.process.pid) for server in servers.servers if server.process is not None)
    finally:
        for log in logs:
            log.close()
        servers.remove()
    bench.say(
        f"  {count} workspaces in a cluster of three: the busiest server takes {idle:.1%} of a core when all are idle,"
        f" {busy:.1%} when one of {BUSY} gets an entry a second; the largest has {memory / 1e6:.0f} MB"
    )
    return [
        Row("scale", f"{count} idle workspaces in a cluster, a server", idle * 100, "% of a core", at_most=5.0),
        Row("scale", f"the same, 1 of {BUSY} written to each second", busy * 100, "% of a core"),
        Row("scale", "memory of the largest server", memory / 1e6, "MB", at_most=200.0),
    ]


def _share(servers: NatsCluster, logs: list[JetStreamLog], ends: list[int], seconds: float, busy: int) -> float:
    """The share of a core that the busiest server takes while a node polls its logs and writes to some of them."""
    pids = [server.process.pid for server in servers.servers if server.process is not None]
    before, began, writes, number = [_cpu(pid) for pid in pids], time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - began) < seconds:
        while number < passed * POLLS:
            logs[number % len(logs)].tail(ends[number % len(logs)])
            number += 1
        while writes < passed * busy:
            which = writes % busy
            ends[which] = logs[which].append(ENTRY, ends[which])
            writes += 1
        time.sleep(0.005)
    return max(_cpu(pid) - spent for pid, spent in zip(pids, before, strict=True)) / (time.perf_counter() - began)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _watchers(bench: Bench) -> list[Row]:
    clients, changes = bench.count(WATCHERS, 10), bench.count(CHANGES, 5)
    folder = bench.folder / "watched"
    with Served(command(folder, "--port", "0", "--max-watchers", str(clients + 1)), folder) as served:
        took = trial(served, "watched", clients, 0, changes)
        p50, p99 = percentile(took, 50), percentile(took, 99)
        bench.say(f"  {clients} watchers of one workspace: median {p50:.0f} ms, p99 {p99:.0f} ms, none missing")
    return [Row("scale", f"{clients} watchers, median", p50, "ms"), Row("scale", f"{clients} watchers, p99", p99, "ms")]
