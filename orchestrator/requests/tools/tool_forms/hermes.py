"""NousResearch's form, also Qwen's, and the one that is described to templates without tools."""

from orchestrator.requests.tools.tool_forms.form import JSON_SPACE, ToolForm, WrittenForm
from pilotfish.models.tokens.tool_prompt import CALL_BEGIN, CALL_END

HERMES = ToolForm(
    template_marks=(CALL_BEGIN.strip(),),
    begin=CALL_BEGIN.strip(),
    head=JSON_SPACE,
    ends={CALL_END.strip(): False},
    written=WrittenForm(f'{CALL_BEGIN}{{"name": "$name", "arguments": $arguments}}{CALL_END}', between="\n"),
)
