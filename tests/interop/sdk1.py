"""The client of PyPI `mcp` 1.x: does what the order on stdin says and prints what it saw.

It judges nothing: the expectations are in `tests/whole/interop.rs`, the same for every client.
"""

import asyncio
import json
import sys
from datetime import timedelta

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client


async def seen(order: dict) -> dict:
    command, *arguments = order["command"]
    server = StdioServerParameters(command=command, args=arguments, env=order["env"])
    async with stdio_client(server) as (reader, writer):
        async with ClientSession(reader, writer, timedelta(seconds=30)) as session:
            hello = await session.initialize()
            tools = await session.list_tools()
            calls = {}
            for call in order["calls"]:
                result = await session.call_tool(call["tool"], call["arguments"])
                calls[call["name"]] = plain(result)
            return {
                "protocol": hello.protocolVersion,
                "tools": plain(tools)["tools"],
                "calls": calls,
                "refused": {
                    "prompts/list": await code_of(session.list_prompts()),
                    "resources/list": await code_of(session.list_resources()),
                },
            }


async def code_of(asking) -> int | None:
    """The error code that the asking was answered with; nothing when it was answered well."""
    try:
        await asking
    except McpError as refusal:
        return refusal.error.code
    return None


def plain(message) -> dict:
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


if __name__ == "__main__":
    json.dump(asyncio.run(seen(json.load(sys.stdin))), sys.stdout)
