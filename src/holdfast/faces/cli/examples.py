"""The examples of commands made by hand, for help and docs/cli.md. Those of operations are in the domains' tables.

Every command has one, and a test runs each: first the lines it needs, then the line itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.route import Example, example

if TYPE_CHECKING:
    from holdfast.faces.cli.command import Command


_NEW: Final = "holdfast turn init --agent ada --agent bob --maintainer mia"
_LOCKED: Final = (_NEW, "holdfast turn lock WORKLOG.md --holder ada --reason 'weekly review'")
_TURN_MAIL: Final = (_NEW, "holdfast turn mail send --from bob --to ada --subject 'Which glaze?'")
_ID: Final = "$(holdfast turn mail list -q)"
_TASK: Final = (_NEW, "holdfast turn tasks add glaze 'Mix the glaze' --actor bob")
_HITS: Final = "holdfast stash create hits --type counter"
_CYCLE: Final = "holdfast cycle start --spec login"
_PLANNING: Final = (_CYCLE, "holdfast cycle start-phase peer:spec:login plan")
_SAVED: Final = (*_PLANNING, "holdfast cycle export --dir peer-state")
_SERVER: Final = "http://127.0.0.1:4653"

EXAMPLES: Final[dict[str, tuple[str | Example, ...]]] = {
    "edit": ("EDITOR='sed -i s/Write/Rewrite/' holdfast edit hf-7k2q",),
    "tree": ("holdfast tree", "holdfast tree hf-7k2q"),
    "export": ("holdfast export tasks.jsonl", "holdfast export | grep parser"),
    "import": (
        example("holdfast import tasks.jsonl --dry-run", "holdfast export tasks.jsonl"),
        example(
            "holdfast import .beads/issues.jsonl --format beads",
            "mkdir .beads",
            """echo '{"id": "bd-1", "title": "Old work", "status": "open", "priority": 2, "issue_type": "task","""
            """ "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}'"""
            " > .beads/issues.jsonl",
        ),
    ),
    "cycle validate": (
        example("holdfast cycle validate peer-state/peer.spec.login.cycle.1.json", *_SAVED),
        example("holdfast cycle document peer:spec:login | holdfast cycle validate -", _CYCLE),
    ),
    "cycle show": (example("holdfast cycle show peer:spec:login", *_PLANNING),),
    "cycle export": (
        example("holdfast cycle export --dir peer-state", *_PLANNING),
        example("holdfast cycle export peer:spec:login:cycle:1 --dir peer-state --dry-run", *_SAVED),
        example("holdfast cycle export --dir peer-state --mine peer:spec:login:cycle:1", *_SAVED),
    ),
    "cycle import": (
        example("holdfast cycle import --dir peer-state --dry-run", *_SAVED),
        example("holdfast cycle import --dir peer-state --skip-bad", *_SAVED),
        example("holdfast cycle import --dir peer-state --theirs peer:spec:login:cycle:1", *_SAVED),
    ),
    "cycle old-keys": (
        example("holdfast cycle old-keys --dir peer-state", *_SAVED),
        example("holdfast cycle old-keys --dir peer-state --remove", *_SAVED),
    ),
    "stash export": (
        example("holdfast stash export shared", _HITS),
        example("holdfast stash export shared --replace", _HITS, "holdfast stash export shared"),
    ),
    "stash import": (
        example("holdfast stash import shared --dry-run", _HITS, "holdfast stash export shared"),
        example("holdfast stash import shared --dir copy", _HITS, "holdfast stash export shared"),
    ),
    "prime": ("holdfast prime", "holdfast prime --budget 1000"),
    "setup": (
        "holdfast setup claude",
        example("holdfast setup claude --check", "holdfast setup claude"),
        example("holdfast setup git --remove", "holdfast setup git"),
    ),
    "run": (
        example("holdfast run --task hf-7k2q --done -- make test", "printf 'test:\\n\\techo passed\\n' > Makefile"),
        "holdfast run --next --loop -- sh -c 'echo working on $HOLDFAST_TASK'",
    ),
    "guard": (
        example("holdfast guard src/parser/rules.py && echo 'next rule' >> src/parser/rules.py", "mkdir -p src/parser"),
        example(
            "holdfast guard src/parser/rules.py  # exit code 12: agent-2 has locked it",
            "holdfast path lock 'src/parser/**' --ttl 1h --actor agent-2",
        ),
        example("holdfast guard --staged", "echo 'Comments begin with a hash.' > notes.md", "git add notes.md"),
    ),
    "turn init": ("holdfast turn init --project kiln --agent ada --agent bob --maintainer mia",),
    "turn status": (example("holdfast turn status", _NEW), example("holdfast turn status --json", _NEW)),
    "turn check": (
        example("holdfast turn check", _NEW),
        "holdfast turn check --dir elsewhere  # exit code 2: there is no ledger",
    ),
    "turn tidy": (
        example("holdfast turn tidy --dry-run --actor ada", _NEW),
        example("holdfast turn tidy --actor ada", _NEW),
    ),
    "turn lint": (
        example("holdfast turn lint", _NEW),
        example("holdfast turn lint working-session/TURNFILE.yaml", _NEW),
    ),
    "turn lock": (
        example("holdfast turn lock MAILBOX.md WORKLOG.md --holder ada --reason 'weekly review'", _NEW),
        example(
            "holdfast turn lock WORKLOG.md --holder bob --reason x --no-wait  # exit code 12: ada has it", *_LOCKED
        ),
    ),
    "turn unlock": (example("holdfast turn unlock LOCK-ada-001 --holder ada", *_LOCKED),),
    "turn renew": (
        example("holdfast turn renew LOCK-ada-001 --holder ada", *_LOCKED),
        example("holdfast turn renew --holder ada", *_LOCKED),
    ),
    "turn clear": (example("holdfast turn clear --actor bob", *_LOCKED),),
    "turn override": (
        example(
            "holdfast turn override LOCK-ada-001 --reason 'P0: ada is gone, the release waits' --actor mia", *_LOCKED
        ),
    ),
    "turn edit": (
        example("holdfast turn edit WORKLOG.md --holder ada --reason 'log it' --editor 'sed -i s/none/beta/'", _NEW),
        example(
            "diff -u working-session/docs/README.md new.md > new.patch;"
            " holdfast turn edit --patch new.patch --holder ada --reason 'a new line'",
            _NEW,
            "(cat working-session/docs/README.md; echo '- plan.md: the plan') > new.md",
        ),
    ),
    "turn transact": (
        example(
            "holdfast turn transact WORKLOG.md --holder ada --reason 'log it' -- sh -c 'echo - done >> WORKLOG.md'",
            _NEW,
        ),
    ),
    "turn tasks list": (example("holdfast turn tasks list", *_TASK),),
    "turn tasks add": (
        example("holdfast turn tasks add fire 'Fire the kiln' --priority P0 --depends-on glaze --actor ada", *_TASK),
    ),
    "turn tasks claim": (example("holdfast turn tasks claim glaze --actor ada", *_TASK),),
    "turn tasks done": (
        example("holdfast turn tasks done glaze --actor ada", *_TASK, "holdfast turn tasks claim glaze --actor ada"),
    ),
    "turn signal": (example("holdfast turn signal handoff 'the kiln is hot' --from ada --to bob", _NEW),),
    "turn mail send": (
        example("holdfast turn mail send --from bob --to ada --subject 'Which glaze?' --body 'Blue is out.'", _NEW),
        example(
            "echo 'Gas is cheap today.' | holdfast turn mail send --from ada --to mia --subject 'Fire?' --body -", _NEW
        ),
    ),
    "turn mail list": (example("holdfast turn mail list --actor ada", *_TURN_MAIL),),
    "turn mail show": (example(f"holdfast turn mail show {_ID}", *_TURN_MAIL),),
    "turn mail verify": (
        example(
            "holdfast turn mail verify $(cat id)",
            _NEW,
            "echo green > glaze.txt",
            "holdfast turn mail send --from bob --to ada --subject Glaze --attach glaze.txt -q > id",
        ),
    ),
    "turn mail reply": (example(f"holdfast turn mail reply {_ID} --body 'Take green.' --actor ada", *_TURN_MAIL),),
    "turn mail ack": (example(f"holdfast turn mail ack {_ID} --actor ada", *_TURN_MAIL),),
    "turn mail action": (example(f"holdfast turn mail action {_ID} 'it is green' --actor ada", *_TURN_MAIL),),
    "turn mail block": (
        example(
            f"holdfast turn mail block {_ID} 'no samples yet' --actor ada",
            *_TURN_MAIL,
            f"holdfast turn mail ack {_ID} --actor ada",
        ),
    ),
    "turn mail close": (example(f"holdfast turn mail close {_ID} 'settled' --actor bob", *_TURN_MAIL),),
    "turn mail export": (
        example("holdfast turn mail export working-session/MAILBOX.md working-session/MAILBOX.json", _NEW),
    ),
    "watch": (
        "holdfast watch --for task.hf-7k2q --once --timeout 10m",
        "holdfast watch --after 0 --once --json",
        "holdfast watch --kind message --timeout 1s  # exit code 3: nothing came",
    ),
    "log": ("holdfast log --since 12h --summary", "holdfast log --actor agent-1 --kind task --limit 10"),
    "init": ("holdfast init", "holdfast init --dir ../shared"),
    "where": ("holdfast where",),
    "doctor": ("holdfast doctor",),
    "backup": ("holdfast backup", "holdfast backup monday.backup", "holdfast backup --list"),
    "restore": (
        example("holdfast restore", "holdfast backup"),
        example("holdfast restore latest", "holdfast backup", "git clean -fdxq"),
        example("holdfast restore monday.backup --dir ../restored", "holdfast backup monday.backup"),
    ),
    "share": (example("holdfast share", "holdfast share on"),),
    "share on": ("holdfast share on", "holdfast share on --notes --authors"),
    "share off": (example("holdfast share off", "holdfast share on"),),
    "share status": (example("holdfast share status", "holdfast share on"),),
    "upgrade": ("holdfast upgrade",),
    "version": ("holdfast version", "holdfast version --json"),
    "replicate": ("holdfast replicate 'postgresql://db.example.com/fleet?workspace=a' --create",),
    "detach": ("holdfast detach",),
    "rebuild": ("holdfast rebuild",),
    "serve": (
        "holdfast serve --port 0",
        "holdfast serve --port 0 --tls auto --backup-dir ../backups --backup-every 1h",
    ),
    "login": (f"holdfast login {_SERVER} --token-file .holdfast/token", f"holdfast login {_SERVER} < .holdfast/token"),
    "session list": ("holdfast session list",),
    "session revoke": ("holdfast session revoke --all",),
    "ui": ("holdfast ui --no-open",),
    "token create": ("holdfast token create --role agent --actor agent-1 --note laptop",),
    "token list": (example("holdfast token list", "holdfast token create --note laptop"),),
    "token revoke": (example("holdfast token revoke $(holdfast token list | cut -d' ' -f1)", "holdfast token create"),),
    "mcp": ("holdfast mcp", "holdfast mcp --turn-dir working-session --actor ann"),
    "demo": ("holdfast demo --agents 3 --items 4 --seed 7",),
    "bench": ("holdfast bench --count 100",),
    "help": ("holdfast help", "holdfast help claim", "holdfast help exit-codes"),
    "completion": ("source <(holdfast completion bash)", "holdfast completion fish > holdfast.fish"),
    "schema": ("holdfast schema ready",),
}


def examples_of(command: Command) -> tuple[Example, ...]:
    """The examples of a command: its own, or those of its operation."""
    found = EXAMPLES.get(command.name) or (() if command.op is None else command.op.route.examples)
    return tuple(Example(each) if isinstance(each, str) else each for each in found)
