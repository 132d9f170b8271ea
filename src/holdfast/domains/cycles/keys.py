"""The keys of cycles: `peer:spec:NAME:cycle:N`, `peer:instruction:NAME:cycle:N`, `peer:global:cycle:N`.

Dots are taken for colons everywhere: a key of a NATS bucket may not have colons. So a name has neither. Without
`:cycle:N` a key is a *prefix*, and means the current cycle of that prefix.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast import errors

GLOBAL: Final = "peer:global"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_=-]{0,199}"
_PREFIX: Final = re.compile(rf"peer:(?:(spec|instruction):({_NAME})|global)")
_KEY: Final = re.compile(rf"({_PREFIX.pattern}):cycle:([1-9][0-9]{{0,17}})")
_HINT: Final = "such as peer:spec:NAME:cycle:1, peer:instruction:NAME:cycle:1 or peer:global:cycle:1; dots will do"


class Key(msgspec.Struct, frozen=True, order=True):
    """The key of a cycle: its prefix, with colons, and its number."""

    prefix: str
    number: int

    def __str__(self) -> str:
        return f"{self.prefix}:cycle:{self.number}"

    @property
    def dotted(self) -> str:
        """The same as a bucket can have it."""
        return str(self).replace(":", ".")

    @property
    def spec(self) -> str | None:
        """The name of the spec, if it is that of one."""
        return self._name_of("spec")

    @property
    def instruction(self) -> str | None:
        """The name of the instruction, if it is that of one."""
        return self._name_of("instruction")

    def _name_of(self, kind: str) -> str | None:
        found = _PREFIX.fullmatch(self.prefix)
        return found[2] if found is not None and found[1] == kind else None


def find(text: object) -> Key | None:
    """The key that a text is, or None."""
    found = _KEY.fullmatch(text.replace(".", ":")) if isinstance(text, str) else None
    return None if found is None else Key(found[1], int(found[4]))


def parse(text: object) -> Key:
    """The key that a text is; InvalidID if it is none."""
    key = find(text)
    if key is None:
        raise errors.InvalidID(f"{text!r} is not the key of a cycle", hint=_HINT)
    return key


def find_prefix(text: object) -> str | None:
    """The prefix that a text is, with colons, or None."""
    plain = text.replace(".", ":") if isinstance(text, str) else ""
    return plain if _PREFIX.fullmatch(plain) else None


def prefix_of(spec: str | None, instruction: str | None) -> str:
    """The prefix of the cycles of a spec, or else of an instruction, or else of all that have neither."""
    for kind, name in (("spec", spec), ("instruction", instruction)):
        if name is None:
            continue
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise errors.InvalidName(
                f"{str(name)[:80]!r} cannot be the name of {'a spec' if kind == 'spec' else 'an instruction'}",
                hint="at most 200 ASCII letters, digits, - and _, beginning with a letter or digit",
                what=kind,
            )
    if spec is not None:
        return f"peer:spec:{spec}"
    return GLOBAL if instruction is None else f"peer:instruction:{instruction}"
