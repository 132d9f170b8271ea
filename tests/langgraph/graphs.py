"""Graphs for the tests of the integration. Whoever imports this skips without LangGraph, and fails where CI runs."""

from __future__ import annotations

import operator
import os
from typing import Annotated, Any, TypedDict

import pytest

if os.environ.get("CI") != "true":
    pytest.importorskip("langgraph", reason="the extra langgraph is not installed")

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from holdfast.integrations.langgraph import HoldfastSaver


class Counted(TypedDict):
    """A list that grows by one with each invoke."""

    seen: Annotated[list[str], operator.add]


def counter(saver: HoldfastSaver, *, inner: bool = False) -> Any:
    """A graph that keeps what it is invoked with; `inner`: in a subgraph."""
    graph = StateGraph(Counted)
    graph.add_node("keep", lambda state: {"seen": []})
    graph.add_edge(START, "keep")
    graph.add_edge("keep", END)
    if not inner:
        return graph.compile(checkpointer=saver)
    outer = StateGraph(Counted)
    outer.add_node("inner", graph.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    return outer.compile(checkpointer=saver)


def asking(saver: HoldfastSaver) -> Any:
    """A graph that asks a person in the middle."""

    def ask(state: Counted) -> dict[str, Any]:
        return {"seen": [interrupt("may I?")]}

    graph = StateGraph(Counted)
    graph.add_node("before", lambda state: {"seen": ["before"]})
    graph.add_node("ask", ask)
    graph.add_edge(START, "before")
    graph.add_edge("before", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def config(thread: str, **more: Any) -> RunnableConfig:
    """A config for a thread."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def checkpoint(values: dict[str, Any], versions: dict[str, Any] | None = None) -> Checkpoint:
    """A checkpoint with these values of channels."""
    made = empty_checkpoint()
    made["id"] = str(uuid6(clock_seq=0))
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, "1") if versions is None else versions
    return made
