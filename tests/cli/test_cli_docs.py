"""docs/cli.md and help say what the command line is: all of it, nothing else, and every example of the guide runs.

That the generated part of docs/cli.md is up to date is seen by tests/docs/test_reference.py, that the examples of
commands run by test_cli_examples.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import quote
from typing import Any, Final

import httpx
import jsonschema  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from holdfast.faces import cli
from holdfast.faces.cli.args import Usage
from holdfast.faces.cli.call import GLOBAL, NOTHING
from holdfast.faces.cli.command import all_commands
from holdfast.faces.cli.commands.help import TOPICS
from holdfast.faces.cli.examples import EXAMPLES, examples_of
from tests.cli.test_cli_examples import Playground, new_log
from tests.docs.generate import ROOT, error_classes, split
from tests.docs.test_examples import NOT_RUN
from tests.http.running import Running

TEXT: Final = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
GUIDE, COMMANDS, _ = split(TEXT, "commands")
_BLOCK: Final = re.compile(
    r"^```sh\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<prints>.*?)^```$)?", re.MULTILINE | re.DOTALL
)


@pytest.fixture
def playground(tmp_path: Path) -> Playground:
    return Playground(tmp_path)


def section(title: str) -> str:
    """What stands under a heading of the guide."""
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def first_column(title: str) -> list[str]:
    """The first cell of each row of a section's tables, without heads."""
    rows = re.findall(r"^\| (.*?) \|", section(title), re.MULTILINE)
    return [row for row in rows if row not in ("code", "command", "option", "variable", "")]


# --- the document ----------------------------------------------------------------------------------------------------


def test_i7_every_command_is_in_the_document_and_every_command_of_the_document_exists() -> None:
    headings = re.findall(r"^#### (.+)$", COMMANDS, re.MULTILINE)
    assert sorted(headings) == [command.name for command in all_commands()]


def test_i7_every_example_of_the_guide_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    ground = Playground(tmp_path, empty=True)
    blocks = [found for found in _BLOCK.finditer(GUIDE) if not found["code"].startswith(NOT_RUN)]
    assert len(blocks) >= 10
    mark = "== the next block =="
    code, out, errors = ground.run("set -e +o pipefail\n" + f"echo '{mark}'\n".join(found["code"] for found in blocks))
    assert code == 0, (out, errors)
    printed = out.split(f"{mark}\n")
    told = [(found["prints"], each) for found, each in zip(blocks, printed, strict=True) if found["prints"] is not None]
    assert len(told) >= 3
    assert [prints for prints, _ in told] == [each for _, each in told]


def test_i7_the_exit_codes_of_the_document_are_those_there_are() -> None:
    documented = {int(cell) for cell in first_column("Exit codes")}
    errors = {each.exit_code for each in error_classes()}
    assert documented == errors | {0, Usage.exit_code, NOTHING, cli.INTERRUPTED, cli.PIPE_CLOSED}
    assert {int(code) for code in re.findall(r"\b(\d+)  ", TOPICS["exit-codes"])} <= documented


def test_i7_every_variable_of_the_environment_is_in_the_document_and_is_used() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/holdfast").rglob("*.py"))
    documented = set(re.findall(r"HOLDFAST_[A-Z_]+", section("Environment")))
    assert documented == set(re.findall(r"\bHOLDFAST_[A-Z_]+\b", source))


def test_i7_every_option_of_all_commands_is_in_the_document() -> None:
    documented = set(re.findall(r"`(-[-a-z]+)", "\n".join(first_column("Options of every command"))))
    assert documented == {name for argument in GLOBAL for name in (argument.option, argument.short) if name}


_TURN: Final = "holdfast turn init --agent agent-1 --agent bob >/dev/null"
_TURN_LOCK: Final = f"{_TURN}; holdfast turn lock WORKLOG.md --reason x --lease-revs 1"
_TURN_STALE: Final = f"{_TURN_LOCK} >/dev/null" + "; holdfast turn signal ready >/dev/null" * 2
_TURN_TASK: Final = f"{_TURN}; sed -i 's/ tasks: {{}}/ tasks: {{t: {{description: d}}}}/' working-session/TURNFILE.yaml"
_TURN_SENT: Final = f"{_TURN}; holdfast turn mail send --from bob --to agent-1 --subject s"
_TURN_ID: Final = "$(holdfast turn mail list -q)"
_TURN_EDIT: Final = "WORKLOG.md --reason x -- sh -c 'echo - x >> WORKLOG.md' #"  # what is added would be the program's
_TURN_ANSWERS: Final = {
    "turn init": "holdfast turn init",
    "turn init --missing": f"{_TURN}; holdfast turn init --missing",
    "turn status": f"{_TURN}; holdfast turn status",
    "turn check": f"{_TURN}; holdfast turn check",
    "turn mail verify": f"echo x > f; {_TURN_SENT} --attach f >/dev/null; holdfast turn mail verify {_TURN_ID}",
    "turn tidy": f"{_TURN}; holdfast turn tidy --actor ada",
    "turn lint": f"{_TURN}; holdfast turn lint",
    "turn lock": _TURN_LOCK,
    "turn renew": f"{_TURN_LOCK} >/dev/null; holdfast turn renew LOCK-agent-1-001",
    "turn unlock": f"{_TURN_LOCK} >/dev/null; holdfast turn unlock",
    "turn clear": f"{_TURN_STALE}; holdfast turn clear",
    "turn override": f"{_TURN_LOCK} >/dev/null; holdfast turn override LOCK-agent-1-001 --reason 'P0: it waits'",
    "turn edit": f"{_TURN}; HOLDFAST_JSON=1 holdfast turn edit {_TURN_EDIT}",
    "turn transact": f"{_TURN}; HOLDFAST_JSON=1 holdfast turn transact {_TURN_EDIT}",
    "turn tasks list": f"{_TURN_TASK}; holdfast turn tasks list",
    "turn tasks add": f"{_TURN}; holdfast turn tasks add t d",
    "turn tasks claim": f"{_TURN_TASK}; holdfast turn tasks claim t",
    "turn tasks done": f"{_TURN_TASK}; holdfast turn tasks claim t >/dev/null; holdfast turn tasks done t",
    "turn signal": f"{_TURN}; holdfast turn signal ready",
    "turn mail send": _TURN_SENT,
    "turn mail reply": f"{_TURN_SENT} >/dev/null; holdfast turn mail reply {_TURN_ID} --body b",
    "turn mail ack": f"{_TURN_SENT} >/dev/null; holdfast turn mail ack {_TURN_ID}",
    "turn mail action": f"{_TURN_SENT} >/dev/null; holdfast turn mail action {_TURN_ID}",
    "turn mail block": (
        f"{_TURN_SENT} >/dev/null; holdfast turn mail ack {_TURN_ID} >/dev/null;"
        f" holdfast turn mail block {_TURN_ID} 'the kiln'"
    ),
    "turn mail close": f"{_TURN_SENT} >/dev/null; holdfast turn mail close {_TURN_ID} --actor bob",
    "turn mail list": f"{_TURN_SENT} >/dev/null; holdfast turn mail list",
    "turn mail show": f"{_TURN_SENT} >/dev/null; holdfast turn mail show {_TURN_ID}",
    "turn mail export": f"{_TURN}; holdfast turn mail export",
}
# What each line of the table of answers is seen with; a server has another address in every run.
_ANSWERS: Final = {
    "init": "holdfast init",
    "where": "holdfast where",
    "doctor": "holdfast doctor",
    "prime": "holdfast prime",
    "log --summary": "holdfast log --summary",
    "backup": "holdfast backup",
    "backup --list": "holdfast backup >/dev/null; holdfast backup --list",
    "restore": "holdfast backup >/dev/null; holdfast restore",
    "restore BACKUP": "holdfast backup b >/dev/null; holdfast restore b --dir ../restored",
    "upgrade": "holdfast upgrade",
    "replicate": "holdfast replicate {log} --create",
    "detach": "holdfast replicate {log} --create >/dev/null; holdfast detach",
    "rebuild": "holdfast replicate {log} --create >/dev/null; holdfast rebuild",
    "export FILE": "holdfast export tasks.jsonl",
    "cycle export": "holdfast cycle export --dir peer-state",
    "cycle old-keys": (
        "mkdir peer-state; echo '{\"steps\": 1}' > peer-state/peer.spec.s.cycle.1.plan.json;"
        " holdfast cycle import --dir peer-state >/dev/null; holdfast cycle export --dir peer-state >/dev/null;"
        " holdfast cycle old-keys --dir peer-state"
    ),
    "stash export": "holdfast stash export shared",
    "setup CLIENT": "holdfast setup claude",
    "token create": "holdfast token create",
    "token list": "holdfast token create >/dev/null; holdfast token list",
    "token revoke": "holdfast token create >/dev/null; holdfast token revoke $(holdfast token list | cut -d' ' -f1)",
    "login": "holdfast login URL --token-file .holdfast/token",
    "ui": "holdfast ui --no-open",
    "session list": "holdfast session list",
    "session revoke": "holdfast session revoke --all",
    "version": "holdfast version",
    "bench": "holdfast bench --count 5",
    **_TURN_ANSWERS,
}
_WITHOUT_FIELDS: Final = {"log", "setup CLIENT --check"}  # events, of which `schema event list` tells, and texts


