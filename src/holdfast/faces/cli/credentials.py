"""Tokens of servers: HOLDFAST_TOKEN, HOLDFAST_TOKEN_FILE, or what `holdfast login` has put down for an address.

The file is the user's own and readable by nobody else; a token never stands in a command line or an address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast import errors
from holdfast.kernel.folders import make_folder

_FILE: Final = "credentials.json"


class Credentials(msgspec.Struct, frozen=True):
    """What is known of a server. `token` None: the environment says it, or nobody does."""

    token: str | None = None
    certificate: str | None = None

    @property
    def verify(self) -> str | bool:
        """What the server's certificate is checked against."""
        return self.certificate or True


def credentials(url: str, environ: Mapping[str, str]) -> Credentials:
    """What to tell a server; what the environment says goes first."""
    known = _all(environ).get(_base(url), Credentials())
    if environ.get("HOLDFAST_TOKEN") or environ.get("HOLDFAST_TOKEN_FILE"):
        return Credentials(None, known.certificate)
    return known


def remember(url: str, given: Credentials, environ: Mapping[str, str]) -> str:
    """Put down what is good for a server; answers where."""
    path = _path(environ)
    make_folder(os.path.dirname(path))
    content = msgspec.json.format(msgspec.json.encode({**_all(environ), _base(url): given}))
    partial = f"{path}.{os.getpid()}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(partial, path)
    return path


def _path(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "holdfast", _FILE)


def _all(environ: Mapping[str, str]) -> dict[str, Credentials]:
    path = _path(environ)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, Credentials])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise errors.Invalid(f"{path} cannot be read: {error}", hint="holdfast login writes it") from error


def _base(url: str) -> str:
    """The address without the name of a workspace: a token belongs to the server."""
    scheme, _, rest = url.partition("://")
    return url.rstrip("/") if scheme == "unix" else f"{scheme}://{rest.partition('/')[0]}"
