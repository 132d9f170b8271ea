"""The examples of `holdfast turn`, which `examples` has with all the others: of a session of ada and bob, and mia."""

from __future__ import annotations

from typing import Final

from holdfast.faces.cli.example import Example

_NEW: Final = "holdfast turn init --agent ada --agent bob --maintainer mia"
_LOCKED: Final = (_NEW, "holdfast turn lock WORKLOG.md --holder ada --reason 'weekly review'")
_MAIL: Final = (_NEW, "holdfast turn mail send --from bob --to ada --subject 'Which glaze?'")
_ID: Final = "$(holdfast turn mail list -q)"
_TASK: Final = (_NEW, "holdfast turn tasks add glaze 'Mix the glaze' --actor bob")

TURN_EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "turn init": (Example("holdfast turn init --project kiln --agent ada --agent bob --maintainer mia"),),
    "turn status": (Example("holdfast turn status", (_NEW,)), Example("holdfast turn status --json", (_NEW,))),
    "turn check": (
        Example("holdfast turn check", (_NEW,)),
        Example("holdfast turn check --dir elsewhere  # exit code 2: there is no ledger", code=2),
    ),
    "turn lint": (
        Example("holdfast turn lint", (_NEW,)),
        Example("holdfast turn lint working-session/TURNFILE.yaml", (_NEW,)),
    ),
    "turn lock": (
        Example("holdfast turn lock MAILBOX.md WORKLOG.md --holder ada --reason 'weekly review'", (_NEW,)),
        Example(
            "holdfast turn lock WORKLOG.md --holder bob --reason x --no-wait  # exit code 12: ada has it",
            _LOCKED,
            code=12,
        ),
    ),
    "turn unlock": (Example("holdfast turn unlock LOCK-ada-001 --holder ada", _LOCKED),),
    "turn renew": (
        Example("holdfast turn renew LOCK-ada-001 --holder ada", _LOCKED),
        Example("holdfast turn renew --holder ada", _LOCKED),
    ),
    "turn clear": (Example("holdfast turn clear --actor bob", _LOCKED),),
    "turn override": (
        Example(
            "holdfast turn override LOCK-ada-001 --reason 'P0: ada is gone, the release waits' --actor mia", _LOCKED
        ),
    ),
    "turn edit": (
        Example("holdfast turn edit WORKLOG.md --holder ada --reason 'log it' --editor 'sed -i s/none/beta/'", (_NEW,)),
        Example(
            "diff -u working-session/docs/README.md new.md | sed 's,new.md,docs/README.md,' > new.patch;"
            " holdfast turn edit --patch new.patch --holder ada --reason 'a new line'",
            (_NEW, "(cat working-session/docs/README.md; echo '- plan.md: the plan') > new.md"),
        ),
    ),
    "turn transact": (
        Example(
            "holdfast turn transact WORKLOG.md --holder ada --reason 'log it' -- sh -c 'echo - done >> WORKLOG.md'",
            (_NEW,),
        ),
    ),
    "turn tasks list": (Example("holdfast turn tasks list", _TASK),),
    "turn tasks add": (
        Example("holdfast turn tasks add fire 'Fire the kiln' --priority P0 --depends-on glaze --actor ada", _TASK),
    ),
    "turn tasks claim": (Example("holdfast turn tasks claim glaze --actor ada", _TASK),),
    "turn tasks done": (
        Example("holdfast turn tasks done glaze --actor ada", (*_TASK, "holdfast turn tasks claim glaze --actor ada")),
    ),
    "turn signal": (Example("holdfast turn signal handoff 'the kiln is hot' --from ada --to bob", (_NEW,)),),
    "turn mail send": (
        Example("holdfast turn mail send --from bob --to ada --subject 'Which glaze?' --body 'Blue is out.'", (_NEW,)),
        Example(
            "echo 'Gas is cheap today.' | holdfast turn mail send --from ada --to mia --subject 'Fire?' --body -",
            (_NEW,),
        ),
    ),
    "turn mail list": (Example("holdfast turn mail list --actor ada", _MAIL),),
    "turn mail show": (Example(f"holdfast turn mail show {_ID}", _MAIL),),
    "turn mail reply": (Example(f"holdfast turn mail reply {_ID} --body 'Take green.' --actor ada", _MAIL),),
    "turn mail ack": (Example(f"holdfast turn mail ack {_ID} --actor ada", _MAIL),),
    "turn mail action": (Example(f"holdfast turn mail action {_ID} 'it is green' --actor ada", _MAIL),),
    "turn mail block": (
        Example(
            f"holdfast turn mail block {_ID} 'no samples yet' --actor ada",
            (*_MAIL, f"holdfast turn mail ack {_ID} --actor ada"),
        ),
    ),
    "turn mail close": (Example(f"holdfast turn mail close {_ID} 'settled' --actor bob", _MAIL),),
    "turn mail export": (
        Example("holdfast turn mail export working-session/MAILBOX.md working-session/MAILBOX.json", (_NEW,)),
    ),
}
