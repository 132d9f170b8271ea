"""Mail: what agents tell each other, in threads, about tasks; with who has answered and who has not.

`sending` writes messages, `steps` has the table of what receivers and senders may do with one, `reading` all that can
be asked, `rows` how a message is stored. This module is the table of operations.
"""

from __future__ import annotations

from holdfast import errors
from holdfast.domains.mail import reading, rows, sending, steps
from holdfast.kernel.tx import Tx
from holdfast.ops import Domain, Found, M, read, read_as, write

_ONE = "/api/mail/{id}"


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a message: whether it is open or closed."""
    try:
        stored = rows.require(tx, id)
    except errors.MessageNotFound:
        return None
    return Found(stored.version, "open" if stored.closed is None else "closed")


class Mail(Domain[M]):
    """`ws.mail`."""

    prefix = "mail"
    send = write(sending.send, http="POST /api/mail", cli="mail send", mcp=True)
    reply = write(sending.reply, http=f"POST {_ONE}/reply", cli="mail reply", mcp=True)
    ack = write(steps.ack, http=f"POST {_ONE}/ack", cli="mail ack", mcp=True)
    action = write(steps.action, http=f"POST {_ONE}/action", cli="mail action")
    block = write(steps.block, http=f"POST {_ONE}/block", cli="mail block")
    close = write(steps.close, http=f"POST {_ONE}/close", cli="mail close")

    inbox = read_as(reading.inbox, http="GET /api/mail", cli="mail inbox", mcp=True)
    unread = read_as(reading.unread, http="GET /api/mail/unread", cli="mail unread")
    sent = read_as(reading.sent, http="GET /api/mail/sent", cli="mail sent")
    get = read(reading.get, http=f"GET {_ONE}", cli="mail get")
    thread = read(reading.thread, http=f"GET {_ONE}/thread", cli="mail thread", mcp=True)
    about = read(reading.about, http="GET /api/tasks/{task}/mail", cli="mail about")
    search = read(reading.search, http="GET /api/mail/search", cli="mail search")
    history = read(reading.history, http=f"GET {_ONE}/history", cli="mail history")
