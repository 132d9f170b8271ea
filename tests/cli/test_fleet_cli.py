"""`holdfast status`, `graph`, `activity` and `as-of`: the fleet in a terminal (V1, V2)."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

from tests.cli.calling import Answer

Cli = Callable[..., Answer]
NASTY = 'a"]; click <script>&amp; -->\\'


def chain(made: Cli) -> list[str]:
    """Three tasks, each after the one before; the first is held by ada."""
    ids = [made("create", title, "-q").id for title in ("Write the lexer", NASTY, "Ship")]
    made("dep", "add", ids[1], ids[0])
    made("dep", "add", ids[2], ids[1])
    made("claim", ids[0], "--actor", "ada")
    return ids


def test_v1_a_status_says_who_works_what_is_stuck_and_what_needs_you(made: Cli) -> None:
    ids = chain(made)
    stuck = made("create", "Fix the build", "-q").id
    made("claim", stuck, "--actor", "bob")
    made("block", stuck, "no credentials", "--actor", "bob")
    made("lock", "acquire", "deploy", "--actor", "ada")
    told = made("status").out
    assert told.startswith("0 ready  2 waiting  1 in progress  0 in review  1 blocked  0 closed today")
    assert re.search(rf'blocked +{stuck}  Fix the build  bob  \d+ s  "no credentials"', told)
    assert re.search(rf"ada +{ids[0]}  Write the lexer  \d+ s  (29|30) min left", told)
    assert re.search(r"deploy  ada  \d+ s, no end", told)
    assert re.search(r"bob +idle, seen \d+ s ago", told)
    assert all(len(line) <= 80 for line in told.splitlines()), told


def test_v1_json_has_the_status_whole(made: Cli) -> None:
    ids = chain(made)
    data = json.loads(made("status", "--json").out)["data"]
    assert data["tasks"] | {"closed": 0} == {
        **dict.fromkeys(("ready", "review", "blocked", "closed", "closed_today"), 0),
        **{"waiting": 2, "in_progress": 1},
    }
    assert [agent["task"] for agent in data["agents"] if agent["name"] == "ada"] == [ids[0]]


def test_v1_a_watched_status_is_drawn_again_when_something_changes(made: Cli, started: Callable[..., Any]) -> None:
    chain(made)
    watching = started("status", "--watch")
    first = watching.stdout.readline()
    assert first.startswith("0 ready")
    made("create", "Another", "-q")
    while line := watching.stdout.readline():
        if line.startswith("1 ready"):
            break
    assert line.startswith("1 ready")
    watching.terminate()


def test_v1_a_status_says_who_waits_in_line_and_for_how_long(made: Cli, started: Callable[..., Any]) -> None:
    made("lock", "acquire", "deploy", "--actor", "ada")
    waiting = started("lock", "acquire", "deploy", "--wait", "60", "--actor", "bob")
    watching = started("status", "--watch")
    while (line := watching.stdout.readline()) and "in line" not in line:
        pass
    assert re.search(r"deploy  ada  \d+ s, no end  in line: bob \d+ s", line)
    watching.terminate()
    waiting.terminate()


def test_v2_the_text_of_a_graph_marks_held_waiting_and_the_longest_chain(made: Cli) -> None:
    ids = chain(made)
    free = made("create", "Alone", "-q").id
    lines = made("graph").out.splitlines()
    assert lines[0] == f"@*{ids[0]}  P2  Write the lexer  @ada  holds up 2"
    assert lines[1].startswith(f"  .*{ids[1]}  P2  a")
    assert lines[2] == f"    .*{ids[2]}  P2  Ship"
    assert f"o {free}  P2  Alone" in lines
    assert f"longest chain: 3 tasks: {' -> '.join(ids)}" in lines
    assert f"hold up most: {ids[0]} (2), {ids[1]} (1)" in lines
    assert made("graph", ids[0], "-q").out.split() == ids
    assert made("graph", free).out.splitlines()[0] == f"o {free}  P2  Alone"


def test_v2_titles_stay_text_in_every_form(made: Cli) -> None:
    ids = chain(made)
    drawn = ElementTree.fromstring(made("graph", "--format", "svg").out)
    space = {"s": "http://www.w3.org/2000/svg"}
    titles = [title.text or "" for title in drawn.findall("s:g/s:title", space)]
    assert [title.partition(":")[0] for title in titles] == ids
    assert f"{ids[1]}: {NASTY} (waiting)" in titles
    assert len(drawn.findall("s:path", space)) == 2
    assert not drawn.findall(".//s:script", space)
    mermaid = made("graph", "--format", "mermaid").out
    assert 't1["' in mermaid
    assert "<script>" not in mermaid
    assert "t0 ==> t1" in mermaid
    labels = re.findall(r'\["(.*)"\]:::', mermaid)
    assert len(labels) == 3
    assert not any('"' in label or "]" in label for label in labels)
    dot = made("graph", "--format", "dot").out
    assert f'"{ids[0]}" -> "{ids[1]}" [penwidth=2.5];' in dot
    assert r"a\"]; click <script>&amp; -->\\" in dot


def test_v2_a_graph_shows_the_open_children_that_a_parent_waits_for(made: Cli) -> None:
    top = made("create", "Release", "-q").id
    done, first, second = (made("create", title, "--parent", top, "-q").id for title in ("Done", "Build", "Sign"))
    made("cancel", done)
    assert f". {top}  P2  Release  open children: {first}, {second}" in made("graph").out.splitlines()
    assert f". {top}  P2  Release  open children: {first}, {second}" in made("graph", "--include-closed").out
    dot = made("graph", "--format", "dot").out
    assert f'"{first}" -> "{top}" [style=dashed];' in dot
    assert done not in dot
    assert made("graph", "--format", "mermaid").out.count(" -.-> t0") == 2
    assert made("graph", "--format", "svg").out.count("stroke-dasharray") == 2
    for child in (first, second):
        made("cancel", child)
    assert f"o {top}  P2  Release" in made("graph").out.splitlines()


def test_v2_another_form_is_refused(made: Cli) -> None:
    refused = made("graph", "--format", "png")
    assert refused.code == 2
    assert "text, mermaid, dot" in refused.err


def test_g3_activity_counts_by_agent(made: Cli) -> None:
    ids = chain(made)
    made("done", ids[0], "--actor", "ada", "--no-review")
    lines = made("activity", "1h", "--bucket", "10m").out.splitlines()
    assert lines[0].endswith("each bar 10 min, as high as what was closed")
    assert lines[1].split() == ["claimed", "completed", "closed", "released", "expired", "fenced"]
    assert [line.split()[:7] for line in lines[2:]] == [
        ["ada", "1", "1", "1", "0", "0", "0"],
        ["all", "1", "1", "1", "0", "0", "0"],
    ]
    assert all(len(line) <= 80 for line in lines)
    assert json.loads(made("activity", "--json").out)["data"]["bucket"] == 300
    assert made("activity", "-1h", "--bucket", "10m").code == made("activity", "--since", "-1h").code == 0
    refused = made("activity", "1h", "--bucket", "-10m")
    assert (refused.code, "--bucket is a length of time" in refused.err, "10m?" in refused.err) == (2, True, True)


def test_g3_the_bars_of_an_activity_cover_all_of_its_time(made: Cli) -> None:
    id = made("create", "Early", "-q").id
    made("close", id)
    for given, bar in ((("30m", "--bucket", "5s"), "105 s"), ((), "80 min"), (("1h", "--bucket", "10m"), "10 min")):
        lines = made("activity", *given).out.splitlines()
        assert f"each bar {bar}," in lines[0]
        assert lines[-1].endswith("█"), "it was closed in the last of them"
        assert all(len(line) <= 80 for line in lines)


def test_v1_a_status_names_mail_and_stashes_as_the_other_commands_do(made: Cli) -> None:
    made("agent", "register", "--role", "person", "--actor", "maya")
    made("mail", "send", "maya", "Which port?", "--type", "decision-required", "--actor", "ada")
    trail = made("trail", "create", "release 2", "-q").id
    made("stash", "create", "gate", "--type", "lock", "--trail", trail)
    made("stash", "acquire", f"{trail}/gate", "--ttl", "10m", "--actor", "ada")
    told = made("status").out
    assert re.search(r"mail +m1  Which port\?  ada  \d+ s  decision required", told)
    assert re.search(r"release 2/gate  ada  \d+ s, \d+ min left", told)
    assert "maya" not in told[told.index("agents (") : told.index("locks (")], "people are no rows of the fleet"
    assert "Which port?" in made("mail", "get", "m1").out


def test_a_span_with_a_sign_needs_its_unit(made: Cli) -> None:
    for command in ("timeline", "activity"):
        refused = made(command, "-5")
        assert (refused.code, "-5 has no unit" in refused.err, "-5m" in refused.err) == (2, True, True)
        assert made(command, "-5m").code == 0


def test_g4_a_task_is_shown_as_it_was(made: Cli) -> None:
    id = made("create", "Before", "-q").id
    made("update", id, "--title", "After")
    assert "Before" in made("as-of", id, "1").out
    assert "After" in made("as-of", id, "2").out
    early = made("as-of", id, "3")
    assert (early.code, "revision 3 is in the future; the workspace is at revision 2" in early.err) == (1, True)
    assert "cursor" not in early.err + made("cell", "as-of", "run", "cell", "3").err
    assert made("as-of", id, "0").code == 10
