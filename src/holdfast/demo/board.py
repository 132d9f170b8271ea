"""What the event log tells about the demo: agents, items, locks and the latest events, kept up to date by `apply`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from holdfast import Event
from holdfast.demo.agent import STEPS, fenced_of, items_of

OPEN, WORKING, DONE = "open", "working", "done"


class Item:
    """A piece of work as last heard of."""

    def __init__(self) -> None:
        self.state = OPEN
        self.by = ""
        self.tries = 0
        self.step = 0


class Person:
    """An agent as last heard of; `fate` is what the story did to it."""

    def __init__(self) -> None:
        self.item = ""
        self.done = 0
        self.fate = ""


class Board:
    """The present state of one run of the demo."""

    def __init__(self, run: str, agents: Iterable[str], items: Iterable[str]) -> None:
        self._run = run
        self.agents = {name: Person() for name in agents}
        self.items = {name: Item() for name in items}
        self.locks: dict[str, tuple[str, int]] = {}  # item -> holder, token
        self.fenced: list[str] = []
        self.taken_over: list[str] = []
        self.latest: deque[str] = deque(maxlen=10)
        self.told = 0  # lines so far
        self.revision = 0

    def apply(self, event: Event) -> None:
        """Take in an event, and tell it in words if it is worth that."""
        self.revision = event.revision
        words: str | None = None
        if event.kind == "lock" and event.id.startswith(f"{items_of(self._run)}/"):
            words = self._lock(event, event.id.rpartition("/")[2])
        elif event.kind == "cell" and event.scope == items_of(self._run):
            words = self._item(event)
        elif event.kind == "cell" and event.scope == fenced_of(self._run):
            words = self._fenced(event)
        if words:
            self.tell(event.actor, words)

    def tell(self, who: str, words: str) -> None:
        """Add a line to the latest events."""
        self.told += 1
        self.latest.append(f"{self.revision:5}  {who:9} {words}")

    @property
    def all_done(self) -> bool:
        """Whether there is no work left."""
        return all(item.state == DONE for item in self.items.values())

    def _lock(self, event: Event, item: str) -> str | None:
        if event.op == "acquire":
            holder, token = event.data["holder"][1], event.data["token"][1]
            self.locks[item] = (holder, token)
            return f"holds the lock of {item}, token {token}"
        if event.op not in ("release", "expire"):
            return None
        holder, _ = self.locks.pop(item)
        return f"lock of {item} expired, {holder} was not heard of" if event.op == "expire" else None

    def _item(self, event: Event) -> str | None:
        value = event.data["value"]
        item = self.items[event.id]
        before = item.by
        item.state, item.by, item.tries, item.step = value["state"], value["by"], value["tries"], value["step"]
        if item.state == OPEN:
            return None
        worker = self.agents[item.by]
        if item.state == DONE:
            worker.item, worker.done = "", worker.done + 1
            return f"finished {event.id}"
        if item.step:
            return None
        worker.item = event.id
        if not before:
            return f"claims {event.id}"
        self.taken_over.append(event.id)
        return f"takes over {event.id} from {before}"

    def _fenced(self, event: Event) -> str:
        self.fenced.append(event.id)
        self.agents[event.id].fate, self.agents[event.id].item = "fenced", ""
        late = event.data["value"]
        return f"was FENCED: wrote to {late['item']} with the old token {late['token']}, nothing was changed"


def progress(item: Item) -> str:
    """A bar of an item's steps."""
    done = STEPS if item.state == DONE else item.step
    return "█" * done + "░" * (STEPS - done)
