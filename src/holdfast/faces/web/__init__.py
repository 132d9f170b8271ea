"""The web page: its files, as they are served under `/ui/`.

Everything but the start page is served under `/ui/DIGEST/`, where DIGEST is one hash over all files, and may be kept by
the browser for ever. The files are the same for everybody and hold nothing of a workspace: the page gets that by
calling operations, as any client does. Nothing is loaded from elsewhere. Scripts are sent without their comments
and the spaces that are for readers of the source.
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
_TOKEN: Final = re.compile(
    rb"(?P<space>(?:[ \n]+|//[^\n]*|/\*.*?\*/)+)"
    rb"|(?P<text>'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    rb"|(?P<word>[\w$]+)"
    rb"|(?P<pattern>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*)"
    rb"|(?P<sign>.)",
    re.DOTALL,
)
_TEMPLATE: Final = re.compile(rb"(?:\\.|[^`\\$]|\$(?!\{))*(`|\$\{)", re.DOTALL)  # up to its end, or to a value in it
_WORD: Final = re.compile(rb"[\w$]")
_VALUE: Final = re.compile(rb"[\w$)\]}`'\"]")  # after the end of a value a slash divides
_BEFORE_PATTERN: Final = (b"return", b"typeof", b"of", b"case")
_GOES_ON: Final = b"{([,;"  # the end of a line after these ends no statement
_GOES_ON_BEFORE: Final = b")]}."
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
    """Return a script without its comments, indentation and the spaces between signs.

    Texts, templates, patterns, names and the ends of lines that may end a statement stay as they are, so it does what
    it did.
    """
    found = bytearray()
    values: list[int] = []  # of each template that is open: the braces that are open in its value
    last, at = b"", 0
    while at < len(script):
        sign = script[at : at + 1]
        if sign == b"`" or (sign == b"}" and values and values[-1] == 0):
            end = _TEMPLATE.match(script, at + 1)
            assert end is not None, "a template has no end"
            if sign == b"}":
                values.pop()
            if end[1] == b"${":
                values.append(0)
            found += script[at : end.end()]
            last, at = (b"{" if end[1] == b"${" else b"`"), end.end()
            continue
        token = _TOKEN.match(script, at)
        assert token is not None
        kind, text = token.lastgroup, token[0]
        if kind == "pattern" and _VALUE.match(last[-1:]) and last not in _BEFORE_PATTERN:
            kind, text = "sign", sign
        at += len(text)
        if kind == "space":
            found += _gap(bytes(found[-1:]), text, script[at : at + 1])
            continue
        if values and sign in b"{}":
            values[-1] += 1 if sign == b"{" else -1
        found += text
        last = text
    return bytes(found)


def _gap(before: bytes, space: bytes, after: bytes) -> bytes:
    """What is left of the space between two signs."""
    if b"\n" in space:
        return b"" if not before or before in _GOES_ON or after in _GOES_ON_BEFORE else b"\n"
    if _WORD.match(before):
        return b" " if _WORD.match(after) else b""
    return b" " if before in b"+-" and before == after else b""


def find(segments: list[str], wants_page: bool) -> Asset | None:
    """The file at an address below `/ui/`, given as the segments after `ui`.

    Every address that is not below the digest is one of the page itself, which shows what it means: the start page is
    returned if the client accepts a page. None if there is nothing.
    """
    if segments[:1] == [digest()] and len(segments) > 1:
        return _assets().get("/".join(segments[1:]))
    return _assets()[START] if wants_page else None
