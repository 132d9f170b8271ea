"""`holdfast demo`: a fleet of agents share a workspace, one is killed, one comes too late."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument


def demo(session: Session, given: dict[str, Any]) -> int:
    """Play the story; 0 if every item was done exactly once."""
    main = import_module("holdfast.demo.__main__").main
    chosen = given | ({"dir": session.given["dir"]} if session.given.get("dir") else {})
    code: int = main([word for name, value in chosen.items() for word in (f"--{name}", str(value))])
    return code


COMMANDS = (
    Command(
        "demo",
        "Watch a fleet of agents share a workspace.",
        (
            Argument("agents", "int", "--agents", help="how many, at least 3"),
            Argument("items", "int", "--items", help="how much work there is"),
            Argument("seed", "int", "--seed", help="what happens to whom"),
        ),
        demo,
    ),
)
