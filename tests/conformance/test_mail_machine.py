"""The state machine of mail against the plain model: agents send, answer, step, close and look, in any order.

Every answer and refusal is compared. After each step the unread messages of all agents are counted three times, by the
workspace, by the model and by a query that walks over all deliveries; who is known and the revision are compared too,
and now and then every message with its history, and `ws.check()`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, run_state_machine_as_test
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.types import as_time
from holdfast.types.agents import Message
from holdfast.workspace import Workspace
from tests.amounts import amount, chance
from tests.conformance.counting import Rules
from tests.conformance.machine import Stop
from tests.conformance.mail_model import STEPS as WAYS
from tests.conformance.mail_model import Letter, MailModel
from tests.worlds.kinds import FileWorld, MemoryWorld, World

STEPS = amount(2_500, 20_000)
LEAST = amount(50, 100)  # times that every rule fires
DONE_LEAST = amount(15, 30)  # times that every operation is not refused
FILE_STEPS = 500
EXAMPLES = 10  # between two looks at the counts
MOST_LOOKS = 60
CHECK_EVERY = 20  # steps

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=80,
    deadline=None,
    database=None,
    derandomize=False,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

_rules = Rules()
RULES, FIRED, step = _rules.names, _rules.fired, _rules.step
DONE: Counter[str] = Counter()  # how often each operation was not refused

AGENTS = ("ann", "bob", "cy", "dee", "max")
WORDS = ("parser", "release", "lunch", "tests")
FACTS = ("id", "agent", "sender", "current_status", "requested_status")
RECOUNT = "SELECT count(*) FROM deliveries NOT INDEXED WHERE agent = ? AND status = 'unread'"

which = st.integers(0, 2**16)  # picks one of what there is
agent = st.sampled_from(AGENTS)
word = st.sampled_from(WORDS)
note = st.sampled_from((None, "a note"))
kind = st.sampled_from(("notify", "request", "decision-required", "objection", "handoff-ready"))


def told(call: Callable[[], Any]) -> Any:
    """An answer or a refusal in a form that can be compared; who is unknown is warned about elsewhere."""
    try:
        answer = call()
        if isinstance(answer, list):
            return [replace(each, warnings=()) if isinstance(each, Message) else each for each in answer]
        return replace(answer, warnings=()) if isinstance(answer, Message) else answer
    except Stop:
        return "stopped"
    except HoldfastError as error:
        ways = sorted(error.details.get("valid_transitions", ()))
        return type(error), {name: error.details.get(name) for name in FACTS}, ways


class MailMachine(RuleBasedStateMachine):
    """One workspace, through two handles, and one model; subclasses say of which kind."""

    make_world: ClassVar[Callable[[], World]]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.handles: list[Workspace] = [self.world.open("ann"), self.world.open("bob")]
        self.model = MailModel(self.now)
        self.steps = 0

    def teardown(self) -> None:
        try:
            self.all_agrees()
        finally:
            self.world.close()

    def now(self) -> datetime:
        return as_time(self.world.clock.wall())

    @property
    def ws(self) -> Workspace:
        """The handle whose turn it is."""
        return self.handles[self.steps % 2]

    def call(self, op: str, actor: str, real: Callable[[Workspace], Any], model: Callable[[MailModel], Any]) -> None:
        """One write on both sides."""

        def make() -> Any:
            answer = real(self.ws.using(actor=actor))
            if isinstance(answer, Message):
                self.model.next_ids = [answer.id] if answer.version == 1 else []
            return answer

        heard = told(make)
        said = told(lambda: self.model.transact(actor, lambda: model(self.model)))
        assert heard == said, f"{op} by {actor}"
        DONE[op] += not isinstance(heard, tuple)

    # --- choosing ----------------------------------------------------------------------------------------------------

    def some(self, which: int, fits: Callable[[Letter], bool] = lambda _: True) -> str:
        """The id of a message that fits, if there is one; now and then of any, or of none."""
        letters = self.model.state.letters
        if which % 40 == 39 or not letters:
            return "no such message"
        fitting = [letter.id for letter in letters if fits(letter)]
        choice = fitting if fitting and which % 5 < 4 else [letter.id for letter in letters]
        return choice[which // 40 % len(choice)]

    def receiver(self, id: str, which: int, otherwise: str, sources: set[str]) -> str:
        """One with whom the message stands so, if there is one; else, and now and then, any receiver or anybody."""
        found = next((letter for letter in self.model.state.letters if letter.id == id), None)
        if found is None or which // 11 % 10 == 9:
            return otherwise
        fitting = sorted(name for name, status in found.status.items() if status in sources)
        choice = fitting if fitting and which // 11 % 10 < 6 else sorted(found.status)
        return choice[which // 7 % len(choice)]

    # --- sending -----------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Somebody is there."""
        for name, role in (("max", "maintainer"), ("dee", "observer")):
            self.enter.__wrapped__(self, name, name, role)

    @step(to=agent, sender=agent, word=word, type=kind, priority=st.integers(0, 4), ack=st.booleans())
    def send(self, to: str, sender: str, word: str, type: Any, priority: int, ack: bool) -> None:
        given: dict[str, Any] = {"type": type, "priority": priority, "ack": ack}
        self.call(
            "send",
            sender,
            lambda ws: ws.mail.send(to, f"the {word}", f"{word} and more", **given),
            lambda model: model.send(to, f"the {word}", f"{word} and more", sender, **given),
        )

    @step(
        to=st.lists(agent, min_size=2, max_size=4), sender=agent, actor=agent, thread=st.sampled_from(("talk", "plan"))
    )
    def send_to_several(self, to: list[str], sender: str, actor: str, thread: str) -> None:
        """By somebody in the name of another, into a thread that has a name."""
        self.call(
            "send to several",
            actor,
            lambda ws: ws.mail.send(to, thread, "to you all", thread, sender=sender),
            lambda model: model.send(to, thread, "to you all", sender, thread),
        )

    @step(sender=agent, word=word)
    def send_to_all(self, sender: str, word: str) -> None:
        self.call(
            "send to all",
            sender,
            lambda ws: ws.mail.send("*", word),
            lambda model: model.send("*", word, "", sender),
        )

    @step(which=which, sender=agent, word=word, type=kind)
    def reply(self, which: int, sender: str, word: str, type: Any) -> None:
        id = self.some(which)
        self.call(
            "reply",
            sender,
            lambda ws: ws.mail.reply(id, word, type),
            lambda model: model.reply(id, word, sender, type),
        )

    @step(which=which, actor=agent)
    def reply_to_ones_own(self, which: int, actor: str) -> None:
        id = self.some(which)
        sender = next((letter.sender for letter in self.model.state.letters if letter.id == id), "ann")
        self.call(
            "reply to one's own",
            actor,
            lambda ws: ws.mail.reply(id, "one more thing", sender=sender),
            lambda model: model.reply(id, "one more thing", sender),
        )

    # --- steps -------------------------------------------------------------------------------------------------------

    def take(self, op: str, which: int, agent: str, actor: str, note: str | None) -> None:
        sources = WAYS[op][0]
        id = self.some(which, lambda letter: not sources.isdisjoint(letter.status.values()))
        agent = self.receiver(id, which, agent, sources)
        self.call(
            op,
            actor if which % 3 else agent,
            lambda ws: (
                ws.mail.block(id, note or "", agent)
                if op == "block"
                else getattr(ws.mail, op)(id, agent if which % 3 else None, note)
            ),
            lambda model: model.step(op, id, agent, note),
        )

    @step(which=which, agent=agent, actor=agent, note=note)
    def ack(self, which: int, agent: str, actor: str, note: str | None) -> None:
        self.take("ack", which, agent, actor, note)

    @step(which=which, agent=agent, actor=agent, note=note)
    def action(self, which: int, agent: str, actor: str, note: str | None) -> None:
        self.take("action", which, agent, actor, note)

    @step(which=which, agent=agent, actor=agent)
    def block(self, which: int, agent: str, actor: str) -> None:
        self.take("block", which, agent, actor, "waits for a key")

    @step(which=which, agent=agent, actor=agent, note=note)
    def close(self, which: int, agent: str, actor: str, note: str | None) -> None:
        id = self.some(which, lambda letter: letter.closed_at is None)
        sender = next((letter.sender for letter in self.model.state.letters if letter.id == id), agent)
        closer = sender if which % 3 == 0 else agent
        self.call(
            "close", actor, lambda ws: ws.mail.close(id, closer, note), lambda model: model.close(id, closer, note)
        )

    @step(which=which, agent=agent, word=word, fails=st.booleans())
    def settle(self, which: int, agent: str, word: str, fails: bool) -> None:
        """Act on a message, answer it and tell all, in one transaction that may fail at its end."""
        sources = WAYS["action"][0]
        id = self.some(which, lambda letter: not sources.isdisjoint(letter.status.values()))
        agent = self.receiver(id, which, agent, sources)

        def real(tx: Any) -> list[Message]:
            answers = [tx.mail.action(id, agent), tx.mail.reply(id, word), tx.mail.send("*", word)]
            if fails:
                raise Stop
            self.model.next_ids = [answer.id for answer in answers[1:]]
            return answers

        def model() -> list[Message]:
            done = self.model.step("action", id, agent, None)
            answers = [done, self.model.reply(id, word, agent), self.model.send("*", word, "", agent)]
            if fails:
                raise Stop
            return answers

        heard = told(lambda: self.ws.using(actor=agent).transact(real))
        assert heard == told(lambda: self.model.transact(agent, model))
        DONE["settle"] += isinstance(heard, list)

    # --- who is here -------------------------------------------------------------------------------------------------

    @step(name=agent, actor=agent, role=st.sampled_from(("agent", "maintainer", "maintainer", "observer")))
    def enter(self, name: str, actor: str, role: Any) -> None:
        def register(ws: Workspace) -> None:
            assert ws.agents.register(name, role=role).role == role

        self.call("register", actor, register, lambda model: model.register(name, role))

    @step(name=st.sampled_from(AGENTS[:-1]))
    def forget(self, name: str) -> None:
        """By another: what one's own last write has to say of who forgets itself is nobody's promise."""
        self.call("forget", "max", lambda ws: ws.agents.forget(name), lambda model: model.forget(name))
        self.world.clock.advance(1)

    @step(seconds=st.sampled_from((0.000001, 0.5, 1, 3600)))
    def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    # --- reading -----------------------------------------------------------------------------------------------------

    @step(agent=agent, unread=st.booleans(), closed=st.booleans(), limit=st.sampled_from((1, 3, 50)), own=st.booleans())
    def inbox(self, agent: str, unread: bool, closed: bool, limit: int, own: bool) -> None:
        """All pages; with a message sent between the first and the second, which belongs to neither."""
        ws = self.ws.using(actor=agent if own else "max")
        name = None if own else agent
        expected = self.model.inbox(agent, unread, closed)
        found = page = ws.mail.inbox(name, unread, closed, limit)
        if page.cursor is not None:
            self.send.__wrapped__(self, agent, "bob", "lunch", "notify", 2, False)
        while page.cursor is not None:
            page = ws.mail.inbox(name, unread, closed, limit, page.cursor)
            found = [*found, *page]  # type: ignore[assignment]  # the pages as one list
        assert list(found) == expected

    @step(agent=agent)
    def unread(self, agent: str) -> None:
        assert self.ws.using(actor=agent).mail.unread() == self.model.unread(agent)
        assert list(self.ws.mail.sent(agent, 200)) == self.model.sent(agent)

    @step(which=which, name=st.sampled_from(("talk", "plan", None, None)))
    def thread(self, which: int, name: str | None) -> None:
        id = name or self.some(which)
        assert told(lambda: list(self.ws.mail.thread(id))) == told(lambda: self.model.thread(id))

    @step(which=which)
    def history(self, which: int) -> None:
        id = self.some(which)
        assert told(lambda: self.ws.mail.history(id)) == told(lambda: self.model.letter(id).steps)
        assert told(lambda: self.ws.mail.get(id)) == told(lambda: self.model.letter(id).message())

    @step(word=word, agent=st.none() | agent)
    def search(self, word: str, agent: str | None) -> None:
        expected = self.model.search(word, agent)
        hits = self.ws.mail.search(word, agent, 100)
        assert {hit.message.id for hit in hits} <= expected
        assert len(hits) == min(100, len(expected))

    # --- what must be true after each step ---------------------------------------------------------------------------

    @invariant()
    def unread_counts_are_recounts(self) -> None:
        for name in AGENTS:
            assert self.ws.mail.unread(name) == self.model.unread(name) == self.recount(name), name

    def recount(self, name: str) -> int:
        """How many are unread, by a walk over all rows without an index."""
        (count,) = self.ws._engine.read(lambda snapshot: snapshot.one(RECOUNT, (name,)))
        return int(count)

    @invariant()
    def the_rest_agrees(self) -> None:
        self.steps += 1
        assert self.ws.revision == self.model.state.revision
        assert [found.name for found in self.ws.agents.list()] == self.model.known
        for letter in self.model.state.letters[-3:]:
            assert self.ws.mail.get(letter.id) == letter.message()
        if self.steps % CHECK_EVERY == 0:
            self.all_agrees()

    def all_agrees(self) -> None:
        for letter in self.model.state.letters:
            assert self.ws.mail.get(letter.id) == letter.message()
            assert self.ws.mail.history(letter.id) == letter.steps
        assert self.ws.check().problems == []


