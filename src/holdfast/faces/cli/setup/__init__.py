"""`holdfast setup`: what agents need to work with Holdfast, put into the files that their clients read in a project.

`install`, `check` and `remove` work on a project's files; `CLIENTS` says which. Guarantee: `remove` leaves every file
byte for byte as it was before `install`, and a file that cannot be edited safely is refused before any is written.
What the installed hooks are told and answer is in `hooks`: it runs before every edit, so the rest is loaded only when
it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.faces.cli.setup.clients import CLIENTS, Client
    from holdfast.faces.cli.setup.plan import Change, Problem, check, install, remove

__all__ = ["CLIENTS", "Change", "Client", "Problem", "check", "install", "remove"]

if not TYPE_CHECKING:  # a type checker sees the imports above, and complains about any other name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "clients" if name in ("CLIENTS", "Client") else "plan"
        return getattr(import_module(f"{__name__}.{home}"), name)
