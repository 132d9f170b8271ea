"""The demo: real processes act as agents on one workspace; one is killed, one is paused until its lock expires.

The killed agent's lock expires and another agent takes over. The paused agent resumes as if nothing had happened, and
its late write is refused. Still every item is done exactly once. `agent` is what each process runs, `__main__` what
happens to the processes, and the display. All of it uses the public workspace only.

This module imports nothing: each agent runs as `python -m holdfast.demo.agent`, which must not be imported before.
"""
