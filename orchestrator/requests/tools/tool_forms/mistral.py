"""Mistral's forms: a list of objects; since the tokenizer's version 11 the name stands before the arguments."""

import re

from orchestrator.requests.tools.tool_forms.form import ToolForm, WrittenForm

_BEGIN, _NUM_ID_CHARS = "[TOOL_CALLS]", 9

MISTRAL_ARGS = ToolForm(
    template_marks=(_BEGIN, "[ARGS]"),
    begin=_BEGIN,
    head=re.compile(r"\s*(?P<name>[\w-]+)(\[CALL_ID\]\w+)?(\[ARGS\])?\s*"),
    ends={},
    written=WrittenForm("[TOOL_CALLS]$name[ARGS]$arguments", between=""),
    num_id_chars=_NUM_ID_CHARS,
)
MISTRAL_LIST = ToolForm(
    template_marks=(_BEGIN,),
    begin=_BEGIN,
    head=re.compile(r"\s*\[?\s*"),
    ends={",": True, "]": False},
    written=WrittenForm('{"name": "$name", "arguments": $arguments}', ", ", begin="[TOOL_CALLS][", end="]"),
    num_id_chars=_NUM_ID_CHARS,
)
