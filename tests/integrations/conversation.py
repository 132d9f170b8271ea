"""One run of an agent on a shared session: `conversation.py FOLDER TEXT` prints what its model was given.

The model is a stand-in; everything between it and the session is the SDK's own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import holdfast
from holdfast.integrations.openai_agents import HoldfastSession

agents: Any = importlib.import_module("agents")
responses: Any = importlib.import_module("openai.types.responses")
Model: type[Any] = agents.Model


class StandIn(Model):  # type: ignore[misc]  # checking the types of the SDK would cost more than all of ours
    """Answers with how many messages it was given, and keeps their texts."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        """One message."""
        for item in input:
            content = item["content"]
            self.heard.append(content if isinstance(content, str) else content[0]["text"])
        text = responses.ResponseOutputText(text=f"heard {len(input)}", type="output_text", annotations=[])
        message = responses.ResponseOutputMessage(
            id="1", type="message", role="assistant", status="completed", content=[text]
        )
        return agents.ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Nothing streams here."""
        raise NotImplementedError


async def main(folder: str, text: str) -> list[str]:
    """Run the agent once."""
    agents.set_tracing_disabled(True)
    model = StandIn()
    with holdfast.open(folder, actor="ada") as ws:
        agent = agents.Agent(name="ada", model=model)
        await agents.Runner.run(agent, text, session=HoldfastSession("chat", ws))
    return model.heard


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
