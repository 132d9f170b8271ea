"""Benchmarks: `make bench`, or `python -m tests.bench [names...]`.

Every figure that has a bar is a ratio, or a latency, taken within one run: ours and its baseline alternate, and the
median of five rounds counts. Nothing here is asserted; the table at the end says which bars were reached.
"""
