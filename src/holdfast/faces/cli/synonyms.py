"""Words that people type who come from other programs: beads, git, Taskwarrior, GitHub's issues, Agent Mail.

An alias runs; for others the refusal says what does it. Loaded only for a word that no command or option has.
"""

from __future__ import annotations

from typing import Final

# What people who come from other programs type, and the command that does it.
ALIASES: Final = {
    **dict.fromkeys(("add", "new", "q"), "create"),
    **dict.fromkeys(("ls", "tasks", "issues"), "list"),
    **dict.fromkeys(("view", "info"), "show"),
    **dict.fromkeys(("start", "begin", "take"), "claim"),
    **dict.fromkeys(("finish", "complete"), "done"),
    **dict.fromkeys(("stop", "unclaim"), "release"),
    **dict.fromkeys(("comment", "annotate"), "note"),
    **dict.fromkeys(("modify", "change"), "update"),
    **dict.fromkeys(("find", "grep"), "search"),
    **dict.fromkeys(("pick", "pop"), "next"),
    **dict.fromkeys(("todo", "work"), "ready"),
    **dict.fromkeys(("stats", "overview"), "status"),
    **dict.fromkeys(("deps", "dependencies"), "dep list"),
    **dict.fromkeys(("agents", "who"), "agent list"),
    **dict.fromkeys(("locks",), "lock list"),
    **dict.fromkeys(("reservations",), "path list"),
    **dict.fromkeys(("events",), "event list"),
    **{"inbox": "mail inbox", "send": "mail send", "reply": "mail reply", "ack": "mail ack"},
    **{"register": "agent register", "whois": "agent get", "reserve": "path lock", "why": "explain"},
}
# What no command does as it was asked for, and what to do instead.
INSTEAD: Final = {
    **dict.fromkeys(
        ("rm", "remove", "del"),
        "holdfast cancel ID closes a task that is not wanted; for one made by mistake see holdfast help delete",
    ),
    **dict.fromkeys(("mine", "my"), "holdfast list --mine"),
    **dict.fromkeys(("closed", "completed", "finished"), "holdfast list --closed"),
    "all": "holdfast list --all",
    **dict.fromkeys(
        ("blocked", "waiting"),
        "holdfast list --status blocked, or waiting; holdfast graph shows what waits for what",
    ),
    "active": "holdfast list --status in_progress",
    **dict.fromkeys(("label", "labels", "tags"), "holdfast tag add ID TAG; holdfast list --tag TAG"),
    **dict.fromkeys(("comments", "notes"), "holdfast show ID, or holdfast history ID --field note"),
    **dict.fromkeys(("rename", "mv"), "holdfast update ID --title TITLE"),
    "priority": "holdfast update ID --priority P1",
    "move": "holdfast reparent ID PARENT, or holdfast update ID --title TITLE",
    **dict.fromkeys(("me", "who-am-i"), "holdfast where says who you are, holdfast list --mine what is yours"),
    **dict.fromkeys(("snooze", "postpone", "later", "schedule"), "holdfast defer ID 'monday 9:00'"),
    **dict.fromkeys(("merge", "accept"), "holdfast approve ID"),
    **dict.fromkeys(("duplicate", "duplicates", "dup"), "holdfast cancel ID 'duplicate of ID'"),
    **dict.fromkeys(("epic", "epics"), "holdfast create TITLE --type epic, and --parent ID for what is below it"),
    **dict.fromkeys(("branch", "checkout", "develop"), "holdfast ref add ID BRANCH notes the branch of a task"),
    **dict.fromkeys(("diff", "blame"), "holdfast history ID lists what changed in a task, and who changed it"),
    **dict.fromkeys(("sync", "push", "pull", "commit"), "nothing has to be sent: all commands work on one store"),
    "undefer": "holdfast defer ID none",
    "count": "holdfast status counts the tasks",
    "config": "settings are in config.yaml in the folder of the workspace; holdfast where prints it",
    **dict.fromkeys(("whoami", "user"), "you are --actor, else HOLDFAST_ACTOR; holdfast where says who that is"),
    **dict.fromkeys(("unreserve", "unlock"), "holdfast path release PATH, or holdfast lock release NAME"),
    **dict.fromkeys(("quickstart", "onboard", "tutorial"), "holdfast help begins with the first commands"),
}
GROUPLESS: Final = ("task", "tasks", "issue", "issues", "bead", "beads")  # what other programs call the group of them
# Within a group; the first that the group has is meant.
SUBCOMMANDS: Final[dict[str, tuple[str, ...]]] = {
    **{"unlock": ("release",), "lock": ("acquire",), "acquire": ("lock",), "release": ("unlock",)},
    **dict.fromkeys(("read", "show", "view", "info"), ("get",)),
    **dict.fromkeys(("ls", "all"), ("list", "inbox")),
    "list": ("inbox", "subscribers", "tasks"),
    **dict.fromkeys(("add", "new", "make"), ("create", "add", "set", "register")),
    **dict.fromkeys(("rm", "del", "delete"), ("remove", "revoke", "delete", "release", "forget")),
    **dict.fromkeys(("check", "fetch"), ("inbox", "check", "get")),
    **dict.fromkeys(("acknowledge", "confirm"), ("ack",)),
    **dict.fromkeys(("write", "put", "update"), ("set",)),
    **dict.fromkeys(("answer", "respond"), ("reply",)),
    "whois": ("get",),
}
# What other programs call an option; the first that the command has is meant.
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("--holder", "--from", "--agent", "--as", "--user"), ("--actor",)),
    **dict.fromkeys(("--description", "--desc", "-d", "--message", "-m", "--text"), ("--body", "--note", "--summary")),
    **dict.fromkeys(("--assignee", "--owner", "-a"), ("--assign", "--assigned-to")),
    **dict.fromkeys(("--label", "--labels", "-l"), ("--tag",)),
    **dict.fromkeys(("--blocked-by", "--deps", "--needs", "--after"), ("--depends-on",)),
    **dict.fromkeys(("--state", "-s"), ("--status",)),
    **dict.fromkeys(("--me", "--my", "--own"), ("--mine", "--needs-me")),
    **dict.fromkeys(("--epic", "--under"), ("--parent",)),
    **dict.fromkeys(("-n", "--max", "--count"), ("--limit",)),
    **dict.fromkeys(("--comment", "--why", "--message"), ("--reason", "--note", "--summary", "--body")),
    **dict.fromkeys(("--done", "--completed"), ("--closed",)),
    **dict.fromkeys(("--format", "--output", "-o"), ("--json",)),
    **dict.fromkeys(("--silent", "--ids"), ("--quiet",)),
    **dict.fromkeys(("--deleted", "--trash"), ("--include-deleted",)),
    **dict.fromkeys(("--confirm", "--force", "-y"), ("--yes",)),
    **dict.fromkeys(("--expires", "--timeout", "--for"), ("--ttl", "--until")),
    **dict.fromkeys(("--follow", "-f"), ("--watch",)),
}
# Options that another command has.
ELSEWHERE: Final = {
    "--mine": "holdfast list --mine lists what you hold and what is assigned to you",
    "--all": "holdfast list --all lists closed tasks too",
    **dict.fromkeys(("--due", "--defer", "--start", "--until"), "holdfast defer ID TIME lets a task wait until then"),
}
