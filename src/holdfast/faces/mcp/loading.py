"""Loading the SDK, which takes a second and may not be there: only who serves MCP does it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from holdfast import errors


def load_protocol() -> ModuleType:
    """The module that speaks MCP; Unsupported if the SDK is not installed."""
    try:
        return import_module("holdfast.faces.mcp.protocol")
    except ImportError as error:
        raise errors.Unsupported(
            f"MCP needs more than is installed: {error}", hint="pip install 'holdfast[mcp]'"
        ) from error
