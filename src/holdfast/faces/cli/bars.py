"""Progress of long work, on a terminal alone: a line on standard error that is drawn over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

_WIDTH = 30


@contextmanager
def bar(title: str, workspace: Any) -> Iterator[None]:
    """While in this block, show how far work on the workspace is."""
    drawn = [""]

    def draw(progress: Any) -> None:
        if not progress.total:
            line = f"{title}: {progress.done:,}"
        else:
            full = _WIDTH * progress.done // progress.total
            line = f"{title}: [{'#' * full}{'.' * (_WIDTH - full)}] {100 * progress.done // progress.total} %"
        if line != drawn[0]:
            drawn[0] = line
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()

    wanted = sys.stderr.isatty() and hasattr(workspace, "progress")
    with workspace.progress(draw) if wanted else nullcontext():
        yield
    if drawn[0]:
        sys.stderr.write("\n")
