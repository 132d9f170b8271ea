"""What a client's hooks receive and return.

             start: tells the agent   compact                        edit: refuses                   after: tells
    claude   SessionStart             PreCompact: for the summary    PreToolUse, exit 2 and stderr   PostToolUse
    codex    SessionStart             PreCompact: unheard            PreToolUse, exit 2 and stderr   PostToolUse
    gemini   SessionStart             PreCompress: unheard           BeforeTool, exit 2 and stderr   AfterTool
    cursor   sessionStart             preCompact: unheard            preToolUse, exit 0 and JSON     postToolUse

What is new the agent hears before a prompt of the person (UserPromptSubmit, BeforeAgent of Gemini; Cursor lets it hear
nothing there), and while it works after a command of its shell or an edit, of which Claude Code tells it before.
When the agent wants to stop (Stop, AfterAgent of Gemini, stop of Cursor) it can be sent on with a text. The end
of a session (SessionEnd, sessionEnd of Cursor, which Codex does not report) speaks to nobody. Claude Code and Codex run
SessionStart again after a compaction. With any exit code but 0 and 2 a hook has failed, and the client continues.
Called by `holdfast prime --hook` and `holdfast guard --hook`, before every edit: this module loads nothing for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from holdfast.client_sessions import session_actor
from holdfast.errors import Invalid

Event = Literal["start", "compact", "edit", "after", "prompt", "stop", "end"]

_EVENTS: Final[Mapping[str, Event]] = {
    "sessionstart": "start",
    "precompact": "compact",
    "precompress": "compact",
    "userpromptsubmit": "prompt",
    "beforeagent": "prompt",
    "stop": "stop",
    "afteragent": "stop",
    "sessionend": "end",
    "pretooluse": "edit",
    "beforetool": "edit",
    "posttooluse": "after",
    "aftertool": "after",
}
_NAMES: Final = {"prompt": "UserPromptSubmit", "after": "PostToolUse"}
_NAMES_OF_GEMINI: Final = {"prompt": "BeforeAgent", "after": "AfterTool"}
_PATHS: Final = ("file_path", "notebook_path", "path", "target_file")

PROBE: Final = "holdfast-setup-check"  # the session of a check by `setup`, which leaves no record
Answer = tuple[str, str, int]  # what a hook prints on standard output and on standard error, and its exit code


def client_of(named: str, payload: Any) -> str:
    """Return the calling client: Cursor runs Claude Code's hooks too, and must be the same agent in both."""
    return "cursor" if isinstance(payload, dict) and "cursor_version" in payload else named


def event_of(payload: Any) -> Event | None:
    """Return what is about to happen; None if we have no hook for it."""
    name = _text(payload, "hook_event_name")
    return _EVENTS.get(name.lower()) if name else None


def session_of(client: str, payload: Any) -> str | None:
    """Return the id of the session; it stays the same when the context is compacted."""
    keys = ("conversation_id", "session_id") if client == "cursor" else ("session_id",)
    return next((found for key in keys if (found := _text(payload, key))), None)


def follows(payload: Any) -> bool:
    """Whether a session that starts is the one that its client goes on with, instead of the one before."""
    return _text(payload, "source") in ("clear", "resume")


def goes_on(payload: Any) -> bool:
    """Whether the agent works because a hook sent it on when it wanted to stop."""
    return isinstance(payload, dict) and bool(payload.get("stop_hook_active") or payload.get("loop_count"))


def actor_of(client: str, payload: Any, environ: Mapping[str, str]) -> str | None:
    """Return the session's name: HOLDFAST_ACTOR, which its commands heed too, else one made of its id; or None."""
    session = session_of(client, payload)
    return environ.get("HOLDFAST_ACTOR") or (session_actor(client, session) if session else None)


def paths_of(client: str, payload: Any) -> list[str]:
    """Return the files that are about to be edited, absolute if the payload names the working folder.

    Raises Invalid for an edit that names none in a form that is known: nobody can say whether it is allowed.
    """
    call = payload.get("tool_input") if isinstance(payload, dict) else None
    if client == "codex":
        from holdfast.faces.cli.setup.patches import patched

        in_shell = _text(payload, "tool_name") == "Bash"
        found = patched(call, in_shell)
        if in_shell and not found:
            return []  # no patch
    else:
        found = [path for key in _PATHS if (path := _text(call, key))]
    if not found:
        hint = "its client may be newer than this holdfast, or the hook is registered for a tool that edits no file"
        raise Invalid("the call of the hook names no file to edit in a form that is known", hint=hint)
    folder = folder_of(payload)
    return list(dict.fromkeys(os.path.join(folder, _checked(path)) for path in found))


def folder_of(payload: Any) -> str:
    """Return the folder that a call counts from; empty if it does not say. Raises Invalid if it can be none."""
    roots = payload.get("workspace_roots") if isinstance(payload, dict) else None
    folder = _text(payload, "cwd") or (str(roots[0]) if isinstance(roots, list) and roots else "")
    call = payload.get("tool_input") if isinstance(payload, dict) else None
    return _checked(os.path.join(folder, _text(call, "workdir") or ""))


def _checked(path: str) -> str:
    """Return a path. Raises Invalid if no file can have it."""
    if "\0" in path:
        raise Invalid(f"the call of the hook names a path with a NUL: {path[:80]!r}", hint="no file has such a name")
    return path


def hears(client: str, event: Event) -> bool:
    """Whether the agent hears what a hook says there: of an edit that is allowed, only in Claude Code."""
    return event != "edit" or client == "claude"


def answer(client: str, event: Event, text: str, blocked: bool = False) -> Answer:
    """Format `text` for the client; `blocked` refuses an edit, and `text` is the reason."""
    nothing = "{}" if client in ("cursor", "gemini") else ""  # these two always expect JSON
    if event == "edit":
        if not blocked:
            return _context("PreToolUse", text) if hears(client, event) and text.strip() else nothing, "", 0
        reason = text.strip() or "another agent has locked this path"
        if client == "cursor":
            denied = {"permission": "deny", "user_message": reason, "agent_message": reason}
            return _json(denied), "", 0
        return "", reason + "\n", 2
    if not text.strip() or event == "end":
        return nothing, "", 0
    if event == "stop":
        if client == "cursor":
            return _json({"followup_message": text}), "", 0
        return _json({"decision": "deny" if client == "gemini" else "block", "reason": text}), "", 0
    if event == "compact":
        return (f"Keep in the summary:\n{text}" if client == "claude" else nothing), "", 0
    if client == "cursor":
        return _json({"additional_context": text}), "", 0
    names = _NAMES_OF_GEMINI if client == "gemini" else _NAMES
    return _context(names.get(event, "SessionStart"), text), "", 0


def _context(event: str, text: str) -> str:
    return _json({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})


def _json(value: Any) -> str:
    """In ASCII, whatever the client's locale is. A hook that has nothing to say does not load json."""
    import json

    return json.dumps(value)


def _text(payload: Any, key: str) -> str | None:
    found = payload.get(key) if isinstance(payload, dict) else None
    return found if isinstance(found, str) and found else None
