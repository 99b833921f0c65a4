"""Requests whose answers follow a schema: what they are made of."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class FormRequest:
    """One request of one kind."""

    kind: str
    question: str
    schema: Schema
    function: str = ""
    """The function whose arguments the schema describes; empty: the answer itself follows it."""
    about: str = ""
    """What the function does."""

    def body(self, model: str, max_tokens: int) -> dict[str, Any]:
        """What is asked of /v1/chat/completions."""
        question, form = self.question, {}
        if self.function:
            function = {"name": self.function, "description": self.about, "parameters": self.schema}
            form = {
                "tools": [{"type": "function", "function": function}],
                "tool_choice": {"type": "function", "function": {"name": self.function}},
                "parallel_tool_calls": False,
            }
        else:
            # As providers advise: what the model does not know it cannot mean to write.
            question += f"\n\nAnswer as JSON that follows this schema:\n{json.dumps(self.schema)}"
            form = {
                "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.schema}}
            }
        return {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": max_tokens,
            **form,
        }


def record(**properties: Schema) -> Schema:
    """An object with just these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(max_chars: int) -> Schema:
    return {"type": "string", "maxLength": max_chars}


def choice(*values: str) -> Schema:
    return {"enum": list(values)}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def flag() -> Schema:
    return {"type": "boolean"}


def day() -> Schema:
    return {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"}


def some(item: Schema, most: int, least: int = 1) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}
