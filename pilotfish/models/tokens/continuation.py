"""Tokenising the middle of a text. Torch-free."""

from __future__ import annotations

import json
from typing import Any

import tokenizers


class Continuation:
    """Tokenises text that continues other text: no token is added around it, and no space before it."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        description = json.loads(backend.to_str())
        description["post_processor"] = None
        for part in ("normalizer", "pre_tokenizer"):
            description[part] = _without_prefix(description[part])
        self._backend = tokenizers.Tokenizer.from_str(json.dumps(description))

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Token ids, and the place in the text, in characters, where each begins: a token within a character begins
        where that does."""
        (encoding,) = self._backend.encode_batch([text], add_special_tokens=False)
        return encoding.ids, [start for start, _ in encoding.offsets]


def _without_prefix(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A step of a tokenizer.json that puts nothing before its text; None: there is none."""
    if step is None:
        return None
    match step["type"]:
        case "Sequence":
            name = "normalizers" if "normalizers" in step else "pretokenizers"
            steps = [kept for each in step[name] if (kept := _without_prefix(each)) is not None]
            return {**step, name: steps} if steps else None
        case "Prepend":
            return None
        case "Metaspace":
            return {**step, "prepend_scheme": "never"}
        case "ByteLevel":
            return {**step, "add_prefix_space": False}
    return step
