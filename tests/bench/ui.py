"""The web page in Chromium: from commit to frame, 1,000 changes a second, streams, first view, graph, timeline.

Latency is from the return of a commit to the frame after the change of the page; both are on this machine's clock. The
heap is measured after a forced collection. Writers are threads of this process, the server is a process of its own. The
bars are times on a clock, for a quiet machine; beside them stands the processor time of server and browser, which
also tells something on a busy one. All of it takes about five minutes.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from playwright.sync_api import Browser, CDPSession, Page

import holdfast
from holdfast.clock import SystemClock
from holdfast.faces.web import FOLDER, digest, files, find
from holdfast.testing import ManualClock
from tests.bench.measure import Bench, Row
from tests.web.browser import MISSING, find_browser, launch
from tests.web.seed import AGENTS, seed
from tests.web.site import Site

NAME = "ui"
SECONDS = 60
MANY = 100_000
EVENTS = 50_000
NODES = 500
STREAMS = 20
# Notes when the event of each revision is first in a frame.
WATCH = """() => {
  window.seen = {};
  const look = () => {
    for (const each of document.querySelectorAll('.event[data-revision]')) {
      seen[each.dataset.revision] ??= performance.timeOrigin + performance.now();
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
LONG = """() => {
  window.longest = 0;
  const note = (list) => { for (const each of list.getEntries()) longest = Math.max(longest, each.duration); };
  new PerformanceObserver(note).observe({ type: 'longtask' });
}"""


def run(bench: Bench) -> list[Row]:
    """All figures of the page."""
    if find_browser() is None:
        bench.say(MISSING)
        return []
    scripts = [path for path in files() if path.suffix == ".js"]
    sent = [find([digest(), *path.relative_to(FOLDER).parts], False) for path in scripts]
    rows = [
        Row(
            NAME,
            "JavaScript as sent, unpacked",
            sum(len(each.content) for each in sent if each) / 1000,
            "KB",
            at_most=200,
        ),
        Row(NAME, "JavaScript as sent, compressed", sum(len(each.packed) for each in sent if each) / 1000, "KB"),
        Row(NAME, "JavaScript as written", sum(path.stat().st_size for path in scripts) / 1000, "KB"),
    ]
    with launch("--enable-precise-memory-info", "--js-flags=--expose-gc") as browser:
        for part in (live, flood, first_view, graph, timeline):
            rows += part(bench, browser)
            bench.say(
                f"  {part.__name__}: " + ", ".join(f"{row.what} {row.figure:.3g} {row.unit}" for row in rows[-2:])
            )
    return rows


def _write(url: str, token: str, rate: float, seconds: float, done: dict[int, float]) -> None:
    """Make tasks at a rate, and note by revision when each commit returned."""
    with holdfast.connect(url, token=token, actor="writer") as ws:
        start = time.time()
        for number in range(round(rate * seconds)):
            time.sleep(max(0, start + number / rate - time.time()))  # keeps the rate, waits for nothing
            revision = ws.tasks.create(f"bench {number}").revision
            done[revision] = time.time() * 1000


def live(bench: Bench, browser: Browser) -> list[Row]:
    """100 changes a second: latency, and what 20 streams beside the page cost the server."""
    site = Site(bench.folder / "live", seed(bench.folder / "live"))
    seconds = bench.count(10, 2)
    try:
        with site.person(browser, "maya") as maya:
            page = maya.open("log")
            page.wait_for_selector(".event")
            page.evaluate(WATCH)
            alone, _ = _changes(site, page, seconds)
            streams = [threading.Thread(target=_listen, args=(site, seconds + 2), daemon=True) for _ in range(STREAMS)]
            for stream in streams:
                stream.start()
            beside, done = _changes(site, page, seconds)
            page.wait_for_timeout(1000)
            seen: dict[str, float] = page.evaluate("() => window.seen")
            for stream in streams:
                stream.join()
    finally:
        site.end()
    late = [seen[str(revision)] - at for revision, at in done.items() if str(revision) in seen]
    return [
        Row(NAME, "commit to frame at 100 changes/s, median", statistics.median(late), "ms", at_most=300),
        Row(NAME, "server at 100 changes/s, writes and page included", alone, "cores"),
        Row(NAME, f"what {STREAMS} streams beside them add", max(0.001, beside - alone), "cores", at_most=0.3),
    ]


def _changes(site: Site, page: Page, seconds: float) -> tuple[float, dict[int, float]]:
    """Make 100 changes a second; returns how many cores the server used, and when each commit returned."""
    done: dict[int, float] = {}
    process = psutil.Process(site.server.process.pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    writer = threading.Thread(target=_write, args=(site.url, site.server.token, 100, seconds, done))
    writer.start()
    while writer.is_alive():
        page.wait_for_timeout(100)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began), done


def _listen(site: Site, seconds: float) -> None:
    with holdfast.connect(site.url, token=site.server.token, actor="x") as ws, ws.watch(timeout=seconds) as watch:
        for _ in watch:
            pass


def flood(bench: Bench, browser: Browser) -> list[Row]:
    """1,000 changes a second for a minute: the longest task of the page, and its heap."""
    site = Site(bench.folder / "flood", seed(bench.folder / "flood"))
    seconds = bench.count(SECONDS, 4)
    try:
        with site.person(browser, "maya") as maya:
            page = maya.open("board")
            page.wait_for_selector(".card")
            session = page.context.new_cdp_session(page)
            writer = threading.Thread(target=_increment, args=(bench.folder / "flood", seconds))
            page.evaluate(LONG)
            writer.start()
            start = time.monotonic()
            early = 0.0
            while writer.is_alive():
                page.wait_for_timeout(200)
                if not early and time.monotonic() - start > seconds / 6:
                    early = _heap(session, page)
            late = _heap(session, page)
            longest: float = page.evaluate("() => window.longest")
    finally:
        site.end()
    return [
        Row(NAME, f"longest task at 1,000 changes/s for {seconds} s", max(1, longest), "ms", at_most=100),
        Row(NAME, "its heap at the end, by that after a sixth", late / early, at_most=1.2),
    ]


def _increment(folder: Path, seconds: float) -> None:
    """Changes at 1,000 a second: notes and counters, ten to a commit."""
    with holdfast.open(folder, actor="writer") as ws:
        task = ws.tasks.create("bench flood").id
        start = time.monotonic()
        for number in range(round(100 * seconds)):
            time.sleep(max(0, start + number / 100 - time.monotonic()))
            ws.transact(lambda tx: _ten(tx, task))


def _ten(tx: Any, task: str) -> None:
    tx.tasks.note(task, "on its way")
    for number in range(9):
        tx.cells.increment("flood", f"cell-{number}")


def _heap(session: CDPSession, page: Page) -> float:
    session.send("HeapProfiler.collectGarbage")
    found: float = page.evaluate("() => performance.memory.usedJSHeapSize")
    return found


def first_view(bench: Bench, browser: Browser) -> list[Row]:
    """The first view of a workspace with many tasks, from the address to the rows."""
    folder = bench.folder / "many"
    count = bench.count(MANY, 100)
    with holdfast.open(folder, actor="ada") as ws:
        for start in range(0, count, 500):
            ws.tasks.bulk("create", tasks=[{"title": f"task {start + n}"} for n in range(min(500, count - start))])
    site = Site(folder)
    rows: list[Row] = []
    try:
        with site.person(browser, "maya") as maya:
            for view, sign in (("fleet", ".count-box"), ("board", ".card")):
                rows += _shown(maya.page, f"{site.url}/ui/-/{view}", sign, f"first view of {count:,} tasks: {view}")
    finally:
        site.end()
    return rows


def _shown(page: Page, address: str, sign: str, what: str) -> list[Row]:
    """How long a view takes from its address to what it shows, and the processor time of server and browser."""
    page.goto(address)
    page.wait_for_selector(sign)  # warm: the server has read the store
    took, used = [], []
    for _ in range(3):
        before, start = _processors(), time.perf_counter()
        page.goto(address)
        page.wait_for_selector(sign)
        took.append(time.perf_counter() - start)
        used.append(_processors() - before)
    return [
        Row(NAME, what, statistics.median(took), "s", at_most=1),
        Row(NAME, "its processor time", max(0.001, statistics.median(used)), "s"),
    ]


def _processors() -> float:
    """Processor time of the children of this process so far: the server and the browser."""
    found = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended meanwhile
            found += sum(child.cpu_times()[:2])
    return found


def graph(bench: Bench, browser: Browser) -> list[Row]:
    """A graph of many nodes: laid out, and drawn."""
    folder = bench.folder / "graph"
    count = bench.count(NODES, 20)
    chance = random.Random(5)
    with holdfast.open(folder, actor="ada") as ws:
        ids = [ws.tasks.create(f"task {number}").id for number in range(count)]
        for number in range(1, count):
            for other in {chance.randrange(max(0, number - 40), number) for _ in range(2)}:
                ws.tasks.depend(ids[number], ids[other])
    site = Site(folder)
    try:
        with site.person(browser, "maya") as maya:
            what = f"graph of {count} nodes, from the address to the picture"
            return _shown(maya.page, f"{site.url}/ui/-/graph/all", ".node", what)
    finally:
        site.end()


def _begin(tx: Any) -> list[str]:
    ids = [tx.tasks.create(f"task of {name}").id for name in AGENTS]
    for id, name in zip(ids, AGENTS, strict=True):
        tx.tasks.claim(id, agent=name, ttl=86_000)
    return ids


def _complete(tx: Any, ids: list[str]) -> None:
    for id, name in zip(ids, AGENTS, strict=True):
        tx.tasks.complete(id, agent=name, review=False)


def timeline(bench: Bench, browser: Browser) -> list[Row]:
    """A day with many events."""
    folder = bench.folder / "timeline"
    count = bench.count(EVENTS, 60) // 3
    clock = ManualClock()
    clock.jump((SystemClock().wall() - clock.wall()) / 1e6 - 86_000)
    with holdfast.open(folder, actor="ada", clock=clock) as ws:
        for _ in range(0, count, len(AGENTS)):
            ids = ws.transact(_begin)
            clock.advance(86_000 * len(AGENTS) / count)
            ws.transact(partial(_complete, ids=ids))
    site = Site(folder)
    try:
        with site.person(browser, "maya") as maya:
            what = f"timeline of a day with {3 * count:,} events"
            return _shown(maya.page, f"{site.url}/ui/-/timeline?span=86400", ".claim-bar", what)
    finally:
        site.end()
