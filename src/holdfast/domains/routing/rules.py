"""The rules of a workspace, and what they decide for one task.

A matcher is a list of conditions that all must hold; the first matcher that holds decides. Before the matchers come
the task's own `grimoire_hint` and a tag `grimoire:X`, after them the default.

`decide` is called by claims, thousands of times a second, and reports nothing about matchers that did not match.
`report` is for people: it says for every matcher whether it matched and why. Guarantee: they never disagree, reasons
included.

`require_review` and `needs` belong to the workflow, not to the way a task came to it. So a task that reaches a grimoire
by a hint or a tag has the terms of the matcher that names that grimoire: the first whose conditions hold, else the
first. One that inherits has them too, besides those of the matcher by which it inherits. Otherwise a hint would bypass
a review. The default has no terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

import msgspec

from holdfast.domains.routing import globs
from holdfast.types.tasks import RouteReport, Verdict

BUILT_IN_DEFAULT: Final = "implement-bead"
PRIORITIES: Final = (0, 1, 2, 3, 4)
TAG_PREFIX: Final = "grimoire:"

_REMEMBERED: Final = 10_000  # tags, and decisions


class Matcher(msgspec.Struct, frozen=True):
    """Conditions, all of which must hold, and the route of a task for which they do. An empty one always holds."""

    name: str
    grimoire: str | None = None
    inherit: bool = False
    any_tags: tuple[str, ...] = ()
    all_tags: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    priority: tuple[int, ...] | None = None
    types: tuple[str, ...] | None = None
    body_contains: tuple[str, ...] = ()  # casefolded
    has_parent: bool | None = None
    require_review: bool = False
    needs: tuple[str, ...] = ()
    line: int = 0


class Subject(msgspec.Struct, frozen=True):
    """The properties of a task that rules read. `parent_grimoire` is the one assigned to the parent, if any."""

    tags: tuple[str, ...] = ()
    priority: int = 2
    type: str = "task"
    body: str = ""
    has_parent: bool = False
    hint: str | None = None
    parent_grimoire: str | None = None


# What makes two tasks one subject, as they are stored: tags, priority, type, hint, has_parent, parent_grimoire.
Likeness = tuple[str, int, str, str | None, bool, str | None]


class Decision(msgspec.Struct, frozen=True):
    """A task's route, the reason for it, and its terms."""

    grimoire: str
    matched_by: str
    reason: str
    require_review: bool = False
    needs: tuple[str, ...] = ()


_Case = tuple[Subject, str, int]  # a task during a decision, its body casefolded, the globs that its tags match as bits


class _Test(msgspec.Struct, frozen=True):
    """A matcher prepared for many tasks: the globs that must match a tag, and those that must not, as bits."""

    matcher: Matcher
    wanted: int
    vetoed: int

    def holds(self, case: _Case) -> bool:
        """Whether all conditions hold."""
        subject, folded, seen = case
        if seen & self.wanted != self.wanted or seen & self.vetoed:
            return False
        matcher = self.matcher
        if matcher.priority is not None and subject.priority not in matcher.priority:
            return False
        if matcher.types is not None and subject.type not in matcher.types:
            return False
        if matcher.has_parent is not None and subject.has_parent is not matcher.has_parent:
            return False
        if matcher.inherit and subject.parent_grimoire is None:
            return False
        return not matcher.body_contains or any(text in folded for text in matcher.body_contains)


class _Sight:
    """The globs that each tag matches, cached, because the same tags come again and again."""

    def __init__(self) -> None:
        self._globs: list[Callable[[str], bool]] = []
        self._known: dict[str, int] = {}

    def bit(self, patterns: tuple[str, ...]) -> int:
        """Return the bit for tags that match at least one of the patterns; 0 for no patterns."""
        if not patterns:
            return 0
        self._globs.append(globs.any_of(patterns))
        return 1 << (len(self._globs) - 1)

    def of(self, tags: tuple[str, ...]) -> int:
        """Return the bits of several tags together."""
        seen = 0
        for tag in tags:
            bits = self._known.get(tag)
            if bits is None:
                bits = sum(1 << at for at, matches in enumerate(self._globs) if matches(tag))
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[tag] = bits
            seen |= bits
        return seen


