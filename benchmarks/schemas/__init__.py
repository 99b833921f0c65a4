"""Sixty requests whose answers follow a schema, of the kinds that people use."""

from schemas.choices import CHOICES
from schemas.extraction import EXTRACTIONS
from schemas.forms import FormRequest
from schemas.nested import NESTED
from schemas.tool_calls import TOOL_CALLS

KINDS = ("tool calls", "extraction", "choices", "nested lists")
FORM_REQUESTS: tuple[FormRequest, ...] = (*TOOL_CALLS, *EXTRACTIONS, *CHOICES, *NESTED)
