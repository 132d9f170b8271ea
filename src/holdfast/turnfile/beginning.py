"""A new working session: its folder with the ledger and the shared files.

`init` never overwrites: a folder that has any of the files already is refused, and left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.errors import Exists, Invalid
from holdfast.turnfile.ledger import codec
from holdfast.turnfile.ledger.codec import Ledger, check_name
from holdfast.turnfile.mailbox.composing import agent_name
from holdfast.turnfile.model import TURNFILE
from holdfast.turnfile.papers import templates
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
                raise Exists(f"{path} is there already: nothing was written", path=path)
        if session.folder.signature(IGNORE) is not None:
            del texts[IGNORE]
        session.replace(texts, dict.fromkeys(texts))
    return codec.read(texts[TURNFILE])
