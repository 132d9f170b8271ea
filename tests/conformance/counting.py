"""Rules of a state machine that are counted: one that hardly ever fires proves nothing."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from hypothesis.stateful import rule

P = ParamSpec("P")
M = TypeVar("M")


class Rules:
    """The names of a machine's rules, and how often each fired, over all machines of the process."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fired: Counter[str] = Counter()

    def step(self, **strategies: Any) -> Callable[[Callable[Concatenate[M, P], None]], Any]:
        """A rule that is counted."""

        def decorate(function: Callable[Concatenate[M, P], None]) -> Any:
            self.names.append(function.__name__)

            @functools.wraps(function)
            def counted(machine: M, *args: P.args, **kwargs: P.kwargs) -> None:
                self.fired[function.__name__] += 1
                function(machine, *args, **kwargs)

            marked: Any = rule(**strategies)
            return marked(counted)

        return decorate
