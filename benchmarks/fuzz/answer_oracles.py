"""What must hold for an answer, worked out in another way than the code under test does it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.answers.output import OutputChunk
from pilotfish.models.tokens.tokenizer import Tokenizer

_JSON_SPACE = " \t\n\r"
_BEGIN, _END = "<tool_call>", "</tool_call>"


def check_text(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    stop_token_ids: Sequence[int],
    stop: Sequence[str],
    told: OutputChunk,
) -> list[str]:
    """The text is that of all tokens decoded at once, up to the first stop."""
    end = next((index for index, token_id in enumerate(token_ids) if token_id in stop_token_ids), len(token_ids))
    text = tokenizer.decode(token_ids[:end])
    if not tokenizer.token_bytes.is_byte_level and "\ufffd" in text:
        return []  # decoding at once spoils the neighbours of broken bytes; see Detokenizer
    matches = [(text.index(each) + len(each), -len(each)) for each in stop if each in text]
    if matches:
        match_end, negative_length = min(matches)
        text = text[: match_end + negative_length]
    return [] if told.text == text else [f"the text is {told.text!r}, not {text!r}"]


def check_chat(
    tokenizer: Tokenizer, told: OutputChunk, choice: dict[str, Any], events: Sequence[dict[str, Any]]
) -> list[str]:
    """Calls are those of the text, streamed and whole alike, and log-probabilities' bytes are the text's."""
    faults = []
    message = choice["message"]
    content, calls = message["content"] or "", [_call(item) for item in message.get("tool_calls", ())]
    expected_calls, rest = _calls_of(told.text)
    if calls != expected_calls:
        faults.append(f"the calls are {calls}, not {expected_calls}")
    if (content != told.text) if not calls else ("".join(content.split()) != "".join(rest.split())):
        faults.append(f"the content is {content!r} of {told.text!r}")
    if calls and content.rstrip() != content:
        faults.append(f"the content ends in space: {content!r}")
    deltas = [event["delta"] for event in events]
    streamed = [_call(item) for delta in deltas for item in delta.get("tool_calls", ())]
    if streamed != calls or "".join(delta.get("content") or "" for delta in deltas) != content:
        faults.append(f"streamed as {deltas}")
    if events[-1]["finish_reason"] != choice["finish_reason"]:
        faults.append(f"streamed to the end {events[-1]['finish_reason']}, not {choice['finish_reason']}")
    items = choice["logprobs"]["content"]
    if [item for event in events for item in (event["logprobs"] or {"content": ()})["content"]] != items:
        faults.append("the streamed log-probabilities differ")
    if tokenizer.token_bytes.is_byte_level:
        data = bytes(byte for item in items for byte in item["bytes"]).decode(errors="replace")
        if not data.startswith(told.text.rstrip("\ufffd")):
            faults.append(f"the bytes of the tokens are {data!r}, the text {told.text!r}")
    return faults


def check_completion(
    tokenizer: Tokenizer, told: OutputChunk, echo: str, choice: dict[str, Any], events: Sequence[dict[str, Any]]
) -> list[str]:
    """Offsets point into the text, and no token is missing, streamed and whole alike."""
    faults = []
    text, logprobs = choice["text"], choice["logprobs"]
    if text != echo + told.text:
        faults.append(f"the text is {text!r}")
    pieces = [event["logprobs"] for event in events if event["logprobs"]]
    joined = {key: [value for piece in pieces for value in piece[key]] for key in logprobs}
    if "".join(event["text"] for event in events) != text or joined != logprobs:
        faults.append(f"streamed as {events}")
    offsets = logprobs["text_offset"]
    if offsets != sorted(offsets) or not len(echo) <= offsets[0] <= offsets[-1] <= len(text):
        faults.append(f"the offsets are {offsets} in a text of {len(text)}")
    if not len(told.token_ids) == len(offsets) == len(logprobs["tokens"]) == len(logprobs["top_logprobs"]):
        faults.append("the lists are not as long as the answer")
    for index, (token_id, offset) in enumerate(zip(told.token_ids, offsets, strict=True)):
        faults += _token_faults(tokenizer, told, index, offset - len(echo))
        top, name = logprobs["top_logprobs"][index], logprobs["tokens"][index]
        asked = set(told.logprobs[index].top_token_ids)
        if top.get(name) != logprobs["token_logprobs"][index] or len(top) != len(asked | {token_id}):
            faults.append(f"of token {token_id} the likeliest are {top}")
    return faults


def _token_faults(tokenizer: Tokenizer, told: OutputChunk, index: int, offset: int) -> list[str]:
    """A token that is whole characters stands where its offset says, or a stop has cut it off."""
    token_id, text = told.token_ids[index], told.text
    if not tokenizer.token_bytes.is_byte_level and "\ufffd" in text:
        return []  # as check_text
    shown = tokenizer.bytes_of(token_id).decode(errors="replace")
    if not tokenizer.token_bytes.is_byte_level and offset == 0 and not text.startswith(shown):
        shown = shown.removeprefix(" ")  # the space before the first word is taken off
    is_last = index == len(told.token_ids) - 1
    if "\ufffd" in shown or (is_last and offset == len(text)) or shown.startswith(text[offset : offset + len(shown)]):
        return []
    return [f"token {token_id} ({shown!r}) is not at {offset} of {text!r}"]


def _call(item: dict[str, Any]) -> tuple[str, str]:
    arguments = item["function"]["arguments"]
    assert isinstance(json.loads(arguments), dict)
    return item["function"]["name"], arguments


def _calls_of(text: str) -> tuple[list[tuple[str, str]], str]:
    """(calls, the text around them), by json's own idea of where an object ends."""
    calls, rest, position = [], [], 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        rest.append(text[position:begin])
        start = begin + len(_BEGIN)
        found = _call_at(text, start)
        if found is None:
            rest.append(_BEGIN)
            position = start
        else:
            name, arguments, position = found
            calls.append((name, arguments))
    return calls, "".join((*rest, text[position:]))


def _call_at(text: str, start: int) -> tuple[str, str, int] | None:
    """(name, arguments as written, where the text goes on)."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    begin = start + len(text[start:]) - len(text[start:].lstrip(_JSON_SPACE))
    try:
        value, end = decoder.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    behind = text[end:].lstrip(_JSON_SPACE)
    if not behind.startswith(_END) and not _END.startswith(behind):
        return None
    go_on = len(text) - len(behind) + len(_END) if behind.startswith(_END) else len(text)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not _is_text(value["name"]):
        return None
    written = _members(text, begin, decoder)
    for key in ("arguments", "parameters"):
        if isinstance(value.get(key), dict):
            # Half a surrogate pair anywhere in the call has its arguments escaped anew.
            is_whole = _is_text(json.dumps(value, ensure_ascii=False))
            return value["name"], written[key] if is_whole else json.dumps(value[key]), go_on
    return None


def _is_text(text: str) -> bool:
    """Whether it holds no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _members(text: str, begin: int, decoder: json.JSONDecoder) -> dict[str, str]:
    """The members of the object that begins there, as they are written; of one key the last."""
    written, position = {}, _behind_space(text, begin + 1)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = _behind_space(text, _behind_space(text, position) + 1)
        _, position = decoder.raw_decode(text, start)
        written[key] = text[start:position]
        position = _behind_space(text, position)
        if text[position] == ",":
            position = _behind_space(text, position + 1)
    return written


def _behind_space(text: str, position: int) -> int:
    while text[position] in _JSON_SPACE:
        position += 1
    return position


def _refuse(constant: str) -> None:
    raise ValueError(constant)
