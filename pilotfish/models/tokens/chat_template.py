"""Rendering a model's chat template as transformers does, without transformers. Torch-free.

A template is code from strangers: it runs in jinja's sandbox and sees plain strings only.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pilotfish.chat import ChatMessage, ToolCall
from pilotfish.errors import ConfigError, InvalidRequestError, UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.models.tokens.tool_prompt import fold_tools, parse_model_arguments

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TemplateOptions:
    """How a request has its chat written."""

    add_generation_prompt: bool = True
    """The assistant's turn begins."""
    continue_final_message: bool = False
    """The last message stays open, and the answer goes on with it."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What the template may read besides."""


DEFAULT_OPTIONS = TemplateOptions()
_OPEN_END = "<pilotfish-goes-on-here> "
"""Stands behind the last message while it is rendered, where that stays open; the space shows whether it is
stripped, as many templates do."""
_OWN_VARIABLES = {"messages", "tools", "add_generation_prompt"}


class ChatTemplate:
    """A compiled chat template with the special tokens that it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile. Raises: UnsupportedModelError when the template is not valid jinja."""
        self.source = source
        self._special_tokens = dict(special_tokens)
        environment = _environment()
        try:
            self._template: Template = environment.from_string(source)
            read = find_undeclared_variables(environment.parse(source))
        except TemplateError as error:
            raise UnsupportedModelError(f"the model's chat template does not compile: {error}") from error
        self._reads_tools = "tools" in read
        self.variables: Set[str] = read - _OWN_VARIABLES - special_tokens.keys()
        """What it reads of `TemplateOptions.variables`."""

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = DEFAULT_OPTIONS,
    ) -> str:
        """The prompt text.

        System messages are where the request has them; if the template refuses or leaves out those that follow others,
        all of them are the first. tools: definitions as in the OpenAI API; for a template that knows none the system
        message describes them. Raises: InvalidRequestError when the template refuses the messages.
        """
        if not self._reads_tools:
            messages = fold_tools(messages, tools)
        later = [message.content.strip() for message in messages[1:] if message.role == "system"]
        if later and not (options.continue_final_message and messages[-1].role == "system"):
            with contextlib.suppress(InvalidRequestError):
                text = self._render(messages, tools, options)
                if all(content in text for content in later):
                    return text
            messages = _with_one_system_message(messages)
        return self._render(messages, tools, options)

    def _render(
        self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]], options: TemplateOptions
    ) -> str:
        turns = [_turn(message) for message in messages]
        if options.continue_final_message and turns[-1]["content"].strip():
            turns[-1]["content"] += _OPEN_END
        try:
            own = {
                "messages": turns,
                "tools": list(tools) or None,
                "add_generation_prompt": options.add_generation_prompt,
                **self._special_tokens,
            }
            text = self._template.render({"documents": None, **options.variables, **own})
            text.encode()  # a template may write a call's argument without tojson: half a surrogate pair is no text
        # Strangers' code: besides its own refusals it may trip over the messages in any way.
        except (TemplateError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise InvalidRequestError(f"the model's chat template refuses these messages: {error}") from error
        return _left_open(text) if options.continue_final_message else text


def _with_one_system_message(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    contents = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    return [ChatMessage("system", "\n\n".join(contents)), *others]


def _left_open(text: str) -> str:
    """The chat up to its last message's end, as transformers finds it."""
    end = text.rfind(_OPEN_END.rstrip())
    if end < 0:
        raise InvalidRequestError(
            "the chat template does not write the last message as it is: there is nothing to continue",
            param="continue_final_message",
        )
    return text[:end] if text.startswith(_OPEN_END, end) else text[:end].rstrip()


def _turn(message: ChatMessage) -> dict[str, Any]:
    """The message as transformers' templates expect it: what is not there is not named."""
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
        if not (message.tool_calls and message.content):
            turn["thinking"] = message.reasoning  # gpt-oss' name, who refuses both beside a call
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.name:
        turn["name"] = message.name
    return turn


def _call(call: ToolCall) -> dict[str, Any]:
    # Templates write arguments with tojson, so where they are JSON they must not be text.
    function = {"name": call.name, "arguments": parse_model_arguments(call.arguments)}
    return {"type": "function", "id": call.call_id, "function": function}


def load_chat_template(folder: Path, file: str = "") -> ChatTemplate | None:
    """The template of `file`, else the folder's (chat_template.jinja, else in tokenizer_config.json); None: none.

    Raises ConfigError for a file that cannot be read.
    """
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    template_path = Path(file).expanduser() if file else folder / "chat_template.jinja"
    try:
        in_file = template_path.is_file() or bool(file)
        source = template_path.read_text(encoding="utf-8") if in_file else config.get("chat_template")
    except OSError as error:
        raise ConfigError(f"the chat template {template_path} cannot be read: {error.strerror}") from None
    if isinstance(source, list):  # several named templates
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    return None if source is None else ChatTemplate(source, _special_tokens(config))


def _special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and its kind; each a string or a mapping with its content."""
    tokens = {}
    for key, value in tokenizer_config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(content, str):
            tokens[key] = content
    return tokens


def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training masks; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 -- jinja's own attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """A tojson that does not escape for HTML as jinja's own does, which models were not trained on.

    Half of a surrogate pair, which only an escape can bring in, stays one.
    """
    text = json.dumps(value, indent=indent, **{"ensure_ascii": False, **options})
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format_string: str) -> str:
    return datetime.now().strftime(format_string)
