"""DeepSeek's forms: of V3 and R1, whose arguments stand in a block of code, and of V3.1."""

import re

from orchestrator.requests.tools.tool_forms.form import ToolForm, WrittenForm

_ALL_BEGIN, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"

DEEPSEEK_V3 = ToolForm(
    template_marks=(_SEPARATOR, "```json"),
    begin=_ALL_BEGIN,
    head=re.compile(rf"\s*({_BEGIN})?function{_SEPARATOR}(?P<name>[\w-]+)\s*```json\s*"),
    ends={f"```{_END}{_ALL_END}": False, f"```{_END}\n{_BEGIN}": True},
    written=WrittenForm(
        f"{_BEGIN}function{_SEPARATOR}$name\n```json\n$arguments\n```{_END}", "\n", begin=_ALL_BEGIN, end=_ALL_END
    ),
)
DEEPSEEK_V31 = ToolForm(
    template_marks=(_SEPARATOR,),
    begin=_ALL_BEGIN,
    head=re.compile(rf"\s*({_BEGIN})?(?P<name>[\w-]+){_SEPARATOR}\s*"),
    ends={f"{_END}{_ALL_END}": False, f"{_END}{_BEGIN}": True},
    written=WrittenForm(f"{_BEGIN}$name{_SEPARATOR}$arguments{_END}", "", begin=_ALL_BEGIN, end=_ALL_END),
)
