"""Conversations and the calls in them, as plain values."""

from __future__ import annotations

import msgspec

ROLES = {name: name for name in ("system", "user", "assistant", "tool")} | {"developer": "system"}
"""Roles of messages, by what requests call them: most models know the newer name by the older one."""


class ToolCall(msgspec.Struct, frozen=True):
    """A function that the model calls."""

    call_id: str
    name: str
    arguments: str
    """A JSON object, as text, if the model wrote one and was not cut off."""


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of a conversation; see pilotfish.v1.ChatMessage."""

    role: str
    """Author: `system`, `user`, `assistant` or `tool`."""
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """The assistant's calls."""
    tool_call_id: str = ""
    """A tool turn's: the call that it is the result of."""
    reasoning: str = ""
    """What the assistant thought before; few templates show it."""
    name: str = ""
    """Who of those in this role speaks, or the tool whose result it is; few templates show it."""
