"""LangGraph on a workspace: `HoldfastSaver` keeps its checkpoints, `HoldfastStore` its memory.

Needs the extra: pip install 'holdfast[langgraph]'.
"""

from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.store import HoldfastStore

__all__ = ["HoldfastSaver", "HoldfastStore"]
