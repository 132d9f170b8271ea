"""The examples that help and docs/cli.md show. A test runs each: first what is `given`, then the line itself.

They speak of two tasks, hf-7k2q and hf-3m9x, which the test makes, and act as agent-1. Every command has one.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A line of the shell, those that must have been run before it, and the exit code that it ends with."""

    line: str
    given: tuple[str, ...] = ()
    code: int = 0


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


_CLAIM: Final = "holdfast claim hf-7k2q"
_BLOCKED: Final = (_CLAIM, "holdfast block hf-7k2q 'no grammar yet'")
_REVIEWED: Final = (_CLAIM, "holdfast done hf-7k2q --review")
_CLOSED: Final = (_CLAIM, "holdfast done hf-7k2q --no-review")
_CELL: Final = """holdfast cell set run-1 status '"building"'"""
_LOCK: Final = "holdfast lock acquire deploy --ttl 60"
_HELD: Final = f"{_LOCK} --actor agent-2"
_MAIL: Final = "holdfast mail send agent-1 'Which port?' '8080 is taken.' --task hf-7k2q --actor agent-2"
_READ: Final = (_MAIL, "holdfast mail ack $(holdfast mail inbox -q --limit 1)")
_SENT: Final = "holdfast mail send agent-2 'The API is frozen'"
_PATH: Final = "holdfast path lock 'src/parser/**' --ttl 1h"
_THEIRS: Final = f"{_PATH} --actor agent-2"
_RULES: Final = ("mkdir -p src/parser",)
_LEASE: Final = "holdfast lease create 60s"
_TEMPLATE: Final = (
    """holdfast template set release '{"title": "Release {version}", "children": [{"title": "Tag {version}"}]}'"""
    """ --parameters '{"version": null}'"""
)
_TRAIL: Final = "holdfast trail create parser --state active"
_ON_TRAIL: Final = (_TRAIL, "holdfast trail add $(holdfast trail list -q) hf-7k2q")
_GONE: Final = (_TRAIL, "holdfast trail abandon $(holdfast trail list -q)")
_HITS: Final = "holdfast stash create hits --type counter"
_GATE: Final = "holdfast stash create gate --type lock"
_LIMITS: Final = """holdfast stash create limits --type context --value '{"depth": 3}'"""
_SCOPED: Final = (_TRAIL, _HITS, "holdfast link create scoped_to $(holdfast stash list -q) $(holdfast trail list -q)")
_CYCLE: Final = "holdfast cycle start --spec login"
_PLANNING: Final = (_CYCLE, "holdfast cycle start-phase peer:spec:login plan")
_SAVED: Final = (*_PLANNING, "holdfast cycle export --dir peer-state")
_FAILED_CYCLE: Final = (*_PLANNING, "holdfast cycle fail-phase peer:spec:login plan 'no requirements'")
_REVIEWED_CYCLE: Final = (
    _CYCLE,
    *(
        f"holdfast cycle {step}"
        for phase in ("plan", "execute", "express", "review")
        for step in (f"start-phase peer:spec:login {phase}", f"complete-phase peer:spec:login {phase} '{{}}'")
    ),
)
_NOTES: Final = "echo 'Comments begin with a hash.' > notes.md"
_SERVER: Final = "http://127.0.0.1:4653"

EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    # --- tasks ---
    "create": (
        Example("holdfast create 'Write the lexer' --priority 1 --tag core"),
        Example("holdfast create 'Handle comments' --parent hf-7k2q --body - < notes.md", (_NOTES,)),
        Example("id=$(holdfast create 'The build is broken' --type bug -q)"),
    ),
    "list": (
        Example("holdfast list --status open --status blocked --sort -updated"),
        Example("holdfast list --claimed-by agent-1 --json"),
    ),
    "ready": (Example("holdfast ready"), Example("holdfast ready --tag core --limit 5 --json")),
    "show": (Example("holdfast show hf-7k2q"), Example("holdfast show 7k2")),
    "claim": (
        Example(_CLAIM),
        Example("holdfast claim hf-7k2q --ttl 2h"),
    ),
    "next": (
        Example("holdfast next"),
        Example("holdfast next --tag backend --wait 1s  # exit code 4: nothing is ready", code=4),
        Example('while id=$(holdfast next -q); do holdfast done "$id"; done'),
    ),
    "release": (
        Example("holdfast release hf-7k2q 'out of time'", (_CLAIM,)),
        Example("holdfast release hf-7k2q 'agent-2 is gone' --force", (f"{_CLAIM} --actor agent-2",)),
    ),
    "done": (
        Example("holdfast done hf-7k2q 'parses every sample'", (_CLAIM,)),
        Example("""holdfast done hf-7k2q --review --result '{"commit": "1a2b3c4"}'""", (_CLAIM,)),
    ),
    "block": (Example("holdfast block hf-7k2q 'waits for the grammar'", (_CLAIM,)),),
    "unblock": (Example("holdfast unblock hf-7k2q 'the grammar is there'", _BLOCKED),),
    "approve": (Example("holdfast approve hf-7k2q 'merged'", _REVIEWED),),
    "reject": (Example("holdfast reject hf-7k2q 'comments are missing'", _REVIEWED),),
    "close": (Example("holdfast close hf-7k2q 'nobody needs it any more'", _BLOCKED),),
    "reopen": (Example("holdfast reopen hf-7k2q 'it fails again'", _CLOSED),),
    "cancel": (Example("holdfast cancel hf-3m9x 'duplicate of hf-7k2q'"),),
    "park": (Example("holdfast park hf-7k2q 2h", (_CLAIM,)), Example("holdfast park hf-7k2q", (_CLAIM,))),
    "update": (
        Example("holdfast update hf-7k2q --priority 0 --type feature"),
        Example("holdfast update hf-7k2q --body - --expected 1 < notes.md", (_NOTES,)),
    ),
    "note": (
        Example("holdfast note hf-7k2q 'half of the grammar is done'"),
        Example("git status --short | holdfast note hf-7k2q -", (_NOTES,)),
    ),
    "tree": (Example("holdfast tree"), Example("holdfast tree hf-7k2q")),
    "search": (Example("holdfast search parser"), Example("holdfast search 'pars*' --json")),
    "history": (
        Example("holdfast history hf-7k2q --field status", (_CLAIM,)),
        Example("holdfast history hf-7k2q --since 12h"),
    ),
    "resume": (Example("holdfast resume hf-7k2q"), Example("holdfast resume hf-7k2q --budget 2000 --json")),
    "explain": (Example("holdfast explain hf-3m9x", ("holdfast dep add hf-3m9x hf-7k2q",)),),
    "heartbeat": (Example("holdfast heartbeat hf-7k2q --ttl 1h", (_CLAIM,)),),
    "delete": (Example("holdfast delete hf-3m9x 'made by mistake'"),),
    "undelete": (Example("holdfast undelete hf-3m9x", ("holdfast delete hf-3m9x",)),),
    "purge": (Example("holdfast purge hf-3m9x"),),
    "reparent": (Example("holdfast reparent hf-3m9x hf-7k2q"), Example("holdfast reparent hf-3m9x none")),
    "bulk": (
        Example("holdfast bulk add_tags hf-7k2q hf-3m9x --tag core --tag parser"),
        Example("""holdfast bulk create --tasks '[{"title": "One"}, {"title": "Two"}]' --atomic"""),
    ),
    "dep add": (
        Example("holdfast dep add hf-3m9x hf-7k2q"),
        Example("holdfast dep add hf-3m9x hf-7k2q --kind discovered_from"),
    ),
    "dep list": (Example("holdfast dep list hf-3m9x"),),
    "dep remove": (Example("holdfast dep remove hf-3m9x hf-7k2q", ("holdfast dep add hf-3m9x hf-7k2q",)),),
    "tag add": (Example("holdfast tag add hf-7k2q core parser"),),
    "tag remove": (Example("holdfast tag remove hf-7k2q core", ("holdfast tag add hf-7k2q core",)),),
    "tag set": (Example("holdfast tag set hf-7k2q core urgent"),),
    "template set": (Example(_TEMPLATE),),
    "template use": (Example("holdfast template use release version=1.2", (_TEMPLATE,)),),
    "template show": (Example("holdfast template show release", (_TEMPLATE,)),),
    "template list": (Example("holdfast template list"),),
    "template delete": (Example("holdfast template delete release", (_TEMPLATE,)),),
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
    # --- shared state ---
    "cell set": (
        Example(_CELL),
        Example("""holdfast cell set run-1 status '"live"' --fence deploy:8192""", (_LOCK,)),
        Example("holdfast cell set run-1 plan - --ttl 1d < plan.json", ("""echo '{"steps": 3}' > plan.json""",)),
    ),
    "cell get": (Example("holdfast cell get run-1 status", (_CELL,)),),
    "cell cas": (
        Example("""holdfast cell cas run-1 status 1 '"done"'""", (_CELL,)),
        Example("""holdfast cell cas run-1 status none '"first"'"""),
    ),
    "cell init": (Example("""holdfast cell init run-1 owner '"agent-1"'"""),),
    "cell get-or-init": (Example("holdfast cell get-or-init run-1 limits '{\"most\": 3}'"),),
    "cell increment": (
        Example("holdfast cell increment run-1 done"),
        Example("holdfast cell increment run-1 budget -250"),
    ),
    "cell exists": (Example("holdfast cell exists run-1 status"),),
    "cell info": (Example("holdfast cell info run-1 status", (_CELL,)),),
    "cell list": (Example("holdfast cell list run-1"), Example("holdfast cell list run-1 sta --json")),
    "cell runs": (Example("holdfast cell runs"),),
    "cell history": (Example("holdfast cell history run-1 status --limit 10", (_CELL,)),),
    "cell at": (Example("holdfast cell at run-1 status 1", (_CELL,)),),
    "cell restore": (Example("holdfast cell restore run-1 status 1", (_CELL, _CELL)),),
    "cell delete": (Example("holdfast cell delete run-1 status", (_CELL,)),),
    "cell compare-and-delete": (Example("holdfast cell compare-and-delete run-1 status 1", (_CELL,)),),
    "cell delete-run": (Example("holdfast cell delete-run run-1", (_CELL,)),),
    "cell ttl": (Example("holdfast cell ttl run-1 status", (_CELL,)),),
    "cell refresh-ttl": (Example("holdfast cell refresh-ttl run-1 status 2h", (_CELL,)),),
    "cell lock": (Example("holdfast cell lock run-1 status --ttl 30 --wait 10"),),
    "cell refresh-lock": (Example("holdfast cell refresh-lock run-1 status", ("holdfast cell lock run-1 status",)),),
    "cell unlock": (Example("holdfast cell unlock run-1 status", ("holdfast cell lock run-1 status",)),),
    "cell watch": (
        Example("holdfast cell watch run-1 status --timeout 10m"),
        Example("holdfast cell watch run-1 status --after-version 0", (_CELL,)),
    ),
    "cell stream": (Example("holdfast cell stream run-1 status --after-version 0 --timeout 1s", (_CELL,)),),
    "cycle start": (
        Example("holdfast cycle start --spec login --instruction create-spec"),
        Example("""holdfast cycle start --instruction analyze-product --context '{"user_requirements": "faster"}'"""),
    ),
    "cycle start-phase": (Example("holdfast cycle start-phase peer:spec:login plan", (_CYCLE,)),),
    "cycle update-phase": (
        Example("""holdfast cycle update-phase peer:spec:login plan '{"steps": ["ask", "write"]}'""", _PLANNING),
    ),
    "cycle complete-phase": (
        Example("""holdfast cycle complete-phase peer:spec:login plan '{"steps": 3}' --sequence 2""", _PLANNING),
        Example(
            "holdfast cycle complete-phase peer:spec:login:cycle:1 plan - < plan.json",
            (*_PLANNING, """echo '{"steps": 3}' > plan.json"""),
        ),
    ),
    "cycle fail-phase": (
        Example(
            """holdfast cycle fail-phase peer:spec:login plan 'no requirements' --details '{"asked": 3}'""", _PLANNING
        ),
    ),
    "cycle add-error": (Example("holdfast cycle add-error peer:spec:login plan 'asked twice'", _PLANNING),),
    "cycle finish": (
        Example("holdfast cycle finish peer:spec:login", _REVIEWED_CYCLE),
        Example("holdfast cycle finish peer:spec:login --error 'the customer left'", _PLANNING),
    ),
    "cycle get": (Example("holdfast cycle get peer.spec.login.cycle.1", (_CYCLE,)),),
    "cycle list": (Example("holdfast cycle list --spec login --json", (_CYCLE,)),),
    "cycle resume": (
        Example("holdfast cycle resume --spec login", _PLANNING),
        Example("holdfast cycle resume --spec login  # exit code 11: it has failed", _FAILED_CYCLE, 11),
    ),
    "cycle document": (
        Example("holdfast cycle document peer:spec:login > login.json", (_CYCLE,)),
        Example("holdfast cycle document peer:spec:login --sequence 1", _PLANNING),
    ),
    "cycle validate": (
        Example("holdfast cycle validate peer-state/peer.spec.login.cycle.1.json", _SAVED),
        Example("holdfast cycle document peer:spec:login | holdfast cycle validate -", (_CYCLE,)),
    ),
    "cycle adopt": (Example("holdfast cycle adopt - --sequence 2 < peer-state/peer.spec.login.cycle.1.json", _SAVED),),
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
    "cycle recover": (Example("holdfast cycle recover peer:spec:login", (_CYCLE,)),),
    "cycle delete": (Example("holdfast cycle delete peer:spec:login", _FAILED_CYCLE),),
    "stash create": (
        Example(_LIMITS),
        Example("holdfast stash create tokens --type counter --trail $(holdfast trail list -q)", (_TRAIL,)),
        Example("holdfast stash create gate --type lock --ttl 1d"),
    ),
    "stash get": (
        Example("holdfast stash get limits", (_LIMITS,)),
        Example("holdfast stash get $(holdfast trail list -q)/hits", _SCOPED),
    ),
    "stash find": (Example("holdfast stash find limits --json", (_LIMITS,)),),
    "stash set": (
        Example("""holdfast stash set limits '{"depth": 4}'""", (_LIMITS,)),
        Example("""holdfast stash set limits '{"depth": 4}' --expected 1 --changed-by hf-7k2q""", (_LIMITS,)),
    ),
    "stash increment": (
        Example("holdfast stash increment hits", (_HITS,)),
        Example("holdfast stash increment hits -2", (_HITS,)),
    ),
    "stash acquire": (
        Example("holdfast stash acquire gate --ttl 60 --wait 10", (_GATE,)),
        Example(
            "holdfast stash acquire gate  # exit code 12: agent-2 has it",
            (_GATE, "holdfast stash acquire gate --actor agent-2"),
            code=12,
        ),
    ),
    "stash release": (Example("holdfast stash release gate", (_GATE, "holdfast stash acquire gate")),),
    "stash refresh": (
        Example("holdfast stash refresh gate --ttl 60", (_GATE, "holdfast stash acquire gate --ttl 30")),
    ),
    "stash check": (Example("holdfast stash check gate 12288", (_GATE, "holdfast stash acquire gate")),),
    "stash history": (Example("holdfast stash history hits", (_HITS, "holdfast stash increment hits")),),
    "stash restore": (
        Example("holdfast stash restore limits 1", (_LIMITS, """holdfast stash set limits '{"depth": 9}'""")),
    ),
    "stash list": (
        Example("holdfast stash list --type counter", (_HITS,)),
        Example("holdfast stash list --trail $(holdfast trail list -q) --json", _SCOPED),
    ),
    "stash export": (
        Example("holdfast stash export shared", (_HITS,)),
        Example("holdfast stash export shared --replace", (_HITS, "holdfast stash export shared")),
    ),
    "stash import": (
        Example("holdfast stash import shared --dry-run", (_HITS, "holdfast stash export shared")),
        Example("holdfast stash import shared --dir copy", (_HITS, "holdfast stash export shared")),
    ),
    "stash delete": (Example("holdfast stash delete hits", (_HITS,)),),
    "trail create": (Example("holdfast trail create parser"), Example("trail=$(holdfast trail create parser -q)")),
    "trail get": (Example("holdfast trail get $(holdfast trail list -q)", (_TRAIL,)),),
    "trail list": (Example("holdfast trail list --state active", (_TRAIL,)),),
    "trail state": (
        Example("holdfast trail state $(holdfast trail list -q) active", ("holdfast trail create parser",)),
    ),
    "trail add": (Example("holdfast trail add $(holdfast trail list -q) hf-7k2q", (_TRAIL,)),),
    "trail remove": (Example("holdfast trail remove $(holdfast trail list -q) hf-7k2q", _ON_TRAIL),),
    "trail tasks": (Example("holdfast trail tasks $(holdfast trail list -q)", _ON_TRAIL),),
    "trail complete": (Example("holdfast trail complete $(holdfast trail list -q)", _ON_TRAIL),),
    "trail abandon": (Example("holdfast trail abandon $(holdfast trail list -q) 'a dead end'", _ON_TRAIL),),
    "trail restore": (Example("holdfast trail restore $(holdfast trail list -q --state abandoned)", _GONE),),
    "trail delete": (Example("holdfast trail delete $(holdfast trail list -q --state abandoned)", _GONE),),
    "link create": (
        Example("holdfast link create child_of hf-3m9x hf-7k2q"),
        Example("holdfast link create scoped_to $(holdfast stash list -q) $(holdfast trail list -q)", (_TRAIL, _HITS)),
    ),
    "link get": (Example("holdfast link get $(holdfast link list -q --type scoped_to)", _SCOPED),),
    "link list": (
        Example("holdfast link list --type belongs_to", _ON_TRAIL),
        Example("holdfast link list --to hf-7k2q"),
    ),
    "link delete": (Example("holdfast link delete $(holdfast link list -q --type scoped_to)", _SCOPED),),
    "txn": (
        Example(
            """holdfast txn '[{"if": "not_exists", "kind": "cell", "key": ["run-1", "owner"]}]'"""
            """ '[{"op": "cells.set", "args": {"run": "run-1", "cell": "owner", "value": "agent-1"}}]'"""
        ),
    ),
    # --- locks ---
    "lock acquire": (
        Example(_LOCK),
        Example("holdfast lock acquire deploy --wait 1s  # exit code 12: agent-2 has it", (_HELD,), code=12),
    ),
    "lock release": (Example("holdfast lock release deploy", (_LOCK,)),),
    "lock refresh": (Example("holdfast lock refresh deploy --ttl 60", (_LOCK,)),),
    "lock check": (Example("holdfast lock check deploy 8192", (_LOCK,)),),
    "lock get": (Example("holdfast lock get deploy", (_LOCK,)),),
    "lock list": (Example("holdfast lock list"), Example("holdfast lock list deploy --json")),
    "lease create": (
        Example(_LEASE),
        Example("lease=$(holdfast lease create 60s -q) && holdfast lock acquire deploy --lease $lease"),
    ),
    "lease refresh": (Example("holdfast lease refresh $(holdfast lease list -q --limit 1)", (_LEASE,)),),
    "lease revoke": (Example("holdfast lease revoke $(holdfast lease list -q --limit 1)", (_LEASE,)),),
    "lease get": (Example("holdfast lease get $(holdfast lease list -q --limit 1)", (_LEASE,)),),
    "lease list": (Example("holdfast lease list"),),
    "path lock": (
        Example(_PATH),
        Example("holdfast path lock src/lexer.py docs --task hf-7k2q --reason 'new tokens'", (_CLAIM,)),
        Example("holdfast path lock src/parser/rules.py  # exit code 12: agent-2 has it", (_THEIRS,), code=12),
    ),
    "path release": (
        Example("holdfast path release", (_PATH,)),
        Example("holdfast path release --task hf-7k2q", (_CLAIM, "holdfast path lock docs --task hf-7k2q")),
    ),
    "path refresh": (Example("holdfast path refresh $(holdfast path list -q --holder agent-1)", (_PATH,)),),
    "path check": (Example("holdfast path check src/parser/rules.py", (_PATH,)),),
    "path get": (Example("holdfast path get $(holdfast path list -q --limit 1)", (_PATH,)),),
    "path list": (Example("holdfast path list"), Example("holdfast path list src/parser/rules.py", (_PATH,))),
    # --- mail and agents ---
    "mail send": (
        Example("holdfast mail send agent-2 'Which port?' '8080 is taken.' --type request --ack"),
        Example("holdfast mail send agent-2,agent-3 'The API is frozen' --task hf-7k2q"),
        Example("holdfast mail send '*' 'Release at noon' - < notes.md", (_NOTES, f"{_CLAIM} --actor agent-2")),
    ),
    "mail inbox": (Example("holdfast mail inbox"), Example("holdfast mail inbox --unread --json", (_MAIL,))),
    "mail unread": (Example("holdfast mail unread"),),
    "mail get": (Example("holdfast mail get $(holdfast mail inbox -q --limit 1)", (_MAIL,)),),
    "mail ack": (Example("holdfast mail ack $(holdfast mail inbox -q --limit 1) 'will do'", (_MAIL,)),),
    "mail action": (Example("holdfast mail action $(holdfast mail inbox -q --limit 1) 'it is 9090'", (_MAIL,)),),
    "mail block": (Example("holdfast mail block $(holdfast mail inbox -q --limit 1) 'no list of ports'", _READ),),
    "mail reply": (Example("holdfast mail reply $(holdfast mail inbox -q --limit 1) 'Take 9090.'", (_MAIL,)),),
    "mail close": (Example("holdfast mail close $(holdfast mail sent -q --limit 1) 'settled'", (_SENT,)),),
    "mail thread": (Example("holdfast mail thread $(holdfast mail inbox -q --limit 1)", (_MAIL,)),),
    "mail history": (Example("holdfast mail history $(holdfast mail inbox -q --limit 1)", (_MAIL,)),),
    "mail about": (Example("holdfast mail about hf-7k2q", (_MAIL,)),),
    "mail sent": (Example("holdfast mail sent --limit 5", (_SENT,)),),
    "mail search": (Example("holdfast mail search port", (_MAIL,)),),
    "agent register": (Example("holdfast agent register --program claude --can python --can review"),),
    "agent list": (Example("holdfast agent list"),),
    "agent get": (Example("holdfast agent get agent-1", (_CLAIM,)),),
    "agent forget": (Example("holdfast agent forget agent-2", (f"{_CLAIM} --actor agent-2",)),),
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
        Example("holdfast guard src/parser/rules.py  # exit code 12: agent-2 has locked it", (_THEIRS,), code=12),
        Example("holdfast guard --staged", (_NOTES, "git add notes.md")),
    ),
    **TURN_EXAMPLES,
    # --- what happened ---
    "watch": (
        Example("holdfast watch --for task.hf-7k2q --once --timeout 10m"),
        Example("holdfast watch --after 0 --once --json"),
        Example("holdfast watch --kind message --timeout 1s  # exit code 3: nothing came", code=3),
    ),
    "log": (
        Example("holdfast log --since 12h --summary"),
        Example("holdfast log --actor agent-1 --kind task --limit 10"),
    ),
    "event list": (Example("holdfast event list --kind task --id hf-7k2q"),),
    "event refusals": (Example("holdfast event refusals --since 1d"),),
    "event compact": (Example("holdfast event compact 2", ("holdfast note hf-7k2q one",)),),
    "clock reset": (Example("holdfast clock reset"),),
    "route explain": (Example("holdfast route explain hf-7k2q"),),
    "route decide": (Example("""holdfast route decide '{"title": "Check the login", "tags": ["security"]}'"""),),
    "route check": (Example("holdfast route check"),),
    "route reload": (Example("holdfast route reload"),),
    # --- the workspace ---
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
