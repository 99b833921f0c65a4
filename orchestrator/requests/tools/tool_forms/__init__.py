"""The forms in which models write calls. Pure: no I/O, no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.requests.tools.tool_forms.deepseek_v3 import DEEPSEEK_V3, DEEPSEEK_V31
from orchestrator.requests.tools.tool_forms.form import MARKS, ToolForm
from orchestrator.requests.tools.tool_forms.gpt_oss import GPT_OSS
from orchestrator.requests.tools.tool_forms.hermes import HERMES
from orchestrator.requests.tools.tool_forms.llama3_json import LLAMA3_JSON
from orchestrator.requests.tools.tool_forms.mistral import MISTRAL_ARGS, MISTRAL_LIST
from pilotfish.models.tokens.tokenizer import Tokenizer

PARSERS: Mapping[str, tuple[ToolForm, ...]] = {
    "hermes": (HERMES,),
    "llama3_json": (LLAMA3_JSON,),
    "mistral": (MISTRAL_ARGS, MISTRAL_LIST),
    "deepseek_v3": (DEEPSEEK_V3,),
    "deepseek_v31": (DEEPSEEK_V31,),
    "openai": (GPT_OSS,),
}
"""Forms by vLLM's parser names, as in HttpConfig; of several forms the chat template decides which."""


def tool_form(name: str, tokenizer: Tokenizer) -> ToolForm:
    """The form of a parser; `auto`: the first whose marks the chat template has, else Hermes', in whose words templates
    without tools describe them."""
    template = tokenizer.chat_template
    forms = PARSERS.get(name) or tuple(form for forms in PARSERS.values() for form in forms)
    fitting = (form for form in forms if all(mark in template for mark in form.template_marks))
    form = next(fitting, HERMES if name == "auto" else forms[-1])
    return replace(form, special_token_ids=_special_tokens(form, tokenizer))


def _special_tokens(form: ToolForm, tokenizer: Tokenizer) -> dict[str, int]:
    """The marks of what it writes that are special tokens."""
    marks = set(MARKS.findall("".join(form.written)))
    encoded = {mark: tokenizer.encode(mark, add_special_tokens=False) for mark in marks}
    return {mark: ids[0] for mark, ids in encoded.items() if len(ids) == 1 and ids[0] in tokenizer.special_token_ids}
