"""Checks of what people and agents write: titles, bodies, notes. What passes can be stored, shown and found again."""

from __future__ import annotations

from typing import Final

from holdfast import errors

MAX_NOTE: Final = 65_536
LIMITS: Final = "see limits in config.yaml"


def check_text(text: str, what: str, most: int, hint: str = "") -> str:
    """Text that can be stored, of at most so many bytes."""
    if type(text) is not str:
        raise errors.InvalidValue(f"{what} is text, not {type(text).__name__}", hint="pass a str")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidValue(f"{what} has a lone surrogate at position {error.start}", hint="") from error
    if "\0" in text:
        raise errors.InvalidValue(f"{what} has a NUL character", hint="")
    if size > most:
        raise errors.TooLarge(f"{what} has {size} bytes; {most} is the most", hint=hint, limit=most)
    return text


def check_line(text: str, what: str, most: int) -> str:
    """One line that is not blank, of at most so many characters, without what could steer a terminal."""
    if type(text) is str and len(text) > most:
        raise errors.TooLarge(f"{what} has {len(text)} characters; {most} is the most", hint=LIMITS, limit=most)
    check_text(text, what, 4 * most)
    if not text.strip():
        raise errors.InvalidValue(f"{what} is empty", hint="say in one line what is to be done")
    at = next((at for at, char in enumerate(text) if char < " " or "\x7f" <= char < "\xa0"), None)
    if at is not None:
        raise errors.InvalidValue(
            f"{what} has the control character U+{ord(text[at]):04X} at position {at}", hint="it is one line of text"
        )
    return text


def check_note(note: str | None, what: str = "note") -> str | None:
    """A note or reason, or None."""
    return None if note is None else check_text(note, what, MAX_NOTE)
