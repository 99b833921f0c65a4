"""Llama 3's form: the answer is JSON objects. Its mark before them is a special token, which no text shows."""

from orchestrator.requests.tools.tool_forms.form import JSON_SPACE, ToolForm, WrittenForm

LLAMA3_JSON = ToolForm(
    template_marks=('{"name": function name, "parameters": dictionary',),
    begin="<|python_tag|>",
    head=JSON_SPACE,
    ends={";": True},
    written=WrittenForm('{"name": "$name", "parameters": $arguments}', between="; "),
    is_bare=True,
)