class Rules(msgspec.Struct, frozen=True, dict=True):
    """An ordered list of matchers and the default: everything that decides routes."""

    matchers: tuple[Matcher, ...] = ()
    default: str = BUILT_IN_DEFAULT

    @cached_property
    def reads_bodies(self) -> bool:
        """Whether a decision can depend on a task's body; if not, the body need not be loaded."""
        return any(matcher.body_contains for matcher in self.matchers)

    @cached_property
    def has_needs(self) -> bool:
        """Whether a decision can require abilities; if not, any agent may claim any task."""
        return any(matcher.needs for matcher in self.matchers)

    @cached_property
    def inherits(self) -> bool:
        """Whether a decision can depend on the parent's grimoire; if not, the parent need not be looked up."""
        return any(matcher.inherit for matcher in self.matchers)

    @cached_property
    def _ready(self) -> tuple[tuple[_Test, ...], _Sight]:
        """The prepared matchers, computed once for these rules and not stored with them."""
        sight = _Sight()
        tests = []
        for matcher in self.matchers:
            wanted = sight.bit(matcher.any_tags)
            for pattern in matcher.all_tags:
                wanted |= sight.bit((pattern,))
            tests.append(_Test(matcher, wanted, sight.bit(matcher.not_tags)))
        return tuple(tests), sight

    @cached_property
    def decided(self) -> dict[Likeness, Decision]:
        """What was decided so far for tasks that are alike."""
        return {}

    def remember(self, likeness: Likeness, decision: Decision) -> None:
        """Note what was decided for a task."""
        if len(self.decided) >= _REMEMBERED:
            self.decided.clear()
        self.decided[likeness] = decision

    @property
    def tests(self) -> tuple[_Test, ...]:
        """The prepared matchers, in order."""
        return self._ready[0]

    def case(self, subject: Subject) -> _Case:
        """Prepare a task for the tests."""
        folded = subject.body.casefold() if self.reads_bodies else ""
        return subject, folded, self._ready[1].of(subject.tags)


def decide(rules: Rules, subject: Subject) -> Decision:
    """Return the route of a task."""
    case = rules.case(subject)
    chosen = _own_choice(subject)
    if chosen is not None:
        return _with_terms(chosen, rules, case)
    for test in rules.tests:
        if test.holds(case):
            _, reason = _judge(test.matcher, case)
            return _route(test.matcher, reason, rules, case)
    return _fallback(rules)


def report(rules: Rules, subject: Subject) -> RouteReport:
    """Return the route of a task with the verdict of every matcher, also of those after the one that decided."""
    case = rules.case(subject)
    verdicts = [Verdict(matcher.name, *_judge(matcher, case)) for matcher in rules.matchers]
    chosen = _own_choice(subject)
    winner = next((at for at, verdict in enumerate(verdicts) if verdict.matched), None)
    if chosen is not None:
        decision = _with_terms(chosen, rules, case)
    elif winner is not None:
        decision = _route(rules.matchers[winner], verdicts[winner].reason, rules, case)
    else:
        decision = _fallback(rules)
    read = {name: getattr(subject, name) for name in ("priority", "type", "has_parent")}
    return RouteReport(
        selected_grimoire=decision.grimoire,
        matched_by=decision.matched_by,
        reason=decision.reason,
        require_review=decision.require_review,
        needs=decision.needs,
        evaluation=tuple(verdicts),
        task_properties={"tags": list(subject.tags), **read},
    )


# --- the steps of a decision -----------------------------------------------------------------------------------------


def _own_choice(subject: Subject) -> Decision | None:
    """The route that the task's own hint or tag requests, or None."""
    if subject.hint:
        return Decision(subject.hint, "grimoire_hint", f"grimoire_hint is {subject.hint!r}")
    for tag in subject.tags:
        if tag.startswith(TAG_PREFIX) and len(tag) > len(TAG_PREFIX):
            return Decision(tag[len(TAG_PREFIX) :], f"tag {tag}", f"the task has the tag {tag!r}")
    return None


