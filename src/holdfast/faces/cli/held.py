"""The fencing tokens of what an actor holds, remembered between calls.

A file for each claim and lock, in a folder for each actor: calls of one actor may run at the same time. What is
remembered is sent with every later call on the same thing, so a process that lost its claim and does not know it is
refused on the command line too. They lie in the private folder of the workspace, or of the user for a server.
"""

from __future__ import annotations

import os

_LONG = 100  # bytes; a file name has at most 255 characters


class Held:
    """What one actor holds, as far as this machine remembers."""

    def __init__(self, folder: str, actor: str) -> None:
        self._folder = os.path.join(folder, "held", _name(actor))

    def token(self, *thing: str) -> int | None:
        """The token of a claim or lock."""
        try:
            with open(self._path(thing), encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):  # never written, or cut short by a crash
            return None

    def remember(self, token: int, *thing: str) -> None:
        """It was granted; the file is there whole or not at all."""
        path = self._path(thing)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="ascii") as file:
            file.write(str(token))
        os.replace(partial, path)

    def forget(self, *thing: str) -> None:
        """It is held no more."""
        try:
            os.unlink(self._path(thing))
        except FileNotFoundError:
            return

    def _path(self, thing: tuple[str, ...]) -> str:
        return os.path.join(self._folder, _name("\0".join(thing)))


def _name(text: str) -> str:
    """A file name for any text; a long one by its digest, which costs an import that others need not pay."""
    content = text.encode("utf-8", "surrogatepass")
    if len(content) <= _LONG:
        return content.hex()
    from hashlib import sha256

    return sha256(content).hexdigest() + "-"
