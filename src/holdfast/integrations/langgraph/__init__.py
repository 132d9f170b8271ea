"""LangGraph on a workspace: `HoldfastSaver` keeps its checkpoints, `HoldfastStore` its memory.

Needs the extra `langgraph`; without it the import raises ImportError, which says how to install it.
"""

from holdfast.errors import not_installed

try:
    from holdfast.integrations.langgraph.saver import HoldfastSaver
    from holdfast.integrations.langgraph.store import HoldfastStore
except ImportError as error:
    lacking = not_installed("holdfast.integrations.langgraph", "langgraph", error)
    raise ImportError(f"{lacking.message}; {lacking.hint}", name=error.name) from error

__all__ = ["HoldfastSaver", "HoldfastStore"]
