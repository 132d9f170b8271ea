"""Break real engines under three node processes of eight callers, and say whether anything was lost or doubled.

    make faults                 some of each fault (about three minutes)
    LONG=1 make faults          as many as a release needs
    make faults ARGS=postgres   one engine: postgres or jetstream

After each fault it waits until every node has been acknowledged a write again, and prints how long that took: a return
that is slower than the bar is counted. At the end the callers stop, and the ledgers of acknowledgements are compared
with the replicas, which must be equal. No write may end in OutcomeUnknown if every outage was shorter than the patience
of a write.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from holdfast.errors import OutcomeUnknown
from holdfast.replication.log import PATIENCE
from tests.amounts import amount
from tests.faults.proxy import Proxies
from tests.worlds.nats import NatsCluster, NatsServer, free_ports
from tests.worlds.postgres import USER, PostgresServer

NODES, CALLERS = 3, 8
PAUSE = 5.0  # seconds of a server that stands still, or of a partition
_BACK = 60.0  # seconds for which the return of writes is waited for
_CALM = 1.0  # seconds between two faults
BARS = {"jetstream": 10.0, "postgres": 4.0}  # seconds until all nodes write again
WORKSPACE = "faults"


class Node:
    """A node process."""

    def __init__(self, url: str, folder: Path, number: int) -> None:
        command = [sys.executable, "-m", "tests.faults.node", url, str(folder / f"node-{number}"), f"n{number}"]
        self._process = subprocess.Popen(
            [*command, str(CALLERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, what: str) -> object:
        """Its answer to a word."""
        self.send(what)
        return self.answer()

    def send(self, what: str) -> None:
        """Send a word."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def answer(self) -> object:
        """What it answers."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"a node ended with {self._process.wait()}"
        return json.loads(line)

    def count(self) -> tuple[int, float]:
        """How many writes were acknowledged, and when the last of them was."""
        found = self.ask("count")
        assert isinstance(found, list)
        return int(found[0]), float(found[1])

    def end(self) -> None:
        """End it by its process id."""
        self._process.kill()
        self._process.communicate()


class Trial:
    """One engine, its nodes, and what has been done to it."""

    def __init__(self, engine: str, urls: list[str], folder: Path, bar: float = _BACK) -> None:
        self.engine = engine
        self.bar = bar  # seconds after a fault in which all nodes should write again
        self.faults = self.slow = 0
        self.slowest: dict[str, tuple[float, float]] = {}  # seconds after the fault was over, and after it began
        self.nodes = [Node(url, folder, number) for number, url in enumerate(urls)]

    def strike(self, what: str, times: int, fault: Callable[[], object]) -> None:
        """Let a fault happen so many times, and wait after each until every node writes again."""
        for _ in range(times):
            self._wait_for_writes()
            began = time.time()
            fault()
            healed = time.time()
            back = self._wait_for_writes()
            took = max(back - healed, 0.0)
            self.faults += 1
            self.slow += took > self.bar
            longest, whole = self.slowest.get(what, (0.0, 0.0))
            self.slowest[what] = max(longest, took), max(whole, back - began)
            lasted = f"{healed - began:.1f} s"
            print(f"  {self.engine}: {what}, {lasted}; all nodes write {took:.1f} s later", flush=True)
            time.sleep(_CALM)

    def _wait_for_writes(self) -> float:
        """When the last node was acknowledged a write that it had not been before."""
        before = [node.count()[0] for node in self.nodes]
        deadline, latest = time.time() + _BACK, 0.0
        for node, count in zip(self.nodes, before, strict=True):
            while (found := node.count())[0] <= count:
                assert time.time() < deadline, "writes do not come back"
                time.sleep(0.02)
            latest = max(latest, found[1])
        return latest

    def verdict(self) -> bool:
        """Stop the callers, compare, and print."""
        for node in self.nodes:
            node.send("stop")
        for node in self.nodes:
            assert node.answer() == "stopped"
        reports = [node.ask("report") for node in self.nodes]
        found = [report for report in reports if isinstance(report, dict)]
        acknowledged = sum(report["acknowledged"] for report in found)
        shared = {report["shared"] for report in found}
        wrong = [text for report in found for text in report["wrong"]] + [
            text for report in found for text in report["problems"]
        ]
        equal = len({report["fingerprint"] for report in found}) == 1
        errors: dict[str, int] = {}
        for report in found:
            for code, count in report["errors"].items():
                errors[code] = errors.get(code, 0) + count
        returns = [
            f"{what} {took:.1f} s ({whole:.1f} s after it began)" for what, (took, whole) in self.slowest.items()
        ]
        patient = all(whole < PATIENCE for _, whole in self.slowest.values())
        unknown = errors.get(OutcomeUnknown.code, 0) if patient else 0
        good = shared == {acknowledged} and not wrong and equal and not unknown and not self.slow
        lost, doubled = max(0, acknowledged - min(shared)), max(0, max(shared) - acknowledged)
        print(
            f"{self.engine}: {self.faults} faults, {acknowledged:,} writes acknowledged, {lost} lost,"
            f" {doubled} doubled, replicas {'equal' if equal else 'DIFFER'}, check {wrong or 'ok'};"
            f" errors that were retried: {errors or 'none'}; slowest return:"
            f" {', '.join(returns)}; slower than {self.bar:.0f} s: {self.slow}",
            flush=True,
        )
        return good

    def end(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.end()


def jetstream(folder: Path) -> bool:
    """Kill, pause, restart and cut off the servers of a cluster."""
    proxies = Proxies()
    own = free_ports(NODES)
    lines = {(a, b): proxies.add(own[b]) for a in range(NODES) for b in range(NODES) if a != b}
    routes = [[lines[a, b].port for b in range(NODES) if a != b] for a in range(NODES)]
    cluster = NatsCluster(NODES, ports=own, routes=routes)
    doors = [[proxies.add(server.port) for server in cluster.servers] for _ in range(NODES)]
    all_doors = [door for mine in doors for door in mine]
    urls = [f"nats://{','.join(f'127.0.0.1:{door.port}' for door in mine)}" for mine in doors]
    urls = [f"{url}/{WORKSPACE}?sync=always&stream={WORKSPACE}" for url in urls]
    trial = Trial("jetstream", urls, folder, BARS["jetstream"])

    def leader() -> NatsServer:
        for _ in range(int(_BACK / 0.05)):
            if (found := cluster.leader_of(WORKSPACE)) is not None and found.process is not None:
                return found
            time.sleep(0.05)
        raise AssertionError("the stream has no leader")

    def kill() -> None:
        leader().stop(signal.SIGKILL)
        cluster.start()

    def pause() -> None:
        found = leader()
        found.send(signal.SIGSTOP)
        time.sleep(PAUSE)
        found.send(signal.SIGCONT)

    def restart() -> None:
        for server in cluster.servers:
            server.stop(signal.SIGTERM)
        cluster.start()

    def leader_alone() -> None:
        number = cluster.servers.index(leader())
        proxies.part([line for pair, line in lines.items() if number in pair], PAUSE)

    try:
        trial.strike("kill -9 of the leader", amount(2, 20), kill)
        trial.strike("the leader paused", amount(1, 10), pause)
        trial.strike("all servers restarted", amount(1, 5), restart)
        trial.strike("all connections dropped", amount(2, 20), lambda: proxies.drop(all_doors))
        trial.strike("a node alone", amount(1, 5), lambda: proxies.part(doors[0], PAUSE))
        trial.strike("the leader alone", amount(1, 5), leader_alone)
        trial.strike("all nodes cut from the cluster", amount(1, 5), lambda: proxies.part(all_doors, PAUSE))
        return trial.verdict()
    finally:
        trial.end()
        cluster.remove()
        proxies.close()


def postgres(folder: Path) -> bool:
    """Kill the postmaster, drop its connections, and cut nodes off from it."""
    server, proxies = PostgresServer(), Proxies()
    doors = [proxies.add(server.socket) for _ in range(NODES)]
    urls = [f"postgresql://{USER}@127.0.0.1:{door.port}/postgres?workspace={WORKSPACE}" for door in doors]
    trial = Trial("postgres", urls, folder, BARS["postgres"])

    def kill() -> None:
        server.stop(signal.SIGKILL)
        server.start()

    def drop() -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    try:
        trial.strike("kill -9 of the postmaster", amount(2, 20), kill)
        trial.strike("all connections dropped", amount(2, 20), drop)
        trial.strike("a node alone", amount(1, 5), lambda: proxies.part(doors[:1], PAUSE))
        trial.strike("all nodes cut from the server", amount(1, 5), lambda: proxies.part(doors, PAUSE))
        return trial.verdict()
    finally:
        trial.end()
        server.remove()
        proxies.close()


TRIALS = {"jetstream": jetstream, "postgres": postgres}


def main(names: list[str]) -> int:
    """Exit code 0 if nothing was lost, doubled or different."""
    good = True
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {NODES} node processes x {CALLERS} callers")
    for name in names or TRIALS:
        with tempfile.TemporaryDirectory(prefix=f"hf-faults-{name}-") as folder:
            good &= TRIALS[name](Path(folder))
    print("verdict:", "nothing lost, nothing doubled, replicas equal, writes back in time" if good else "BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
