"""F3, F4, F5: overlap, staleness and precedence are arithmetic, the same for everybody."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.turnfile import ledger as codec
from holdfast.turnfile.ledger import next_signal_id, rules
from holdfast.turnfile.model import Lock, Signal, Turnfile
from tests.turnfile.ledgers import LAYOUTS

SPELLINGS = [
    "MAILBOX.md",
    "./MAILBOX.md",
    "working-session/MAILBOX.md",
    "working-session/./docs/../MAILBOX.md",
    "working-session//MAILBOX.md",
    "docs/../MAILBOX.md",
    "working-session\\MAILBOX.md",
]
OUTSIDE = ["..", "../MAILBOX.md", "a/../../b", "/etc/passwd", "", ".", "a\nb", "a\0b", "docs/", "x" * 2000]

paths = st.sampled_from([*SPELLINGS, "WORKLOG.md", "working-session/WORKLOG.md", "docs/README.md", "../odd"])
some_locks = st.lists(
    st.builds(
        Lock,
        st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=6).map(lambda word: f"k-{word}"),
        st.lists(paths, min_size=1, max_size=3, unique=True).map(tuple),
        st.sampled_from(["ada", "bob", "cyd"]),
        st.integers(0, 8),  # few revisions: ties are common
        st.integers(1, 4),
        st.just("why"),
    ),
    max_size=8,
    unique_by=lambda lock: lock.id,
)


def winner(locks: Iterable[Lock], path: str, revision: int) -> Lock | None:
    """The lock by which a file may be edited."""
    return next(iter(rules.blocking(locks, [path], revision)), None)


@pytest.mark.parametrize("path", SPELLINGS)
def test_f3_every_spelling_of_a_path_is_the_same_file(path: str) -> None:
    assert rules.normalize(path) == "MAILBOX.md"
    assert rules.ledger_path(path) == "working-session/MAILBOX.md"
    held = Lock("x", (path,), "ada", 1)
    assert rules.blocking([held], ["MAILBOX.md"], 1) == [held]


@pytest.mark.parametrize("path", OUTSIDE)
def test_f3_a_path_may_not_leave_the_workspace(path: str) -> None:
    with pytest.raises(Invalid):
        rules.normalize(path)


def test_f3_a_folder_of_another_name_is_known_by_it() -> None:
    assert rules.normalize("session-0/MAILBOX.md", "session-0/") == "MAILBOX.md"
    assert rules.ledger_path("MAILBOX.md", "session-0/") == "session-0/MAILBOX.md"


def test_f4_a_lock_acquired_at_7_for_2_is_valid_at_9_and_stale_at_10() -> None:
    lock = Lock("x", ("MAILBOX.md",), "ada", 7, 2)
    assert [rules.is_stale(lock, revision) for revision in (7, 8, 9, 10, 11)] == [False, False, False, True, True]
    assert [rules.revisions_left(lock, revision) for revision in (7, 9, 10)] == [2, 0, -1]


def test_f5_the_lower_revision_wins_then_the_smaller_id() -> None:
    early, tied, late = (Lock(name, ("MAILBOX.md",), "ada", rev) for name, rev in (("b", 5), ("c", 5), ("a", 6)))
    assert rules.blocking([late, tied, early], ["MAILBOX.md"], 6)[0] == early
    assert rules.beaten_by(tied, [late, tied, early], 6) == early
    assert rules.beaten_by(early, [late, tied, early], 6) is None
    assert rules.beaten_by(late, [late, tied, early], 6) == early
    assert rules.blocking([late, tied, early], ["MAILBOX.md"], 8)[0] == late  # the others are stale
    assert rules.blocking([late, tied, early], ["WORKLOG.md"], 6) == []


@settings(max_examples=200, deadline=None)
@given(found=some_locks, revision=st.integers(0, 14), seed=st.integers(0, 1 << 30))
def test_f5_everybody_names_the_same_winner_whatever_the_order(found: list[Lock], revision: int, seed: int) -> None:
    shuffled = random.Random(seed).sample(found, len(found))
    for path in ("MAILBOX.md", "working-session/WORKLOG.md", "docs/README.md"):
        first = winner(found, path, revision)
        assert winner(shuffled, path, revision) == first
        valid = [lock for lock in found if path_in(path, lock) and revision - lock.acquired_rev <= lock.lease_revs]
        assert (first is None) == (not valid)
        if first is not None:
            assert (first.acquired_rev, first.id) == min((lock.acquired_rev, lock.id) for lock in valid)
    for lock in found:
        if revision - lock.acquired_rev <= lock.lease_revs:  # nobody beats the winner, and who is beaten knows it
            wins_all = all(winner(found, path, revision) == lock for path in rules.files_of(lock))
            assert (rules.beaten_by(lock, shuffled, revision) is None) == wins_all


def path_in(path: str, lock: Lock) -> bool:
    """Whether a lock names a file, in any spelling."""
    return rules.normalize(path) in rules.files_of(lock)


@settings(max_examples=40, deadline=None)
@given(found=some_locks, layout=st.sampled_from([*LAYOUTS.values()]), seed=st.integers(0, 1 << 30))
def test_f5_the_winner_is_the_same_after_a_round_trip(found: list[Lock], layout: str, seed: int) -> None:
    winners = set()
    for order in (found, random.Random(seed).sample(found, len(found))):
        ledger = codec.read(layout)
        for lock in order:
            ledger = ledger.with_lock(lock)
        read = codec.read(ledger.text).turnfile
        winners.add(winner([lock for lock in read.locks if lock in found], "MAILBOX.md", 9))
    assert winners == {winner(found, "MAILBOX.md", 9)}


def test_f3_lock_ids_count_on_from_locks_and_from_notes_about_them_not_from_mentions() -> None:
    def next_id(holder: str, *ids: str, details: Sequence[str] = (), reason: str = "") -> str:
        locks = tuple(Lock(id, ("MAILBOX.md",), holder, 1, 2, reason) for id in ids)
        signals = tuple(Signal(f"SIG-{n:03d}", "ada", "all", "notify", n, each) for n, each in enumerate(details, 1))
        return rules.next_lock_id(holder, Turnfile(1, locks=locks, signals=signals))

    assert next_id("ada") == "LOCK-ada-001"
    assert next_id("ada", "LOCK-ada-009", "LOCK-ada-2x-7", "descriptive", "LOCK-bob-100") == "LOCK-ada-010"
    assert next_id("a.b", "LOCK-aab-007") == "LOCK-a.b-001"
    assert next_id("ada", "LOCK-ada-999") == "LOCK-ada-1000"
    for note in (
        "completed LOCK-ada-041: MAILBOX.md, revision 7",
        "out of order after LOCK-ada-041: MAILBOX.md, revision 7",
        "blocked by LOCK-ada-041: holder ada, acquired_rev 3, last seen revision 7",
        "override of LOCK-ada-041 at revision 7: P0",
    ):
        assert next_id("ada", "LOCK-ada-009", details=[note]) == "LOCK-ada-042"
    mention = "after LOCK-ada-999999"
    assert next_id("ada", "LOCK-ada-001", details=[mention], reason=mention) == "LOCK-ada-002"
    assert next_id("ada", "LOCK-ada-999999") == "LOCK-ada-1000000"
    assert next_id("ada", "LOCK-ada-999999", "LOCK-ada-1000000") == "LOCK-ada-1000001"
    assert next_id("ada", "LOCK-ada-999999999") == "LOCK-ada-001"


def test_f4_a_signal_with_an_absurd_number_is_no_reason_to_give_an_id_twice() -> None:
    signals: list[Signal] = [Signal("SIG-999999999", "ada", "all", "notify", 1)]
    for _ in range(3):
        signals.append(Signal(next_signal_id(signals), "ada", "all", "notify", 1))
    assert [signal.id for signal in signals[1:]] == ["SIG-001", "SIG-002", "SIG-003"]
    signals = [Signal("SIG-999999", "ada", "all", "notify", 1)]
    for _ in range(3):
        signals.append(Signal(next_signal_id(signals), "ada", "all", "notify", 1))
    assert [signal.id for signal in signals[1:]] == ["SIG-1000000", "SIG-1000001", "SIG-1000002"]
