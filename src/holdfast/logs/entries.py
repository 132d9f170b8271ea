"""What is in the log: the kinds of entries, and their bytes.

Every entry names the entry before it, so a replica notices a log that is not the one it followed. Entries and blobs
carry a checksum, so that a flipped bit is an error and not a change. `id` settles whether an append whose answer was
lost is there.
"""

from __future__ import annotations

import zlib

import msgspec

from holdfast import errors


class Entry(msgspec.Struct, frozen=True, tag_field="kind", array_like=True):
    """What all entries have."""

    id: str
    previous: str  # the id of the entry before, "" for the first
    node: str  # who appended it
    workspace: str


class Changes(Entry, frozen=True, tag="changes", array_like=True):
    """A group: the changeset of its transactions, here or in a blob."""

    revision: int
    changeset: bytes
    blob: str = ""


class Migrated(Entry, frozen=True, tag="migrated", array_like=True):
    """A step of the schema: every node runs its own copy of the migration, which must be the same."""

    number: int
    digest: bytes


class Snapshotted(Entry, frozen=True, tag="snapshot", array_like=True):
    """A copy of the whole store as it was at a position, in a blob: whoever joins can start there."""

    position: int
    revision: int
    blob: str


AnyEntry = Changes | Migrated | Snapshotted

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyEntry).decode
_CHECKSUM = 4


def seal(body: bytes) -> bytes:
    """Bytes with their checksum before them, as they are given to the log."""
    return zlib.crc32(body).to_bytes(_CHECKSUM, "big") + body


def unseal(raw: bytes, what: str) -> bytes:
    """What was sealed; Corrupt if it is not that any more."""
    body = raw[_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != raw[:_CHECKSUM]:
        raise errors.Corrupt(f"{what} in the log is damaged", hint="restore the log from its own replicas or backups")
    return body


def to_bytes(entry: AnyEntry) -> bytes:
    """An entry as it stands in the log."""
    return seal(_encode(entry))


def from_bytes(raw: bytes, position: int) -> AnyEntry:
    """An entry of the log; Corrupt if it is not what was appended."""
    body = unseal(raw, f"the entry at {position}")
    try:
        entry: AnyEntry = _decode(body)
    except msgspec.DecodeError as error:
        raise errors.Behind(
            f"the entry at {position} of the log is of a kind that this program does not know",
            hint="upgrade holdfast on this node and start it again",
        ) from error
    return entry
