"""The demo, `python -m holdfast.demo`: real processes act as agents on one workspace, and two of them come to grief.

One agent is killed in the middle of its work: its lock expires and another agent takes over. One is paused for longer
than its lock lives and then goes on as if nothing had happened: its late write is refused. Still every item is done
exactly once. `agent` is what each process does, `story` what happens to them, `board` what the event log tells about
it, `view` how that is shown. All of it uses the public workspace only.
"""
