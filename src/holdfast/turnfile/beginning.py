"""A new working session: its folder with the ledger and the shared files.

`init` never overwrites: a folder that has any of the files already is refused, and left as it is. `restore` makes anew
what is missing of a session, the projection from the mailbox and the rest empty, and touches nothing that is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.errors import Exists, Invalid
from holdfast.turnfile.ledger import codec
from holdfast.turnfile.ledger.codec import Ledger, check_name
from holdfast.turnfile.mailbox.composing import agent_name
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE
from holdfast.turnfile.papers import templates
from holdfast.turnfile.papers.settling import projected
from holdfast.turnfile.papers.templates import IGNORE
from holdfast.turnfile.session import Session


def init(session: Session, project: str, agents: Sequence[str], maintainer: str = "maintainer") -> Ledger:
    """Make the files of a new session. Raises Exists if one of them is there, and writes nothing then."""
    check_name("project", project)
    for name in agents:
        agent_name(name, "agent")
    agent_name(maintainer, "maintainer")
    if len({name.casefold() for name in (*agents, maintainer)}) != len(agents) + 1:
        raise Invalid("two of the names are the same")
    name = os.path.basename(session.folder.path)
    texts = templates.texts(name, project, agents, maintainer, session.timestamp())
    os.makedirs(session.folder.path, exist_ok=True)
    with session.turn():
        for path in texts:
            session.folder.make(path)
            if session.folder.signature(path) is not None and path != IGNORE:
                raise Exists(
                    f"{path} is there already: nothing was written",
                    hint="`turn init --missing` makes only what is missing",
                    path=path,
                )
        if session.folder.signature(IGNORE) is not None:
            del texts[IGNORE]
        session.replace(texts, dict.fromkeys(texts))
    return codec.read(texts[TURNFILE])


def restore(session: Session) -> list[str]:
    """Make the missing files of a session anew, with the names that its ledger has; answers which. Raises NotFound."""
    with session.turn():
        turnfile = session.fresh().turnfile
        agents = [agent.id for agent in turnfile.agents]
        maintainer = turnfile.maintainer.id or "maintainer"
        name = os.path.basename(session.folder.path)
        texts = templates.texts(name, turnfile.project, agents, maintainer, session.timestamp())
        if (mailbox := session.folder.read(MAILBOX)) is not None:
            texts[PROJECTION] = projected(mailbox, None, session.workspace(session.fresh()), session.timestamp())
        gone = {path: text for path, text in texts.items() if session.folder.signature(path) is None}
        for path in gone:
            session.folder.make(path)
        if gone:
            session.replace(gone, dict.fromkeys(gone))
    return list(gone)
