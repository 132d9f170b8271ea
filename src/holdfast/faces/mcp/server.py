"""MCP through its official SDK: the tools and resources of a definition as a server. Imported on first use.

An error of a tool is a result with code, message, hint and details, so that a model can read what to do next; only
what no model can correct, such as an unknown tool, is an error of the protocol.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from holdfast import __version__, errors
from holdfast.faces.mcp.tool import SCHEME, Caller, ServerDefinition, Tool, error_content, marked, plain

MOST: Final = 100  # completions, by the protocol
LAST_ANSWERS: Final = 2.0  # seconds that a server over pipes has for them when its client has closed its end
CANCELLED: Final = -32800  # the code that the SDK uses for a cancelled request
_log = logging.getLogger("holdfast.mcp")


def build(
    definition: ServerDefinition,
    caller_of: Callable[[Any], Caller],
    settle: Callable[[], Awaitable[None]] | None = None,
) -> Server[Any]:
    """A server for a definition, whose requests each belong to a caller.

    `settle` is awaited before a call: it finds out what `caller_of` needs to know.
    """

    async def settled(context: Any) -> Caller:
        if settle is not None:
            await settle()
        return caller_of(context)

    async def list_tools(context: Any, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(each) for each in definition.tools(caller_of(context)).values()])

    async def call_tool(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        offered = definition.tools(caller_of(context))
        found = offered.get(asked.name)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {asked.name[:80]!r}")
        try:
            caller = await settled(context)
        except errors.HoldfastError as error:
            return _refused(error, offered)
        with caller.cancellable(context.request_id), _traced(context):
            return await _called(found, caller, asked.arguments or {}, offered)
        raise MCPError(CANCELLED, "the client cancelled the call")

    async def list_resources(_: Any, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=SCHEME + name, name=name, description=what, mime_type="text/plain")
                for name, what in definition.fixed.items()
            ]
        )

    async def list_templates(_: Any, __: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(uri_template=SCHEME + name, name=name, description=what, mime_type="text/plain")
                for name, what in definition.templates.items()
            ]
        )

    @contextmanager
    def refusing(context: Any, asked: str = "") -> Iterator[None]:
        """Raise errors as those of the protocol. Their text quotes nobody but the client: `asked` is what it sent."""
        try:
            yield
        except errors.HoldfastError as error:
            code = types.INVALID_PARAMS if error.status < 500 else types.INTERNAL_ERROR
            told = _structured(error, definition.tools(caller_of(context)))
            what = f"{error.code} ({asked})" if asked else error.code
            raise MCPError(code, f"{what} {told['hint']}".strip(), told) from error

    async def read_resource(context: Any, asked: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        with refusing(context):
            text = marked(await definition.read(await settled(context), asked.uri))
        content = types.TextResourceContents(uri=asked.uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(_: Any, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=each.name,
                    description=each.description,
                    arguments=[
                        types.PromptArgument(name=name, description=what, required=needed)
                        for name, (what, needed) in each.arguments.items()
                    ],
                )
                for each in definition.prompts.values()
            ]
        )

    async def get_prompt(context: Any, asked: types.GetPromptRequestParams) -> types.GetPromptResult:
        found, given = definition.prompts.get(asked.name), asked.arguments or {}
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {asked.name[:80]!r}")
        try:
            found.check(given)
        except errors.Invalid as error:
            told = _structured(error, ())
            raise MCPError(types.INVALID_PARAMS, f"{error.code} {error.message}: {told['hint']}", told) from error
        with refusing(context, f"{found.name} with {_shown(given)}" if given else found.name):
            text = types.TextContent(type="text", text=await found.text(await settled(context), given))
        message = types.PromptMessage(role="user", content=text)
        return types.GetPromptResult(description=found.description, messages=[message])

    async def complete(context: Any, asked: types.CompleteRequestParams) -> types.CompleteResult:
        assert definition.complete is not None
        of = asked.ref.name if isinstance(asked.ref, types.PromptReference) else asked.ref.uri
        known = (asked.context and asked.context.arguments) or {}
        with refusing(context):
            caller, argument = await settled(context), asked.argument
            values = await definition.complete(caller, of, argument.name, argument.value, known)
        return types.CompleteResult(completion=types.Completion(values=values, has_more=len(values) == MOST))

    server = Server[Any](
        "holdfast",
        version=__version__,
        instructions=definition.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts if definition.prompts else None,
        on_get_prompt=get_prompt if definition.prompts else None,
        on_completion=None if definition.complete is None else complete,
        get_tool_input_schema=lambda _: None,  # no argument is sent in a header
    )
    server.middleware.clear()  # tracing
    return server


def _shown(given: Mapping[str, str]) -> str:
    """The arguments of a prompt, to be recognized."""
    return ", ".join(f"{name} {value[:80]!r}" for name, value in given.items())


@cache
def described(tool: Tool) -> types.Tool:
    """A tool as clients see it."""
    # Clients take a tool for destructive unless it says otherwise.
    harmless = (
        types.ToolAnnotations(read_only_hint=True) if tool.reads else types.ToolAnnotations(destructive_hint=tool.takes)
    )
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=harmless)


def _traced(context: Any) -> AbstractContextManager[None]:
    """A block whose calls belong to the trace that the `_meta` of a request names, if somebody observes."""
    routes = sys.modules.get("holdfast.route")  # turn tools load nothing of a workspace
    if routes is None or routes.OBSERVED.by is None:
        return nullcontext()
    meta = context.meta if isinstance(context.meta, dict) else {}
    found: AbstractContextManager[None] = routes.OBSERVED.by.incoming(
        {name: value for name, value in meta.items() if isinstance(value, str)}
    )
    return found


async def _called(found: Tool, caller: Caller, given: dict[str, Any], offered: Collection[str]) -> types.CallToolResult:
    try:
        text = marked(await found.run(caller, given))
    except errors.HoldfastError as error:
        return _refused(error, offered)
    except Exception:
        _log.exception("the tool %s failed", found.name)
        return _refused(errors.HoldfastError("internal error; see the server's log"), offered)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _refused(error: errors.HoldfastError, offered: Collection[str]) -> types.CallToolResult:
    """An error for a model, as text and as data."""
    text = types.TextContent(type="text", text=marked(error_content(error, offered)))
    return types.CallToolResult(content=[text], structured_content=_structured(error, offered), is_error=True)


def _structured(error: errors.HoldfastError, offered: Collection[str]) -> dict[str, Any]:
    """An error as data, with the fields that may quote somebody."""
    return {**plain(error_content(error, offered)), "untrusted": ["message", "hint", "details"]}


# --- transports ------------------------------------------------------------------------------------------------------


async def over_stdio(
    definition: ServerDefinition,
    caller_of: Callable[[Any], Caller],
    settle: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the client at the other end of the standard streams until it closes them.

    What it has asked before is answered: the SDK itself would cancel that when the input ends.
    """
    server = build(definition, caller_of, settle)
    to_server, requests = anyio.create_memory_object_stream[Any]()
    answers, to_client = anyio.create_memory_object_stream[Any]()
    open_: set[object] = {to_server}  # the input, and the ids of what it asked
    settled = anyio.Event()

    def close(what: object) -> None:
        open_.discard(what)
        if not open_:
            settled.set()

    async def forward_requests() -> None:
        async with to_server:
            async for item in incoming:
                if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCRequest):
                    open_.add(item.message.id)
                await to_server.send(item)
            close(to_server)
            with anyio.move_on_after(LAST_ANSWERS):
                await settled.wait()

    async def forward_answers() -> None:
        async with outgoing, to_client:
            async for item in to_client:
                await outgoing.send(item)
                if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                    close(item.message.id)

    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(forward_requests)
        tasks.start_soon(forward_answers)
        await server.run(requests, answers, server.create_initialization_options())


def over_http(definition: ServerDefinition, caller_of: Callable[[Any], Caller]) -> StreamableHTTPSessionManager:
    """The SDK's handler of requests over HTTP, without sessions."""
    logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs every request
    return StreamableHTTPSessionManager(build(definition, caller_of), stateless=True)
