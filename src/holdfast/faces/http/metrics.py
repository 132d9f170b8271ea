"""Figures for Prometheus: requests by method and status, how long they took, what is open."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from holdfast.faces.http.streams import Watchers
from holdfast.faces.http.upkeep import Upkeep
from holdfast.kernel.clock import SystemClock

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_now = SystemClock().monotonic  # also in tests that own the time


class Metrics:
    """What one server has counted since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self.active = 0

    def began(self) -> int:
        """A request has come."""
        self.active += 1
        return _now()

    def ended(self, method: str, status: int, began: int) -> float:
        """And has been answered; after so many seconds."""
        took = (_now() - began) / 1e6
        self.active -= 1
        self._requests[method, status] += 1
        self._buckets[bisect_left(BUCKETS, took)] += 1
        self._seconds += took
        return took

    def lines(self, revisions: dict[str, int | None], watchers: Watchers, upkeep: Upkeep) -> Iterator[str]:
        """All of it in the text format; `revisions` are those of the open workspaces, None where it cannot be read."""
        yield "# TYPE holdfast_requests_total counter"
        for (method, status), count in sorted(self._requests.items()):
            yield f'holdfast_requests_total{{method="{method}",status="{status}"}} {count}'
        yield "# TYPE holdfast_request_seconds histogram"
        total = 0
        for bound, count in zip((*BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            yield f'holdfast_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"holdfast_request_seconds_sum {self._seconds:.6f}"
        yield f"holdfast_request_seconds_count {total}"
        yield "# TYPE holdfast_requests_active gauge"
        yield f"holdfast_requests_active {self.active}"
        yield "# TYPE holdfast_watchers gauge"
        yield f"holdfast_watchers {len(watchers)}"
        yield "# TYPE holdfast_watchers_cut_total counter"
        yield f"holdfast_watchers_cut_total {watchers.cut}"
        yield "# TYPE holdfast_backups_total counter"
        yield f"holdfast_backups_total {upkeep.backups}"
        yield "# TYPE holdfast_upkeep_failures_total counter"
        yield f"holdfast_upkeep_failures_total {upkeep.failures}"
        yield "# TYPE holdfast_revision gauge"
        for name, revision in sorted(revisions.items()):
            if revision is not None:
                yield f'holdfast_revision{{workspace="{name}"}} {revision}'
        yield "# TYPE holdfast_workspace_up gauge"
        for name, revision in sorted(revisions.items()):
            yield f'holdfast_workspace_up{{workspace="{name}"}} {int(revision is not None)}'
