"""`holdfast replicate`, `detach` and `rebuild`: a workspace goes to a log that several machines share, and back.

Besides, what a node is in words, for `where` and `doctor`.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast import errors
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.store import local_folder, server_of
from holdfast.filesystem import recorded_log
from holdfast.types import NodeState


@command(
    "replicate",
    Argument(
        "url", word=True, required=True, help="the log: postgresql://host/db?workspace=NAME or nats://h1,h2,h3/NAME"
    ),
    Argument("create", "flag", help="make the workspace in the log if it is not there"),
)
def replicate(session: Session, given: dict[str, Any]) -> int:
    """Take the workspace to a log that other machines share.

    The log begins with it: revisions, tokens and history stay. A folder without a workspace joins the log.
    """
    from holdfast.workspace.admin import replicate as take

    found = session.find_place()
    if found is not None and found.url is not None:
        raise errors.Unsupported("a workspace goes to a log where it is stored, but a server was given")
    folder = found.folder if found is not None and found.folder is not None else location.home(session.folder)
    joined = not location.has_store(folder)
    _check_unserved(folder)
    revision = take(folder, given["url"], create=bool(given.get("create")))
    log = recorded_log(folder)
    done = "joined" if joined else "took the workspace to"
    text = f"{done} {log}, at revision {revision}; this node's replica is in {folder}"
    session.out.say({"folder": folder, "log": log, "revision": revision, "joined": joined}, text)
    return 0


@command("detach")
def detach(session: Session, given: dict[str, Any]) -> int:
    """Take the workspace out of its log, into this folder alone.

    Revisions, tokens and history stay. The log ends, and its other replicas stop.
    """
    from holdfast.workspace.admin import detach as leave

    folder = local_folder(session, "a workspace leaves its log where a replica is stored")
    _check_unserved(folder)
    log = recorded_log(folder)
    revision = leave(folder)
    text = f"{folder} is a workspace of its own, at revision {revision}; the log {log} has ended"
    session.out.say({"folder": folder, "log": log, "revision": revision}, text)
    return 0


@command(
    "rebuild",
    Argument("ahead", "flag", help="also a replica that has what the log lacks: only the file set aside has it then"),
)
def rebuild(session: Session, given: dict[str, Any]) -> int:
    """Make a new replica from the log in the place of one that is damaged or differs.

    The old one is set aside in the folder, never deleted.
    """
    from holdfast.workspace.admin import rebuild as make

    found = session.find_place()  # not `place`, which refuses a store of which a part is left
    folder = None if found is None else found.folder
    folder = local_folder(session, "a replica is rebuilt where it is stored") if folder is None else folder
    _check_unserved(folder)
    aside = str(make(folder, ahead=bool(given.get("ahead"))))
    log = recorded_log(folder)
    text = f"made a new replica in {folder} from {log}; the old one is {aside}"
    session.out.say({"folder": folder, "log": log, "aside": aside}, text)
    return 0


def _check_unserved(folder: str) -> None:
    """Raise Busy, naming the server that runs on a folder."""
    address = server_of(folder) if os.path.isdir(folder) else ""
    if address:
        raise errors.Busy(f"a server runs on {folder} ({address}); nothing was changed", hint="stop it, and retry")


def node_of(session: Session) -> tuple[dict[str, Any] | None, list[str]]:
    """How this node of a replicated workspace is, as facts and in words; None if the replica cannot be opened."""
    from msgspec.structs import asdict

    try:
        with session.open_local() as workspace:
            state = workspace.node_state()
    except errors.HoldfastError as error:
        return None, [error.message]
    assert state is not None
    return {**asdict(state), "lag": state.lag}, describe_node(state)


def describe_node(state: NodeState) -> list[str]:
    """A node in words: where it is, and how durable its log is."""
    at = f"{state.engine}, node {state.node} at position {state.position}"
    if state.lag is None:
        return [f"{at}; the log cannot be reached, reads go on: {state.away}"]
    words = "up to date" if state.lag == 0 else f"{state.lag} behind the end of the log"
    return [f"{at}, {words}", *(state.doubts or ["an acknowledged commit is on the disks of the log"])]
