"""The client of PyPI `mcp` 2.x: does what the order on stdin says and prints what it saw.

It judges nothing: the expectations are in `tests/whole/interop.rs`, the same for every client.
"""

import asyncio
import json
import sys

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters


async def seen(order: dict) -> dict:
    command, *arguments = order["command"]
    server = StdioServerParameters(command=command, args=arguments, env=order["env"])
    async with Client(server, read_timeout_seconds=30, mode=order["mode"]) as client:
        tools = await client.list_tools()
        calls = {}
        for call in order["calls"]:
            result = await client.call_tool(call["tool"], call["arguments"])
            calls[call["name"]] = plain(result)
        return {
            "protocol": client.protocol_version,
            "tools": plain(tools)["tools"],
            "calls": calls,
            "refused": {
                "prompts/list": await code_of(client.session.list_prompts()),
                "resources/list": await code_of(client.session.list_resources()),
            },
        }


async def code_of(asking) -> int | None:
    """The error code that the asking was answered with; nothing when it was answered well."""
    try:
        await asking
    except MCPError as refusal:
        return refusal.code
    return None


def plain(message: types.Result) -> dict:
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


if __name__ == "__main__":
    json.dump(asyncio.run(seen(json.load(sys.stdin))), sys.stdout)
