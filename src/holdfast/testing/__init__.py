"""For your own tests: a clock that stands still, a pytest fixture, and what a log adapter must pass.

`ManualClock` stands still until it is moved. `plugin` gives pytest the fixture `workspace`. `log_contract` holds the
tests that every log adapter must pass; `FaultyLog` wraps a log to fail as networks do, `TimedLog` gives it a clock
of yours. Names are loaded on first use, because pytest loads the plugin for every test run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.faulty_log import FaultyLog, TimedLog

__all__ = ["FaultyLog", "ManualClock", "TimedLog"]

_HOMES = {"FaultyLog": "faulty_log", "ManualClock": "clock", "TimedLog": "faulty_log"}

if not TYPE_CHECKING:  # a type checker sees the imports above, and complains about any other name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.testing.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
