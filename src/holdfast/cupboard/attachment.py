"""What a cupboard is attached to: a workspace, and the operations that are running on it.

Once it is closed every use is Closed, also of tables that were taken before; closing waits for what is running.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace

    AnyWorkspace: TypeAlias = Workspace | RemoteWorkspace


class Attachment:
    """A workspace in use, until it is closed; `owned`: it was opened for this, and is closed with it."""

    def __init__(self, workspace: AnyWorkspace, owned: bool) -> None:
        self._workspace = workspace
        self._owned = owned
        self._idle = threading.Condition()
        self._running = 0
        self.is_closed = False

    @contextmanager
    def running(self) -> Iterator[AnyWorkspace]:
        """The workspace, for one operation; Closed if there is none any more."""
        with self._idle:
            self.check_open()
            self._running += 1
        try:
            yield self._workspace
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def check_open(self) -> None:
        """Closed once the cupboard is detached."""
        if self.is_closed:
            raise errors.Closed("the cupboard is detached", hint="attach it again, and take the table from it anew")

    def close(self) -> None:
        """Refuse what comes, wait for what is running, and let the workspace go; again it only waits."""
        with self._idle:
            first = not self.is_closed
            self.is_closed = True
            self._idle.wait_for(lambda: self._running == 0)
        if first and self._owned:
            self._workspace.close()
