"""What is known about servers: their tokens and certificates.

They are kept in a file with mode 0600, never in a command line or an address. The environment (HOLDFAST_TOKEN,
HOLDFAST_TOKEN_FILE) takes precedence. `holdfast login` writes the file, and every command that calls a server reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast import errors
from holdfast.filesystem import make_folder, write_private

_FILE: Final = "credentials.json"


class Credentials(msgspec.Struct, frozen=True):
    """What is known about a server. `token` None: it is in the environment, or there is none."""

    token: str | None = None
    certificate: str | None = None


def credentials(url: str, environ: Mapping[str, str]) -> Credentials:
    """Return the credentials for a server; the environment takes precedence."""
    known = _all(environ).get(_base(url), Credentials())
    if environ.get("HOLDFAST_TOKEN") or environ.get("HOLDFAST_TOKEN_FILE"):
        return Credentials(None, known.certificate)
    return known


def remember(url: str, given: Credentials, environ: Mapping[str, str]) -> str:
    """Store the credentials for a server; returns the file."""
    path = _path(environ)
    make_folder(os.path.dirname(path))
    content = msgspec.json.format(msgspec.json.encode({**_all(environ), _base(url): given}))
    write_private(path, content)
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Invalid(f"{path} cannot be read: {error}", hint="write it anew: holdfast login URL") from error


def _base(url: str) -> str:
    """The address without the name of a workspace: a token belongs to the server."""
    scheme, _, rest = url.partition("://")
    return url.rstrip("/") if scheme == "unix" else f"{scheme}://{rest.partition('/')[0]}"
