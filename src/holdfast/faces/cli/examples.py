"""The examples of commands made by hand, for help and docs/cli.md. Those of operations are in the domains' tables.

Every command has one, and a test runs each: first the lines it needs, then the line itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.route import Example

if TYPE_CHECKING:
    from holdfast.faces.cli.command import Command


_NEW: Final = "holdfast turn init --agent ada --agent bob --maintainer mia"
_LOCKED: Final = (_NEW, "holdfast turn lock WORKLOG.md --holder ada --reason 'weekly review'")
_TURN_MAIL: Final = (_NEW, "holdfast turn mail send --from bob --to ada --subject 'Which glaze?'")
_ID: Final = "$(holdfast turn mail list -q)"
_TASK: Final = (_NEW, "holdfast turn tasks add glaze 'Mix the glaze' --actor bob")

TURN_EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "turn init": (Example("holdfast turn init --project kiln --agent ada --agent bob --maintainer mia"),),
    "turn status": (Example("holdfast turn status", (_NEW,)), Example("holdfast turn status --json", (_NEW,))),
    "turn check": (
        Example("holdfast turn check", (_NEW,)),
        Example("holdfast turn check --dir elsewhere  # exit code 2: there is no ledger"),
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
    "turn mail list": (Example("holdfast turn mail list --actor ada", _TURN_MAIL),),
    "turn mail show": (Example(f"holdfast turn mail show {_ID}", _TURN_MAIL),),
    "turn mail reply": (Example(f"holdfast turn mail reply {_ID} --body 'Take green.' --actor ada", _TURN_MAIL),),
    "turn mail ack": (Example(f"holdfast turn mail ack {_ID} --actor ada", _TURN_MAIL),),
    "turn mail action": (Example(f"holdfast turn mail action {_ID} 'it is green' --actor ada", _TURN_MAIL),),
    "turn mail block": (
        Example(
            f"holdfast turn mail block {_ID} 'no samples yet' --actor ada",
            (*_TURN_MAIL, f"holdfast turn mail ack {_ID} --actor ada"),
        ),
    ),
    "turn mail close": (Example(f"holdfast turn mail close {_ID} 'settled' --actor bob", _TURN_MAIL),),
    "turn mail export": (
        Example("holdfast turn mail export working-session/MAILBOX.md working-session/MAILBOX.json", (_NEW,)),
    ),
}


_PATH: Final = "holdfast path lock 'src/parser/**' --ttl 1h"
_THEIRS: Final = f"{_PATH} --actor agent-2"
_RULES: Final = ("mkdir -p src/parser",)
_HITS: Final = "holdfast stash create hits --type counter"
_CYCLE: Final = "holdfast cycle start --spec login"
_PLANNING: Final = (_CYCLE, "holdfast cycle start-phase peer:spec:login plan")
_SAVED: Final = (*_PLANNING, "holdfast cycle export --dir peer-state")
_NOTES: Final = "echo 'Comments begin with a hash.' > notes.md"
_SERVER: Final = "http://127.0.0.1:4653"

EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "tree": (Example("holdfast tree"), Example("holdfast tree hf-7k2q")),
    "export": (Example("holdfast export tasks.jsonl"), Example("holdfast export | grep parser")),
    "import": (
        Example("holdfast import tasks.jsonl --dry-run", ("holdfast export tasks.jsonl",)),
        Example(
            "holdfast import .beads/issues.jsonl --format beads",
            (
                "mkdir .beads",
                """echo '{"id": "bd-1", "title": "Old work", "status": "open", "priority": 2, "issue_type": "task","""
                """ "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}'"""
                " > .beads/issues.jsonl",
            ),
        ),
    ),
    "cycle validate": (
        Example("holdfast cycle validate peer-state/peer.spec.login.cycle.1.json", _SAVED),
        Example("holdfast cycle document peer:spec:login | holdfast cycle validate -", (_CYCLE,)),
    ),
    "cycle show": (Example("holdfast cycle show peer:spec:login", _PLANNING),),
    "cycle export": (
        Example("holdfast cycle export --dir peer-state", _PLANNING),
        Example("holdfast cycle export peer:spec:login:cycle:1 --dir peer-state --dry-run", _SAVED),
        Example("holdfast cycle export --dir peer-state --mine peer:spec:login:cycle:1", _SAVED),
    ),
    "cycle import": (
        Example("holdfast cycle import --dir peer-state --dry-run", _SAVED),
        Example("holdfast cycle import --dir peer-state --skip-bad", _SAVED),
        Example("holdfast cycle import --dir peer-state --theirs peer:spec:login:cycle:1", _SAVED),
    ),
    "stash export": (
        Example("holdfast stash export shared", (_HITS,)),
        Example("holdfast stash export shared --replace", (_HITS, "holdfast stash export shared")),
    ),
    "stash import": (
        Example("holdfast stash import shared --dry-run", (_HITS, "holdfast stash export shared")),
        Example("holdfast stash import shared --dir copy", (_HITS, "holdfast stash export shared")),
    ),
    "prime": (Example("holdfast prime"), Example("holdfast prime --budget 1000")),
    "setup": (
        Example("holdfast setup claude"),
        Example("holdfast setup claude --check", ("holdfast setup claude",)),
        Example("holdfast setup git --remove", ("holdfast setup git",)),
    ),
    "run": (
        Example("holdfast run --task hf-7k2q --done -- make test", ("printf 'test:\\n\\techo passed\\n' > Makefile",)),
    ),
    "guard": (
        Example("holdfast guard src/parser/rules.py && echo 'next rule' >> src/parser/rules.py", _RULES),
        Example("holdfast guard src/parser/rules.py  # exit code 12: agent-2 has locked it", (_THEIRS,)),
        Example("holdfast guard --staged", (_NOTES, "git add notes.md")),
    ),
    **TURN_EXAMPLES,
    "watch": (
        Example("holdfast watch --for task.hf-7k2q --once --timeout 10m"),
        Example("holdfast watch --after 0 --once --json"),
        Example("holdfast watch --kind message --timeout 1s  # exit code 3: nothing came"),
    ),
    "log": (
        Example("holdfast log --since 12h --summary"),
        Example("holdfast log --actor agent-1 --kind task --limit 10"),
    ),
    "init": (Example("holdfast init"), Example("holdfast init --dir ../shared")),
    "where": (Example("holdfast where"),),
    "doctor": (Example("holdfast doctor"),),
    "backup": (Example("holdfast backup"), Example("holdfast backup monday.backup"), Example("holdfast backup --list")),
    "restore": (
        Example("holdfast restore", ("holdfast backup",)),
        Example("holdfast restore latest", ("holdfast backup", "git clean -fdxq")),
        Example("holdfast restore monday.backup --dir ../restored", ("holdfast backup monday.backup",)),
    ),
    "upgrade": (Example("holdfast upgrade"),),
    "serve": (
        Example("holdfast serve --port 0"),
        Example("holdfast serve --port 0 --tls auto --backup-dir ../backups --backup-every 1h"),
    ),
    "login": (
        Example(f"holdfast login {_SERVER} --token-file .holdfast/token"),
        Example(f"holdfast login {_SERVER} < .holdfast/token"),
    ),
    "token create": (Example("holdfast token create --role agent --actor agent-1 --note laptop"),),
    "token list": (Example("holdfast token list", ("holdfast token create --note laptop",)),),
    "token revoke": (
        Example("holdfast token revoke $(holdfast token list | cut -d' ' -f1)", ("holdfast token create",)),
    ),
    "mcp": (Example("holdfast mcp"), Example("holdfast mcp --turn-dir working-session --actor ann")),
    "demo": (Example("holdfast demo --agents 3 --items 4 --seed 7"),),
    "bench": (Example("holdfast bench --count 100"),),
    "help": (Example("holdfast help"), Example("holdfast help claim"), Example("holdfast help exit-codes")),
    "completion": (
        Example("source <(holdfast completion bash)"),
        Example("holdfast completion fish > holdfast.fish"),
    ),
    "schema": (Example("holdfast schema ready"),),
}


def examples_of(command: Command) -> tuple[Example, ...]:
    """The examples of a command: its own, or those of its operation."""
    own = EXAMPLES.get(command.name)
    if own is not None or command.op is None:
        return own or ()
    return tuple(Example(each) if isinstance(each, str) else each for each in command.op.route.examples)
