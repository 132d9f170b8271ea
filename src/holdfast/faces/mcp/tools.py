"""The profiles of a workspace: `core`, the tools that agents need all day, and `all`, every operation that can travel.

The core profile is short on purpose: its list is read by every model at the start of every session, so it stays under
3,000 tokens, which a test counts.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, get_args

from holdfast import errors
from holdfast.faces.mcp import locking, mail, resources, state, tasks, watching
from holdfast.faces.mcp.declaring import Tool, tool
from holdfast.faces.mcp.offering import MARKS, Offer
from holdfast.faces.mcp.sessions import Session

INSTRUCTIONS: Final = (
    "Shared tasks, state, locks and mail of a fleet of agents. Work in a circle: task_claim (without id: the best"
    " ready one), do it, task_finish. Note progress with task_update, which keeps your claim alive too. Lock files with"
    " paths before you edit them. Look at mail_inbox between tasks. After FENCED or NOT_CLAIM_OWNER stop that work:"
    f" another has it. {MARKS}"
)
Profile = Literal["core", "all"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
WATCH: Final = tool(watching.watch, reads=True)
CORE: Final = (
    tool(tasks.task_create),
    tool(tasks.task_list, reads=True),
    tool(tasks.task_show, reads=True),
    tool(tasks.task_claim),
    tool(tasks.task_update),
    tool(tasks.task_finish),
    tool(state.cell_get, reads=True),
    tool(state.cell_set),
    tool(locking.lock),
    tool(locking.paths),
    tool(mail.mail_send),
    tool(mail.mail_inbox),
    WATCH,
)


@cache
def tools_of(profile: str, turns: bool = False) -> dict[str, Tool]:
    """The tools of a profile, by name; `turns`: with those for turn files, which only the profile `all` has."""
    if profile == "core":
        return {each.name: each for each in CORE}
    if profile == "all":
        from holdfast.faces.mcp import turning
        from holdfast.faces.mcp.everything import derived

        return {each.name: each for each in (*derived(), WATCH, *(turning.TOOLS if turns else ()))}
    raise errors.Invalid(f"there is no profile {profile[:80]!r}", hint=f"there are {', '.join(PROFILES)}")


def _offered(session: Session) -> dict[str, Tool]:
    return tools_of(*session.tools)


WORKSPACE: Final = Offer(INSTRUCTIONS, _offered, resources.FIXED, resources.TEMPLATES, resources.read)
