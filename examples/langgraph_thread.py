"""A LangGraph run that stops for a person, is killed while it waits, and goes on in another process.

Shows: checkpoints in a workspace that any process opens, an interrupt that a person can watch for, and `hold`, which
gives a thread to one run at a time. Needs `pip install 'holdfast[langgraph]'`, and no model.

    python examples/langgraph_thread.py
"""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import tempfile
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver

THREAD = "release-7"


class State(TypedDict):
    """What the run has done."""

    log: Annotated[list[str], operator.add]


def plan(state: State) -> dict[str, Any]:
    """Work before the question."""
    return {"log": ["planned"]}


def deploy(state: State) -> dict[str, Any]:
    """Ask, and go on with the answer."""
    return {"log": [f"deployed: {interrupt('may I deploy?')}"]}


def compiled(ws: holdfast.Workspace) -> Any:
    """The graph, on the checkpoints of the workspace."""
    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("deploy", deploy)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "deploy")
    builder.add_edge("deploy", END)
    return builder.compile(checkpointer=HoldfastSaver(ws))


def begin(folder: str) -> None:
    """Run up to the question, say so, and wait for an answer that this process will not live to hear."""
    with holdfast.open(folder, actor="first") as ws:
        compiled(ws).invoke({"log": ["begun"]}, {"configurable": {"thread_id": THREAD}})
        print("asked", flush=True)
        signal.pause()


def main(folder: str) -> None:
    """Begin in one process, kill it, and go on in this one."""
    command = [sys.executable, __file__, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        first.stdout.readline()
        first.send_signal(signal.SIGKILL)
    print("the first process was killed while it waited for an answer")
    with holdfast.open(folder, actor="second") as ws:
        asked = ws.events.list(kinds=["interrupt"])
        print("an interrupt waits on", *(event.id for event in asked))
        with HoldfastSaver(ws).hold(THREAD, ttl=60) as config:  # a second run at this moment would be refused
            print(compiled(ws).invoke(Command(resume="yes"), config)["log"])


if __name__ == "__main__":
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    if len(sys.argv) > 1:
        begin(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(scratch)