def _route(matcher: Matcher, reason: str, rules: Rules, case: _Case) -> Decision:
    """The decision of the matcher that matched."""
    goal = case[0].parent_grimoire if matcher.inherit else matcher.grimoire
    assert goal is not None, "a matcher without a grimoire was accepted"
    decision = Decision(goal, matcher.name, reason, matcher.require_review, matcher.needs)
    return _with_terms(decision, rules, case) if matcher.inherit else decision


def _fallback(rules: Rules) -> Decision:
    return Decision(rules.default, "default", "no matcher matched")


def _with_terms(decision: Decision, rules: Rules, case: _Case) -> Decision:
    """Add the terms of the matcher that names the decision's grimoire; see the top of this module."""
    named = [test for test in rules.tests if test.matcher.grimoire == decision.grimoire]
    if not named:
        return decision
    terms = next((test for test in named if test.holds(case)), named[0]).matcher
    needs = decision.needs + tuple(need for need in terms.needs if need not in decision.needs)
    review = decision.require_review or terms.require_review
    return msgspec.structs.replace(decision, require_review=review, needs=needs)


# --- reasons ---------------------------------------------------------------------------------------------------------


def _judge(matcher: Matcher, case: _Case) -> tuple[bool, str]:
    """Whether a matcher matches, and why: all conditions that held, or the first that did not."""
    held = []
    for holds, words in _conditions(matcher, case[0], case[1]):
        if not holds:
            return False, words
        held.append(words)
    return True, "; ".join(held) or "matches every task"


def _conditions(matcher: Matcher, subject: Subject, folded: str) -> Iterator[tuple[bool, str]]:
    """Yield each condition of a matcher, whether it holds, and a text for that; the veto comes last."""
    if matcher.any_tags:
        found = _first_match(matcher.any_tags, subject.tags)
        yield found != "", _tags_matched("any_tags", matcher.any_tags, found)
    if matcher.all_tags:
        missing = [pattern for pattern in matcher.all_tags if not _first_match((pattern,), subject.tags)]
        found = ", ".join(_first_match((pattern,), subject.tags) for pattern in matcher.all_tags)
        yield not missing, f"all_tags {missing[0]!r} matched no tag" if missing else f"all_tags matched {found}"
    if matcher.priority is not None:
        within = subject.priority in matcher.priority
        yield within, f"priority {subject.priority} {_in(within)} {_list(matcher.priority)}"
    if matcher.types is not None:
        within = subject.type in matcher.types
        yield within, f"type {subject.type!r} {_in(within)} {_list(matcher.types)}"
    if matcher.body_contains:
        text = next((text for text in matcher.body_contains if text in folded), None)
        nothing = f"body contains none of {_list(matcher.body_contains)}"
        yield text is not None, nothing if text is None else f"body contains {text!r}"
    if matcher.has_parent is not None:
        same = subject.has_parent is matcher.has_parent
        yield same, f"the task has {'a' if subject.has_parent else 'no'} parent"
    if matcher.inherit:
        parent = subject.parent_grimoire
        nothing = "the parent has no grimoire assigned" if subject.has_parent else "there is no parent to inherit from"
        yield parent is not None, nothing if parent is None else f"inherits {parent!r} from the parent"
    if matcher.not_tags:
        found = _first_match(matcher.not_tags, subject.tags)
        yield found == "", _tags_matched("not_tags", matcher.not_tags, found)


def _tags_matched(what: str, patterns: tuple[str, ...], found: str) -> str:
    return f"{what} matched {found}" if found else f"{what} {_list(patterns)} matched no tag"


def _first_match(patterns: tuple[str, ...], tags: tuple[str, ...]) -> str:
    """A text for the first pattern that matches a tag, with that tag; empty if none does."""
    for pattern in patterns:
        matches = globs.compile(pattern)
        for tag in tags:
            if matches(tag):
                return f"{pattern!r} via tag {tag!r}"
    return ""


def _in(within: bool) -> str:
    return "in" if within else "not in"


def _list(values: tuple[object, ...]) -> str:
    return f"[{', '.join(map(repr, values))}]"
