"""The tags of tasks: one table of all of them, and one of those of ready tasks, along which a claim by tag walks.

`ready_tags` has every ready task that anybody may claim, and rows of some that are ready no more, which `tidy_tags`
removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.kernel.tx import Tx

if TYPE_CHECKING:
    from holdfast.domains.tasks.rows import Stored

STARTABLE: Final = "t.status = 'open' AND t.waits = 0 AND t.busy = 0 AND t.deleted IS NULL"
READY: Final = f"{STARTABLE} AND t.assignee IS NULL"


def index_tags(tx: Tx, old: Stored | None, new: Stored | None) -> None:
    """Update the two tables of tags from an old to a new state of a task; None is a task that does not exist.

    A task that is ready no more leaves its rows in `ready_tags` for `tidy_tags`.
    """
    same = old is not None and new is not None and old.tags == new.tags and old.priority == new.priority
    if same and new is not None and not new.ready:  # as every claim does
        if new.tags != "[]":
            tx.leave(len(new.tag_list), tidy_tags)
        return
    after = _entries(new)
    before = after if same else _entries(old)
    for entry in sorted(before - after):
        for table in ("task_tags", "ready_tags"):
            tx.run(f"DELETE FROM {table} WHERE tag = ? AND priority = ? AND seq = ?", entry)
    for entry in sorted(after - before):
        tx.run("INSERT INTO task_tags (tag, priority, seq) VALUES (?, ?, ?)", entry)
    if new is not None and new.ready:
        for entry in sorted(after):
            tx.run("INSERT OR IGNORE INTO ready_tags (tag, priority, seq) VALUES (?, ?, ?)", entry)
    elif old is not None and old.ready and after:
        tx.leave(len(before & after), tidy_tags)


def _entries(task: Stored | None) -> set[tuple[str, int, int]]:
    if task is None or task.tags == "[]":
        return set()
    return {(tag, task.priority, task.seq) for tag in task.tag_list}


_TIDIED: Final = "SELECT tag, priority, seq FROM ready_tags_tidied"
_SLICE_END: Final = (
    "SELECT tag, priority, seq FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?)"
    " ORDER BY tag, priority, seq LIMIT 1 OFFSET ?"
)
_TIDY: Final = (
    "DELETE FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?) AND {} NOT EXISTS"
    " (SELECT 1 FROM tasks t INDEXED BY tasks_ready"
    f" WHERE t.priority = ready_tags.priority AND t.seq = ready_tags.seq AND {READY})"
)
_TIDY_SLICE: Final = _TIDY.format("(tag, priority, seq) <= (?, ?, ?) AND")
_TIDY_REST: Final = _TIDY.format("")


def tidy_tags(tx: Tx, litter: int) -> None:
    """Delete the rows of tasks that are not ready from a slice of `ready_tags`, twice as long as what was left there.

    The slices go round the table in the order of its keys. While they go round once, rows are left for at most half of
    what they pass: so no more than that are of tasks that are not ready, and a slice changes few pages.
    """
    start = tx.one(_TIDIED)
    if start is None:
        raise errors.Corrupt("the store is damaged: nothing says how far ready_tags is tidied")
    end = tx.one(_SLICE_END, (*start, 2 * litter - 1))
    if end is None:
        tx.run(_TIDY_REST, start)
    else:
        tx.run(_TIDY_SLICE, (*start, *end))
    tx.run("UPDATE ready_tags_tidied SET tag = ?, priority = ?, seq = ? WHERE id = 1", end or ("", 0, 0))