def _fields_documented() -> dict[str, set[str]]:
    found = {}
    for labels, cell in re.findall(r"^\| (`.*?`) \| (.*?) \|$", section("JSON"), re.MULTILINE):
        for label in re.findall(r"`([^`]+)`", labels):
            found[label] = set(re.findall(r"`([^`]+)`", cell))
    return found


def test_i7_the_table_of_answers_has_every_command_that_has_no_schema() -> None:
    silent = {"completion", "demo", "guard", "help", "mcp", "run", "schema", "serve"}  # these answer nothing as JSON
    named = {label.partition(" -")[0].removesuffix(" CLIENT").removesuffix(" FILE") for label in _fields_documented()}
    named = {label.removesuffix(" BACKUP") for label in named}
    assert named - {"export"} == {command.name for command in all_commands() if command.op is None} - silent
    assert _fields_documented().keys() == _ANSWERS.keys() | _WITHOUT_FIELDS


@pytest.mark.parametrize("label", _ANSWERS)
def test_i7_an_answer_that_has_no_schema_has_the_fields_of_the_document(playground: Playground, label: str) -> None:
    line = f"{_ANSWERS[label]} --json"
    if "{log}" in line:
        line = line.replace("{log}", quote(new_log()))
    if label in ("login", "ui", "session list"):
        server = Running(playground.store)
        try:
            httpx.post(f"{server.url}/ui/session", json={"token": server.token}).raise_for_status()
            code, out, errors = playground.run(line.replace("URL", server.url))
        finally:
            server.end()
    else:
        code, out, errors = playground.call(line)
    assert code == 0, errors
    data = json.loads(out)["data"]
    if label == "log --summary":
        data = list(data.values())
    assert set(data[0] if isinstance(data, list) else data) == _fields_documented()[label]


# --- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [command.name for command in all_commands()])
def test_i7_help_of_a_command_prints_its_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", *name.split()]) == 0
    continued = re.sub(r" \\\n +#", "  #", capsys.readouterr().out)
    printed = re.sub(r" \\\n +", " ", continued)
    command = next(command for command in all_commands() if command.name == name)
    assert examples_of(command)
    assert [example.line for example in examples_of(command) if f"  {example.line}\n" not in printed] == []


def test_i7_a_command_is_told_in_a_line_for_people_at_a_shell() -> None:
    told = {command.name: command.summary for command in all_commands() if command.name not in EXAMPLES}
    assert len(told) > 140
    assert {name: len(told[name]) for name in told if len(told[name]) > 75} == {}
    classes = {each.__name__ for each in error_classes()} | {"None", "True", "False"}
    python = {name for name, summary in told.items() if "`" in summary or classes & set(re.findall(r"\w+", summary))}
    assert python == set()


