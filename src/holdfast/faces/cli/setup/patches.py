"""The files of a patch that Codex applies, from its own tool or out of a shell command, and the folder they count from.

Of a command only what can be read for certain is taken: `apply_patch` alone, or after one `cd FOLDER`. Anything else
around a patch might change the folder, so nobody can say which files it edits.

Called before every edit in Codex, so this module loads `shlex` only where a folder or a shell is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from holdfast.errors import Invalid

_PATCHED: Final = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_BEGIN: Final = "*** Begin Patch"
_NAMES: Final = ("apply_patch", "applypatch")
_SHELLS: Final = ("sh", "bash", "zsh", "dash")
_SPECIAL: Final = set("$`*?[]{}()<>|&;!~#\n")  # with these in it, a shell may read a word in another way


def patched(call: Any, in_shell: bool) -> list[str]:
    """Return the files that a call patches; none for a shell command without a patch. Raises Invalid if unclear."""
    script = _script(call)
    if _BEGIN not in script:
        return [] if in_shell else list(_files(script))
    before, begin, patch = script.partition(_BEGIN)
    if any(line.lstrip().startswith(_BEGIN) for line in patch.splitlines()):
        raise _unclear("it has more than one patch")
    is_plain = not in_shell and not any(name in before for name in _NAMES)
    folder = "" if is_plain else _folder(before.strip())
    return [os.path.join(folder, path) for path in _files(begin + patch)]


def _script(call: Any) -> str:
    """What a shell would read, without the shell around it."""
    words = call.get("command") if isinstance(call, dict) else None
    if isinstance(words, str) and words.startswith(tuple(f"{shell} -" for shell in _SHELLS)):
        words = _split(words)
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        name = os.path.basename(words[0]) if words else ""
        if name in _SHELLS and len(words) == 3 and words[1] in ("-c", "-lc"):
            return str(words[2])
        if name in _NAMES and len(words) == 2:
            return str(words[1])
    return "\n".join(_texts(call))


def _texts(call: Any) -> Iterator[str]:
    """Every text of a call: a command is one, or a list of words."""
    if isinstance(call, str):
        yield call
    elif isinstance(call, (dict, list)):
        for name, each in call.items() if isinstance(call, dict) else enumerate(call):
            if name != "workdir":
                yield from _texts(each)


def _folder(before: str) -> str:
    """The folder in which a patch is applied, by the words before it: empty for the current one."""
    if not before:
        return ""
    first, name, opening = max((before.rpartition(each) for each in _NAMES), key=lambda parts: len(parts[0] + parts[1]))
    if not name or set(opening.replace("$(cat <<", "<<")) & set(";&|`(\n"):
        raise _unclear("it is not given to apply_patch alone")
    first = first.strip(" \t\r")
    if not first:
        return ""
    for end in ("&&", ";", "\n"):
        if first.endswith(end):
            words = _split(first.removesuffix(end))
            named = words[2:] if words[:2] == ["cd", "--"] else words[1:]
            if words[:1] == ["cd"] and len(named) == 1 and named[0] != "-" and not set(first[: -len(end)]) & _SPECIAL:
                return named[0]
    raise _unclear("a command before it may change the folder")


def _split(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return []


def _unclear(why: str) -> Invalid:
    hint = "use the tool apply_patch, or a command that is only: cd FOLDER && apply_patch, with a plain name"
    return Invalid(f"nobody can tell which files this patch edits: {why}", hint=hint)


def _files(patch: str) -> Iterator[str]:
    """The files that a patch names."""
    for line in patch.split("\n"):
        start = line.lstrip()  # of all white space, as Codex does
        for words in _PATCHED:
            if start.startswith(words) and (path := start.removeprefix(words).rstrip()):
                yield path
