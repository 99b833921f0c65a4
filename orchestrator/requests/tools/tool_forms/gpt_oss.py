"""The form of gpt-oss: a message to a function, on the channel `commentary` (OpenAI's harmony format)."""

import re

from orchestrator.requests.tools.tool_forms.form import ToolForm, WrittenForm

CALL_BEGIN, MESSAGE, CALL_END = "<|channel|>commentary to=functions.", "<|message|>", "<|call|>"
_NEXT = "<|end|><|start|>assistant"

GPT_OSS = ToolForm(
    template_marks=("<|channel|>commentary", MESSAGE),
    begin=CALL_BEGIN,
    head=re.compile(r"(?P<name>[\w-]+)\s*(<\|constrain\|>)?\s*(json)?\s*<\|message\|>\s*"),
    ends={_NEXT: False, CALL_END: False, "<|end|>": False},
    written=WrittenForm(f"{CALL_BEGIN}$name <|constrain|>json{MESSAGE}$arguments", between=_NEXT),
    answer_begin=f"<|channel|>final{MESSAGE}",
)
