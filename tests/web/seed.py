"""A workspace to look at: 12 agents, a person and 400 tasks, in a story of three days.

The story is the same each time and ends now; only the ids differ. `make screenshots` and the tests of the page use it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.testing import ManualClock

AGENTS: Final = ("ada", "ben", "cyd", "dov", "eli", "fay", "gus", "hana", "ira", "jun", "kit", "lou")
PERSON: Final = "maya"
TAGS: Final = ("backend", "core", "docs", "cli", "net", "export", "import", "ci", "infra", "area/web")
VERBS: Final = ("count", "split", "name", "log", "retry", "measure", "check", "sort", "document", "fold")
THINGS: Final = (
    "the tokens of a file",
    "the settings page",
    "a refused connection",
    "the slow commits",
    "the old rows",
)
HALF_HOUR: Final = 1800.0
GONE: Final = 181  # minutes before now at which gus was seen last
LEXER: Final = "Move the lexer out of `src/parser/` into a package of its own."
LEXER_FIRST: Final = f"{LEXER}\nThe parser may see `tokens()` and keywords."
LEXER_NOW: Final = (
    f"{LEXER}\nThe parser may only see `tokens()`, nothing behind it.\n\n"
    "Done when: no import of `parser` in `src/lexer/`, the corpus passes, the old names warn once."
)
ARTIFACT: Final = {"path": "grammar.json", "producer": "parse", "checksum": "4be1c07"}
CLOSED: Final = 225
NIGHT: Final = 840  # minutes
STARTED: Final = 3 * 86400.0  # seconds before now

# What the release is made of: key, title, priority, tags, and the keys it waits for.
RELEASE: Final = (
    ("lexer", "move the lexer", 2, ("backend",), ()),
    ("preview", "deploy the preview", 0, ("ci", "infra"), ()),
    ("parser", "write the parser", 1, ("backend",), ()),
    ("fence", "name the token of a failed fence in the error", 0, ("core",), ()),
    ("symbols", "cache the symbol table", 2, ("core",), ()),
    ("port", "listen on the port of the test machine", 2, ("net",), ()),
    (
        "settings",
        "read the settings from the environment, the file and the command line",
        2,
        ("import", "area/web"),
        (),
    ),
    ("page", "split the settings page", 2, ("area/web",), ()),
    ("lexer-test", "test the lexer", 2, ("backend",), ("lexer",)),
    ("smoke", "smoke test the preview", 2, ("ci",), ("preview",)),
    ("corpus", "test the parser on the corpus", 1, ("backend",), ("parser",)),
    ("fold", "fold constants before code generation", 3, ("core",), ()),
    ("http", "port the HTTP tests to the new fixture", 2, ("net",), ()),
    ("old", "import the old data", 2, ("import",), ("settings",)),
    ("theme", "theme of the settings", 3, ("area/web",), ("page",)),
    ("front", "measure the front end", 2, ("core",), ("lexer-test",)),
    ("load", "load test the preview", 2, ("ci",), ("smoke",)),
    ("code", "generate code from the tree", 1, ("core",), ("corpus", "fold", "fence")),
    ("retry", "retry over HTTP/2", 2, ("net",), ("http",)),
    ("rows", "check the imported rows", 2, ("import",), ("old",)),
    ("loop", "optimise the inner loop", 2, ("core",), ("front",)),
    ("link", "link the generated code", 1, ("core",), ("code", "load")),
    ("freeze", "freeze the wire format", 1, ("net",), ("retry", "rows", "port")),
    ("end", "run the corpus end to end", 1, ("backend",), ("link", "loop", "freeze")),
    ("sign", "sign the release", 2, ("ci",), ("end",)),
    ("manual", "write the manual of the flags", 2, ("docs",), ("theme",)),
    ("announce", "announce it", 3, ("docs",), ("manual", "sign")),
)


# Minutes before now at which an agent has finished what lies behind it, and who holds what: since, and minutes left.
BUSY_UNTIL: Final = dict(
    zip(AGENTS, (47, 9, 42, 31, 74, 46, 190, 146, 141, 9, 33, 61), strict=True),
)
SOON: Final = 1.6  # minutes that are left of the claim of dov where the story is to be looked at
HELD: Final = (
    ("hana", "page", 140, 25),
    ("eli", "port", 73, 30),
    ("fay", "http", 44, 21),
    ("kit", "symbols", 31, 29),
    ("dov", "exporter", 29, 30),
    ("ada", "lexer", 20, 12),
    ("lou", "manual-flags", 11, 19),
    ("jun", "fold", 6, 24),
    ("ben", "corpus-size", 2, 28),
)


class Story:
    """The workspace, and what is to happen in it: each step is noted with its time, then they run in order."""

    def __init__(self, folder: Path, tasks: int, hurry: bool) -> None:
        self._hurry = hurry
        self._clock = ManualClock()
        self._clock.jump((SystemClock().wall() - self._clock.wall()) / 1e6 - STARTED)
        self._chance = random.Random(24)
        self._tasks = tasks
        self._steps: list[tuple[float, int, Callable[[], object]]] = []
        self.ws: Any = holdfast.open(folder, actor=PERSON, clock=self._clock)
        self.ids: dict[str, str] = {}

    def by(self, name: str) -> Any:
        return self.ws.using(actor=name)

    def at(self, minutes: float, step: Callable[[], object]) -> None:
        """Note a step so many minutes before the end."""
        self._steps.append((-minutes, len(self._steps), step))

    def tell(self) -> None:
        for name in AGENTS:
            self.by(name).agents.register(name, program="coder", can=["code"])
        self.by(PERSON).agents.register(PERSON, role="person")
        self._plan()
        for part in (self._past, self._mail, self._today, self._lexer):
            part()
        self.at(90, self._state)
        self.at(183, self._failed_cycle)
        self.at(34, self._cycles)
        now = -STARTED / 60
        for minutes, _, step in sorted(self._steps):
            self._clock.advance(60 * (minutes - now))
            now = minutes
            step()
        self._clock.advance(-60 * now)

    def _plan(self) -> None:
        create = self.ws.tasks.create
        release = self.ids["release"] = create("release 2.0", type="epic", priority=1, tags=["epic"]).id
        for key, title, priority, tags, _ in RELEASE:
            body = LEXER_FIRST if key == "lexer" else f"Part of the **release**. See `{key}` in the plan."
            self.ids[key] = create(title, body, priority=priority, parent_id=release, tags=tags).id
        for key, *_, needs in RELEASE:
            for need in needs:
                self.ws.tasks.depend(self.ids[key], self.ids[need])
        title = "make the exporter refuse a file whose third column is a date in the local calendar, and say which row"
        self.ids["exporter"] = create(title, priority=1, tags=["export"]).id
        title = "make the importer refuse a file whose third column is a date in the local calendar"
        self.ids["importer"] = create(title, tags=["import"], type="bug").id
        self.ids["flag"] = create("rename the flag --all to --every", priority=3, tags=["cli"]).id
        self.ids["manual-flags"] = create("write the manual of the new flags", priority=2, tags=["docs"]).id
        self.ids["corpus-size"] = create("count the files of the corpus", priority=2, tags=["backend"]).id
        second = self.ids["second"] = create("remove the second lexer", priority=2, tags=["backend"]).id
        self.ws.tasks.depend(self.ids["lexer"], second)
        self._fill()

    def _fill(self) -> None:
        """The other open tasks: a few that are ready, and chains behind them."""
        room = self._tasks - CLOSED - len(self.ids) - 1  # one is made below the lexer
        heads = max(1, room // 5)
        made: list[str] = []
        for number in range(room):
            tags = self._chance.sample(TAGS, self._chance.choice((1, 1, 2)))
            kind = self._chance.choice(("task", "task", "task", "bug", "chore"))
            title = f"{VERBS[number % len(VERBS)]} {THINGS[number // 3 % len(THINGS)]}, part {number + 1}"
            made.append(
                self.ws.tasks.create(title, type=kind, priority=self._chance.choice((1, 2, 2, 3)), tags=tags).id
            )
            if number >= heads:
                self.ws.tasks.depend(made[-1], made[number - heads])
                if number % 7 == 0 and number > heads:
                    self.ws.tasks.depend(made[-1], made[number - heads - 1])

    def _past(self) -> None:
        """The closed tasks: each agent works through some, one after the other, until it takes up what it has today.

        After each sixth one comes a night.
        """
        for number, (name, end) in enumerate(BUSY_UNTIL.items()):
            for done in range(CLOSED // len(AGENTS) + (number < CLOSED % len(AGENTS))):
                start = end + self._chance.choice((14, 22, 35, 48, 61))
                self._close(name, start, end)
                end = start + self._chance.choice((1, 3, 6, 11, 40)) + (NIGHT if done % 6 == 5 else 0)

    def _close(self, name: str, start: float, end: float) -> None:
        who, number = self.by(name), self._chance.randrange(1000)
        title = f"{VERBS[number % len(VERBS)]} {THINGS[number % len(THINGS)]}"
        priority, tags = self._chance.choice((1, 2, 2, 3)), [self._chance.choice(TAGS)]
        made: list[str] = []

        def begin() -> None:
            made.append(who.tasks.create(title, priority=priority, tags=tags).id)
            who.tasks.claim(made[0], ttl=2 * HALF_HOUR + 600)

        self.at(start, begin)
        self.at(end, lambda: who.tasks.complete(made[0], summary="done"))

    def _state(self) -> None:
        ws = self.ws
        for run, count in (("run-5", 35), ("run-6", 38), ("run-7", 36)):
            ws.transact(lambda tx, run=run, count=count: [tx.cells.set(run, f"part/{n:02}", n) for n in range(count)])
        ws.cells.set("run-7", "port", 9191)
        steps: list[dict[str, Any]] = [{"name": "lex", "ok": True}, {"name": "parse", "ok": False, "error": "keywords"}]
        for number, name in enumerate(("ada", "ben", "ada", "ben")):
            build = {"commit": f"4be1c0{number}", "target": "linux-x86_64", "steps": steps, "seconds": 41.2}
            self.by(name).cells.set("run-7", "build", build)
        done = [{"name": "lex", "ok": True}, {"name": "parse", "ok": True}, {"name": "fold", "ok": None}]
        build = {"commit": "a09f3d2", "target": "linux-x86_64", "steps": done, "seconds": 38.7}
        self.by("fay").cells.cas("run-7", "build", 4, build | {"seconds": 39.1})
        self.by("ada").cells.set("run-7", "build", build)
        trail = ws.trails.create("release 2", state="active").id
        for name, kind, value in (
            ("config", "context", {"flags": ["-O2"]}),
            ("grammar.json", "artifact", ARTIFACT),
        ):
            ws.stashes.create(name, kind, value, trail=trail)
        ws.stashes.create("builds", "counter", trail=trail)
        ws.stashes.increment(f"{trail}/builds", 58)
        ws.stashes.create("motd", "context", {"text": "be kind"})

    def _today(self) -> None:
        ids, gus, lost = self.ids, self.by("gus"), []
        self.at(185, lambda: gus.tasks.claim(ids["page"], ttl=HALF_HOUR))
        self.at(184, lambda: gus.locks.acquire("deploy"))
        self.at(139, lambda: lost.append(self.by("ira").tasks.claim(ids["symbols"], ttl=100 * 60)))
        for name, key, minutes, left in HELD:
            self._hold(name, key, minutes, SOON if self._hurry and name == "dov" else left)
        self.at(72, lambda: self.by("eli").tasks.park(ids["port"]))
        for name, key, minutes in (
            ("lou", "flag", 58),
            ("cyd", "importer", 40),
            ("ada", "parser", 44),
            ("cyd", "preview", 22),
        ):
            self.at(minutes, partial(self.by(name).tasks.claim, ids[key], ttl=2 * HALF_HOUR))
        self.at(41, lambda: self._finish("lou", "flag", "one file, 3 lines"))
        self.at(26, lambda: self._stop("cyd", "importer", "which calendar is meant, and is there a sample?"))
        self.at(21, lambda: self._finish("ada", "parser", "it parses all of corpus/, 412 tests pass"))
        self.at(
            7, lambda: self._stop("cyd", "preview", "no access to the registry: the token of ci-bot ended yesterday")
        )
        self.at(4, lambda: self._late(lost[0]))
        self.at(3, lambda: self.by(PERSON).tasks.note(ids["lexer"], "Keep the **old** names until the release."))
        self.at(18, self._locks)

    def _lexer(self) -> None:
        """What happened to the task that is photographed."""
        ids, tasks = self.ids, self.ws.tasks
        kit = self.by("kit").tasks
        self.at(133, lambda: kit.claim(ids["second"]))
        self.at(131, lambda: kit.complete(ids["second"], summary="nobody called it"))
        self.at(118, lambda: self.by("hana").tasks.note(ids["lexer"], "The corpus needs `tokens()` to be lazy."))
        self.at(82, lambda: self.by("ira").tasks.claim(ids["lexer"], ttl=HALF_HOUR))
        self.at(65, lambda: tasks.update(ids["lexer"], priority=1))
        self.at(65, lambda: tasks.add_tags(ids["lexer"], ["parser"]))
        self.at(64, lambda: tasks.update(ids["lexer"], body=LEXER_NOW))
        begin = ["jun"], "I begin with the lexer", "It takes an hour."
        self.at(18, lambda: self.by("ada").mail.send(*begin, task=ids["lexer"]))
        self.at(16, lambda: self.by("ada").tasks.create("rename the callers of tokens()", parent_id=ids["lexer"]))
        note = "The table of keywords is read by two callers. I keep a **shim** in `parser/compat.py`, until 2.1."
        self.at(2, lambda: self.by("ada").tasks.note(ids["lexer"], note))

    def _late(self, task: Any) -> None:
        """A write with a claim that was lost."""
        with suppress(errors.Fenced):
            self.by("ira").tasks.complete(task.id, token=task.token)

    def _hold(self, name: str, key: str, minutes: float, left: float) -> None:
        """A claim that still runs, with so many minutes left: its holder was seen a moment ago, unless it ends soon."""
        self.at(minutes, lambda: self.by(name).tasks.claim(self.ids[key], ttl=60 * (minutes + left)))
        if key != "port" and left > 2:
            self.at(len(name) / 30, lambda: self.by(name).tasks.heartbeat(self.ids[key], ttl=60 * left))

    def _finish(self, name: str, key: str, summary: str) -> None:
        self.by(name).tasks.complete(self.ids[key], summary=summary, review=True)

    def _stop(self, name: str, key: str, reason: str) -> None:
        self.by(name).tasks.block(self.ids[key], reason=reason)

    def _mail(self) -> None:
        for minutes, sender, subject, body in (
            (660, "lou", "nightly bench: 3 % slower", ""),
            (300, PERSON, "Backups go to the second disk from now on", ""),
            (181, "gus", "The half that works", "The form is split, the saving is not."),
            (120, "ben", "I take the crash on an empty file", ""),
            (110, "ada", "Corpus is green again", "412 of 412"),
        ):
            self.at(minutes, partial(self._tell_all, sender, subject, body, minutes > GONE))
        self.at(38, self._objection)
        self.at(72, self._question)
        body = "Only that file, ten minutes. You hold `src/parser`."
        ask = ["ada"], "May I have src/parser/fold.py first?", body
        self.at(6, lambda: self.by("jun").mail.send(*ask, task=self.ids["lexer"], type="request", ack=True))

    def _tell_all(self, sender: str, subject: str, body: str, gus: bool) -> None:
        """A message to everybody, which everybody reads; `gus`: he is still there."""
        id = self.by(sender).mail.send(["*"], subject, body).id
        for name in (*AGENTS, PERSON):
            if name != sender and (gus or name != "gus"):
                self.by(name).mail.ack(id)

    def _objection(self) -> None:
        text = "The flag --every is taken in the old CLI", "See `tools/nightly.sh`, line 40."
        self.by("kit").mail.send(["lou"], *text, type="objection")

    def _question(self) -> None:
        ways = "1. take `9191` and tell the others\n2. stop the old proxy; nobody has used it for 12 days"
        text = (
            f"8080 is taken on the test machine, 9090 is the old proxy. I see two ways:\n\n{ways}\n\nI would do **1**."
        )
        asked = self.by("eli").mail.send(
            [PERSON, "cyd"],
            "Which port on the test machine?",
            text,
            task=self.ids["port"],
            type="decision-required",
            priority=1,
            ack=True,
        )
        self.by("cyd").mail.ack(asked.id)
        self.by("cyd").mail.reply(asked.id, "Not 2: the preview still goes through it.")

    def _cycles(self) -> None:
        cycle = self.by("hana").cycles.start(spec="login").cycle_id
        self.by("hana").cycles.start_phase(cycle, "plan")
        self.by("hana").cycles.complete_phase(cycle, "plan", {"steps": 5})
        self.by("kit").cycles.start_phase(cycle, "execute")
        self.by("kit").cycles.add_error(cycle, "execute", "the second factor has no test")

    def _failed_cycle(self) -> None:
        other = self.by("gus").cycles.start(instruction="tidy-docs").cycle_id
        self.by("gus").cycles.start_phase(other, "plan")
        self.by("gus").cycles.fail_phase(other, "plan", "no access")

    def _locks(self) -> None:
        """Locks of claims, and some that run by themselves, for as long as a test may take and longer."""
        for name, key, patterns, shared in (
            ("ada", "lexer", ["src/lexer/**"], False),
            ("ada", "lexer", ["src/parser/**"], False),
            ("hana", "page", ["src/web/settings/*.tsx"], False),
            ("fay", "http", ["tests/http/**"], False),
            ("fay", "http", ["src/web/theme/**"], True),
            ("kit", "symbols", ["src/symbols.py"], False),
            ("hana", "page", ["tools/forms/**"], False),
        ):
            reason = "moving the lexer" if name == "ada" else None
            self.by(name).paths.lock(patterns, task=self.ids[key], shared=shared, reason=reason)
        self.by("dov").paths.lock(["docs/index.md"], ttl=18 * 60 + (100 if self._hurry else 1800))
        self.by("ben").locks.acquire("corpus", ttl=18 * 60 + (600 if self._hurry else 1800))
        lease = self.by("kit").leases.create(ttl=18 * 60 + 900)
        self.by("kit").cells.set("run-7", "worker/kit", "alive", lease=lease.id)


def seed(folder: Path, tasks: int = 400, hurry: bool = False) -> dict[str, str]:
    """Tell the story into a new workspace; returns the ids of its tasks by their keys.

    `hurry`: a claim and two locks end within minutes, as in the design; tests that take as long would see them end.
    """
    story = Story(folder, tasks, hurry)
    try:
        story.tell()
    finally:
        story.ws.close()
    return story.ids