def drive(kind: type[World], folder: Path, steps: int, least: int, done: int) -> None:
    """Run machines on fresh workspaces of a kind until there were enough steps and every rule fired often enough."""

    def make_world() -> World:
        return kind(Path(tempfile.mkdtemp(dir=folder)))

    FIRED.clear()
    DONE.clear()
    draws = chance("mail machine")
    for _ in range(MOST_LOOKS):
        machine = type("MailMachine", (MailMachine,), {"make_world": staticmethod(make_world)})
        run_state_machine_as_test(seeded(draws.getrandbits(32))(machine), settings=SETTINGS)
        often = min(FIRED[name] for name in RULES) >= least and min(DONE.values()) >= done
        if FIRED.total() >= steps and often:
            break
    assert FIRED.total() >= steps
    assert min(FIRED[name] for name in RULES) >= least
    assert min(DONE.values()) >= done


@pytest.mark.early
@pytest.mark.timeout(900)
def test_a3_mail_does_what_the_plain_model_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive(MemoryWorld, tmp_path, STEPS, LEAST, DONE_LEAST)
    with capsys.disabled():
        print(f"\nstate machine of mail: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times")
        print("  " + ", ".join(f"{name} {FIRED[name]}" for name in RULES))
        print("  not refused: " + ", ".join(f"{op} {count}" for op, count in sorted(DONE.items())))


def test_a3_mail_in_a_file_does_what_the_plain_model_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive(FileWorld, tmp_path, FILE_STEPS, 1, 1)
    with capsys.disabled():
        print(
            f"\nstate machine of mail in a file: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times"
        )
