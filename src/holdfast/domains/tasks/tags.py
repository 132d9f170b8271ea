"""Tags: how they are checked and kept. Plain or hierarchical (`area/frontend`), in order, each once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import errors
from holdfast.kernel.names import check_name

MAX_TAG = 128  # bytes
_encode = msgspec.json.Encoder().encode


def check_tag(tag: str) -> str:
    """A tag: a name without a space at its ends and with something between its slashes."""
    try:
        check_name(tag, "tag")
    except errors.InvalidName as error:
        raise errors.InvalidTag(error.message, tag=tag) from error
    if len(tag.encode()) > MAX_TAG:
        raise errors.InvalidTag(f"the tag {tag[:40]!r}... has more than {MAX_TAG} bytes", tag=tag)
    if tag != tag.strip() or not all(part.strip() for part in tag.split("/")):
        raise errors.InvalidTag(
            f"{tag!r} is not a tag", hint="no spaces at its ends, something on both sides of each /", tag=tag
        )
    return tag


def check_tags(tags: Sequence[str], most: int) -> tuple[str, ...]:
    """Tags in order, each once."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise errors.InvalidTag(f"tags come in a list, not as {tags!r}", hint='such as tags=["backend"]')
    if not tags:
        return ()
    checked = tuple(sorted({check_tag(tag) for tag in tags}))
    if len(checked) > most:
        raise errors.InvalidTag(f"{len(checked)} tags; {most} is the most a task has", hint="see limits in config.yaml")
    return checked


def stored_tags(tags: tuple[str, ...]) -> str:
    """As they stand in the row of a task."""
    return _encode(tags).decode() if tags else "[]"
