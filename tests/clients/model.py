"""A stand-in for the model behind a client: it does what the prompt says, and remembers what it was asked.

A prompt carries its script: `SCRIPT [{"tool": "Write", "input": {...}}, ...] END`. For each request the stand-in finds
the last such prompt in the conversation, counts the tool calls since, and answers with the next step, or with a last
text. So it needs no state, and a session that is resumed goes on as it should. It speaks the messages API of Anthropic,
the responses API of OpenAI and `streamGenerateContent` of Gemini, each as a stream of events.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SCRIPT = re.compile(r"SCRIPT (\[.*?\]) END", re.DOTALL)


def prompt(*steps: dict[str, Any]) -> str:
    """A prompt whose script has these steps."""
    return f"SCRIPT {json.dumps(list(steps))} END"


class Model:
    """The stand-in, on a port of its own, with all that it was asked."""

    def __init__(self) -> None:
        model = self
        self.asked: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    asked = json.loads(body or b"{}")
                except ValueError:
                    asked = {}
                model.asked.append(asked)
                self.respond(*model.answer(self.path.partition("?")[0], asked))

            def do_GET(self) -> None:
                self.respond("application/json", json.dumps({"data": [], "models": []}).encode())

            def respond(self, kind: str, content: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def heard(self, words: str) -> bool:
        """Whether words were in something it was asked."""
        return any(words in json.dumps(each, ensure_ascii=False) for each in self.asked)

    def most(self, words: str) -> int:
        """How often words are in one thing that it was asked, at most: each has the whole conversation."""
        return max(json.dumps(each, ensure_ascii=False).count(words) for each in self.asked)

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[str, bytes]:
        """The type and content of the response to a request."""
        if path.endswith("/count_tokens") or path.endswith(":countTokens"):
            return "application/json", json.dumps({"input_tokens": 1, "totalTokens": 1}).encode()
        if path.endswith("/responses"):
            step = _step(_openai_turns(asked))
            offered = {each.get("name") for each in asked.get("tools", ())}
            if step is not None and step.get("namespace", "") not in ("", *offered):
                step = _WAIT  # the server that has this tool has not started yet
            return _stream(_openai(step))
        if "GenerateContent" in path or "generateContent" in path:
            step = _step(_gemini_turns(asked))
            declared = [each for tools in asked.get("tools", ()) for each in tools.get("functionDeclarations", ())]
            if step is not None and step["tool"] not in {each["name"] for each in declared}:
                step = _WAIT_IN_GEMINI
            event = _gemini(step)
            if "stream" not in path:
                return "application/json", json.dumps(event).encode()
            return "text/event-stream", f"data: {json.dumps(event)}\n\n".encode()
        if path.endswith("/messages"):
            step = _step(_anthropic_turns(asked))
            if step is not None and _is_missing(asked["messages"]):
                step = _WAIT_IN_BASH  # the server that has this tool has not started yet: it is called again
            if not asked.get("stream"):
                return "application/json", json.dumps(_anthropic_whole(step)).encode()
            return _stream(_anthropic(step))
        return "application/json", b"{}"


def _step(turns: list[str | int]) -> dict[str, Any] | None:
    """The next step of the last script: a turn is a text, or a number of tool calls."""
    script: list[dict[str, Any]] = []
    done = 0
    for turn in turns:
        if isinstance(turn, int):
            done += turn
        elif found := _SCRIPT.findall(turn):
            script, done = json.loads(found[-1]), 0
    return script[done] if done < len(script) else None


def _stream(events: Iterator[dict[str, Any]]) -> tuple[str, bytes]:
    return "text/event-stream", b"".join(
        f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events
    )


# --- Anthropic -------------------------------------------------------------------------------------------------------


def _anthropic_turns(asked: dict[str, Any]) -> list[str | int]:
    turns: list[str | int] = []
    for message in asked.get("messages", ()):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            turns.append(sum(block["type"] == "tool_use" and _counts(block["input"]) for block in blocks))
        else:
            turns.append(-sum(_MISSING in json.dumps(block) for block in blocks if block["type"] == "tool_result"))
            turns += [block["text"] for block in blocks if block["type"] == "text"]
    return turns if asked.get("tools") else []


_MISSING = "No such tool available"


def _is_missing(messages: list[dict[str, Any]]) -> bool:
    """Whether the last result of a tool says that there is no such tool."""
    said = [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
    results = [block for block in said if block.get("type") == "tool_result"]
    return bool(results) and _MISSING in json.dumps(results[-1])


def _anthropic_whole(step: dict[str, Any] | None) -> dict[str, Any]:
    block = {"type": "text", "text": "done"}
    if step is not None:
        block = {"type": "tool_use", "id": f"toolu_{id(step):x}", "name": step["tool"], "input": step["input"]}
    return {
        **{"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in", "content": [block]},
        **{"stop_reason": "end_turn" if step is None else "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _anthropic(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    whole = _anthropic_whole(step)
    (block,) = whole["content"]
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    if step is None:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "text_delta", "text": "done"}
    else:
        yield {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step["input"])}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


_WAIT_IN_BASH = {"tool": "Bash", "input": {"command": "sleep 1 # for a server", "description": "wait"}}
_WAIT_IN_GEMINI = {"tool": "run_shell_command", "input": {"command": "sleep 1 # for a server"}}


def _counts(given: Any) -> bool:
    """Whether a call is a step, and did not only wait."""
    return "for a server" not in json.dumps(given)


# --- OpenAI ----------------------------------------------------------------------------------------------------------

_WAIT = {"tool": "exec_command", "input": {"cmd": "sleep 1 # for a server"}}
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "mcp_call")


def _openai_turns(asked: dict[str, Any]) -> list[str | int]:
    turns: list[str | int] = []
    for item in asked.get("input", ()):
        if item.get("type") in _CALLS:
            turns.append(0 if "for a server" in item.get("arguments", "") else 1)
        elif item.get("role") == "user":
            content = item.get("content", ())
            turns += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return turns


def _openai(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    done: dict[str, Any] = {
        **{"id": "resp_1", "object": "response", "status": "completed", "output": []},
        "usage": {
            **{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            **{"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
        },
    }
    yield {"type": "response.created", "response": {**done, "status": "in_progress"}}
    item: dict[str, Any]
    if step is None:
        text = {"type": "output_text", "text": "done", "annotations": []}
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]}
    elif isinstance(step["input"], str):
        item = {"type": "custom_tool_call", "id": "c1", "call_id": "c1", "name": step["tool"], "input": step["input"]}
    else:
        arguments = json.dumps(step["input"])
        item = {"type": "function_call", "id": "f1", "call_id": "f1", "name": step["tool"], "arguments": arguments}
        if "namespace" in step:
            item["namespace"] = step["namespace"]
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**done, "output": [item]}}


# --- Gemini ----------------------------------------------------------------------------------------------------------


def _gemini_turns(asked: dict[str, Any]) -> list[str | int]:
    turns: list[str | int] = []
    for content in asked.get("contents", ()):
        parts = content.get("parts", ())
        if content.get("role") == "model":
            turns.append(sum("functionCall" in part and _counts(part["functionCall"]) for part in parts))
        else:
            turns += [part["text"] for part in parts if "text" in part]
    return turns if asked.get("tools") else []


def _gemini(step: dict[str, Any] | None) -> dict[str, Any]:
    part: dict[str, Any] = {"text": "done"}
    if step is not None:
        part = {"functionCall": {"name": step["tool"], "args": step["input"]}}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }
