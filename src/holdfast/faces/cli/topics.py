"""Topics of `holdfast help`: what is true of all commands. docs/cli.md has them too."""

from __future__ import annotations

from typing import Final

from holdfast.faces.cli.commands.help import options

TOPICS: Final = {
    "options": "options of every command, before or after it\n" + "\n".join(options()),
    "workspace": """
Which workspace a command works on, in this order:
  --dir FOLDER, --url URL      as given
  HOLDFAST_DIR, HOLDFAST_URL   from the environment
  .holdfast                    found upwards from the current folder; all worktrees of a git
                               repository share the one of the main worktree
holdfast where says which it is and why. Servers want a token: HOLDFAST_TOKEN, HOLDFAST_TOKEN_FILE,
or holdfast login URL once.
""",
    "actors": """
Everything is done by an actor: --actor NAME, else HOLDFAST_ACTOR, else user@host, which may read,
create and change but not claim, lock or mail: two sessions would have the same name. Choose a
name for each agent session; holdfast setup does that for the clients it knows.
The tokens of claims and locks are remembered for each actor and sent by themselves, so whoever
lost a claim without knowing is refused (exit code 15) instead of overwriting others' work.
""",
    "json": """
--json, or HOLDFAST_JSON=1, prints {"schema_version": 1, "data": ...}; a page that has more also has
"cursor", for --cursor. watch, event and cell streams print such a line for each event. Bytes are
{"$bytes": base64}, times RFC 3339. holdfast schema COMMAND prints the JSON Schema of the answer.
Errors go to standard error: {"schema_version": 1, "error", "code", "hint", "details"}.
""",
    "exit-codes": """
   0  done                          12  held by somebody else, or already claimed
   1  error                         13  not the holder
   2  usage                         14  would create a cycle
   3  timeout                       15  fenced: the claim or lock was lost
   4  next: nothing is ready        16  unavailable, try again
   9  version mismatch              17  compacted: the history is gone
  10  not found                     18  corrupt
  11  bad transition               130  interrupted; 141 the reader of a pipe has gone
""",
    "times": """
Durations are seconds, or such as 90s, 15m, 2h, 1d, 1w. Moments are RFC 3339 (2026-03-01T12:00:00Z), or
durations: --since 2h is two hours ago, --until 2h in two hours.
""",
}
