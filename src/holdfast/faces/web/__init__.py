"""The web page: its files, as they are served under `/ui/`.

Everything but the start page is served under `/ui/DIGEST/`, where DIGEST is one hash over all files, and may be kept by
the browser for ever. The files are the same for everybody and hold nothing of a workspace: the page gets that by
calling operations, as any client does. Nothing is loaded from elsewhere. Scripts are sent without their comments
and indentation, which are for readers of the source; no string of theirs is longer than a line.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

PATH: Final = "ui"
FOLDER: Final = Path(__file__).parent / "static"
START: Final = "index.html"
POLICY: Final = (
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'"
)
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_COMMENT: Final = re.compile(rb"(?<=[;{,]) +// [^'`\"]*$")
_SPACED: Final = re.compile(rb" (=>|===|!==|&&|\|\|) |(?<=\{) | (?=\})")
_PLACEHOLDER: Final = b"DIGEST"
_MODULES: Final = (
    b"<!-- modules -->"  # of the start page: asked for at once, not when a module that imports them has come
)


class Asset(NamedTuple):
    """A file as it is sent: plain, and compressed."""

    content: bytes
    packed: bytes
    headers: tuple[tuple[bytes, bytes], ...]


@cache
def digest() -> str:
    """The hash over the names and contents of all files."""
    found = hashlib.sha256()
    for path in files():
        content = path.read_bytes()
        found.update(f"{path.relative_to(FOLDER).as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


def files() -> list[Path]:
    """The files of the page."""
    return sorted(path for path in FOLDER.rglob("*") if path.suffix in _TYPES)


@cache
def _assets() -> dict[str, Asset]:
    return {path.relative_to(FOLDER).as_posix(): _asset(path) for path in files()}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    keep = b"public, max-age=31536000, immutable"
    if path.suffix == ".js":
        content = lean(content)
    if path.name == START:
        content, keep = content.replace(_MODULES, _preloads()).replace(_PLACEHOLDER, digest().encode()), b"no-cache"
    headers = (
        (b"content-type", _TYPES[path.suffix].encode()),
        (b"cache-control", keep),
        (b"content-security-policy", POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
    )
    return Asset(content, gzip.compress(content, 9, mtime=0), headers)


def _preloads() -> bytes:
    names = [path.relative_to(FOLDER).as_posix() for path in files() if path.suffix == ".js"]
    links = [f'<link rel="modulepreload" href="/ui/DIGEST/{name}">' for name in names if name != "worker.js"]
    return "\n".join(links).encode()


def lean(script: bytes) -> bytes:
    """A script without its comments, indentation and the spaces around some signs, which no string has.

    What follows `//` is a comment if no string can end in it.
    """
    lines = [_SPACED.sub(rb"\1", _COMMENT.sub(b"", line.strip())) for line in script.split(b"\n")]
    return b"\n".join(line for line in lines if line and not line.startswith((b"//", b"/**", b"* ", b"*/"))) + b"\n"


def find(segments: list[str], wants_page: bool) -> Asset | None:
    """The file at an address below `/ui/`, given as the segments after `ui`.

    Every address that is not below the digest is one of the page itself, which shows what it means: the start page is
    returned if the client accepts a page. None if there is nothing.
    """
    if segments[:1] == [digest()] and len(segments) > 1:
        return _assets().get("/".join(segments[1:]))
    return _assets()[START] if wants_page else None