def test_i7_every_operation_that_is_a_command_is_told_for_people() -> None:
    derived = {command.name: command for command in all_commands() if command.name not in EXAMPLES}
    assert [name for name, command in derived.items() if command.op is None or not command.op.route.help] == []


def test_i7_every_argument_has_a_help_text() -> None:
    silent = [(command.name, each.name) for command in all_commands() for each in command.arguments if not each.help]
    assert silent == [], "add it to arguments.py, or to `arguments=` on the line of its operation"


# --- schemas ---------------------------------------------------------------------------------------------------------

_CELL: Final = """holdfast cell set run-1 status '{"step": 1}' >/dev/null"""
_TOLD: Final = {
    "create": "holdfast create 'Write the lexer' --tag core",
    "list": "holdfast list --limit 1 --total",
    "ready": "holdfast ready",
    "show": "holdfast show hf-7k2q",
    "claim": "holdfast claim hf-7k2q",
    "next": "holdfast next",
    "done": "holdfast claim hf-7k2q >/dev/null; holdfast done hf-7k2q 'as said'",
    "tree": "holdfast tree hf-7k2q",
    "explain": "holdfast explain hf-7k2q",
    "history": "holdfast history hf-7k2q",
    "resume": "holdfast resume hf-7k2q",
    "search": "holdfast search parser",
    "dep list": "holdfast dep add hf-3m9x hf-7k2q >/dev/null; holdfast dep list hf-3m9x",
    "cell get": f"{_CELL}; holdfast cell get run-1 status",
    "cell history": f"{_CELL}; holdfast cell history run-1 status",
    "cell exists": "holdfast cell exists run-1 status",
    "lock acquire": "holdfast lock acquire deploy --ttl 60",
    "path lock": "holdfast path lock 'src/**' --ttl 60",
    "mail send": "holdfast mail send agent-2 'Which port?'",
    "agent list": "holdfast agent register --program claude >/dev/null; holdfast agent list",
    "event list": "holdfast event list",
    "watch": "holdfast watch --after 0 --once",
    "route explain": "holdfast route explain hf-7k2q",
    "stash create": """holdfast stash create limits --type context --value '{"depth": 3}'""",
    "stash acquire": "holdfast stash create gate --type lock >/dev/null; holdfast stash acquire gate --ttl 60",
    "stash history": "holdfast stash create hits --type counter >/dev/null; holdfast stash history hits",
    "trail create": "holdfast trail create parser",
    "link create": "holdfast link create child_of hf-3m9x hf-7k2q",
}


def schema_of(playground: Playground, command: str) -> dict[str, Any]:
    code, out, errors = playground.call(f"holdfast schema {command}")
    assert code == 0, errors
    schema: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.parametrize("command", _TOLD)
def test_i7_the_json_of_a_command_is_what_its_schema_says(playground: Playground, command: str) -> None:
    schema = schema_of(playground, command)
    code, out, errors = playground.call(f"{_TOLD[command]} --json")
    assert code == 0, errors
    told = json.loads(out)
    assert told["data"] is not None
    jsonschema.validate(told, schema, cls=jsonschema.Draft202012Validator)


def test_i7_nothing_ready_is_what_the_schema_of_next_says_too(playground: Playground) -> None:
    code, out, _ = playground.call("holdfast next --tag nothing-has-it --json")
    assert code == NOTHING
    jsonschema.validate(json.loads(out), schema_of(playground, "next"), cls=jsonschema.Draft202012Validator)


def test_i7_a_schema_refuses_what_no_command_would_tell(playground: Playground) -> None:
    schema = schema_of(playground, "show")
    told = json.loads(playground.call("holdfast show hf-7k2q --json")[1])
    lies: list[Any] = [{**told, "schema_version": 2}, {**told, "data": {**told["data"], "priority": 9}}, {"data": {}}]
    for wrong in lies:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", [command.name for command in all_commands() if command.op is not None])
def test_i7_every_command_that_is_an_operation_has_a_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", *name.split()]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["schema_version", "data"]
