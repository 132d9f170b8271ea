"""Carrying cycles between a workspace and a place where PEER agents keep them: a JetStream bucket, or a folder.

    with Bucket("nats://localhost:4222", "agent-os-peer-state") as place:
        bring(workspace, place)
        send(workspace, place)

`bring` reads every format that there was; `send` writes v2 with the revision that it read, so that whoever wrote
meanwhile is never overwritten. Made of the operations of a workspace, so that it works with any kind of it.
"""

from __future__ import annotations

from holdfast.carrying.bringing import bring
from holdfast.carrying.bucket import Bucket
from holdfast.carrying.folder import Folder
from holdfast.carrying.places import Entry, Place, Revision
from holdfast.carrying.sending import Sent, send

__all__ = ["Bucket", "Entry", "Folder", "Place", "Revision", "Sent", "bring", "send"]
