import json
from pathlib import Path

import pytest

from pilotfish.chat import ChatMessage, ToolCall
from pilotfish.errors import ConfigError, InvalidRequestError, UnsupportedModelError
from pilotfish.models.tokens.chat_template import ChatTemplate, TemplateOptions, load_chat_template

HELLO = [ChatMessage("user", "hello <b>")]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].role }}: {{ messages[0]['content'] }}", "<s>user: hello <b>"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hello <b>"}'),
        ("{% for m in messages * 3 %}x{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}", "xx"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% if tools %}tools{% else %}none{% endif %}", "none"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("a{% generation %}b{{ messages[0].role }}{% endgeneration %}c", "abuserc"),
        ("{{ strftime_now('year') }}", "year"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
    ],
)
def test_renders_what_hub_templates_use(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[7].role.x }}",
    ],
)
def test_refusals_and_escapes_are_invalid_requests(source: str) -> None:
    with pytest.raises(InvalidRequestError, match="chat template"):
        render(source)


def test_a_message_has_the_name_that_it_is_given() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.get('name') or m.role }}|{% endfor %}", {})
    assert template.render([ChatMessage("user", "x", name="ann"), ChatMessage("user", "x")]) == "ann|user|"


def call_in(source: str, arguments: str) -> str:
    message = ChatMessage("assistant", "", (ToolCall("1", "f", arguments),))
    return ChatTemplate(
        "{% if tools %}{% endif %}{% set f = messages[0].tool_calls[0].function %}" + source, {}
    ).render([message])


def test_arguments_are_written_as_json_again() -> None:
    arguments = r'{"a": "\ud83d", "b": "\ud83d\ude00", "\udfff": [1.5, 1e300]}'
    text = call_in("{{ f.arguments | tojson }}", arguments)
    assert json.loads(text) == json.loads(arguments)
    assert "😀".encode() in text.encode()


def test_arguments_that_are_no_text_are_invalid_requests() -> None:
    with pytest.raises(InvalidRequestError):
        call_in("{{ f.arguments.a }}", r'{"a": "\ud83d"}')


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("{", "{}"),
        ('{"q": "a', '{"q": "a"}'),
        ('{"q": "a\\', '{"q": "a"}'),
        ('{"n": [1, {"b": 2.5', '{"n": [1, {"b": 2.5}]}'),
        ('{"n": 1, "q', '{"n": 1}'),
        ('{"n": 1, "q": tr', '{"n": 1}'),
    ],
)
def test_of_arguments_that_are_cut_off_there_is_what_is_certain(arguments: str, written: str) -> None:
    assert call_in(
        "{% for name, _ in f.arguments.items() %}{{ name }}{% endfor %}{{ f.arguments | tojson }}", arguments
    )
    assert call_in("{{ f.arguments | tojson }}", arguments) == written


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": nonsense}',
        '{"a": 1e999}',
        '{"a": -1e999}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999',
        '{"a": ' + "9" * 5000,
        '{"a": ' + "[" * 100_000,
        "[1, 2",
        "x",
        " ",
    ],
    ids=lambda arguments: arguments[:16],
)
def test_what_a_model_wrote_that_is_no_json_is_text(arguments: str) -> None:
    assert json.loads(call_in("{{ f.arguments | tojson }}", arguments)) == arguments


def test_template_that_does_not_compile() -> None:
    with pytest.raises(UnsupportedModelError, match="compile"):
        ChatTemplate("{% if %}", {})


def test_file_goes_before_config_and_lists_have_a_default(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path) is None
    templates = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d{{ eos_token }}"}]
    config = {"chat_template": templates, "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "d</s>"
    (tmp_path / "chat_template.jinja").write_text("file")
    template = load_chat_template(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "file"
    (tmp_path / "mine.jinja").write_text("mine{{ eos_token }}")
    template = load_chat_template(tmp_path, str(tmp_path / "mine.jinja"))
    assert template is not None
    assert template.render(HELLO) == "mine</s>"
    with pytest.raises(ConfigError, match=r"gone\.jinja cannot be read: No such file"):
        load_chat_template(tmp_path, str(tmp_path / "gone.jinja"))


def test_what_the_server_sets_is_not_for_requests() -> None:
    source = "{{ bos_token }}{{ mood }}{% for message in messages %}{% endfor %}{{ tools }}{{ add_generation_prompt }}"
    assert ChatTemplate(source, {"bos_token": "<s>"}).variables == {"mood"}


@pytest.mark.parametrize("written", ["m.content", "m.content | trim"])
@pytest.mark.parametrize("content", ["<", "m", "end", "a", "b c", "  lead", "trail  "])
def test_a_message_that_stays_open_ends_with_its_content(written: str, content: str) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.role }}:{{ " + written + " }}<|im_end|>{% endfor %}"
    messages = [ChatMessage("user", "a"), ChatMessage("assistant", content)]
    text = ChatTemplate(source, {}).render(messages, options=TemplateOptions(False, True))
    expected = content.strip() if "trim" in written else content
    assert text == f"<|im_start|>user:a<|im_end|><|im_start|>assistant:{expected}"


@pytest.mark.parametrize(
    ("source", "content"), [("{{ messages[0].content }}", " "), ("{{ messages[0].content[:2] }}", "sea")]
)
def test_what_is_not_written_does_not_stay_open(source: str, content: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        ChatTemplate(source, {}).render([ChatMessage("user", content)], options=TemplateOptions(False, True))
    assert failure.value.param == "continue_final_message"


TURNS = [ChatMessage(*turn) for turn in (("system", "a"), ("user", "b"), ("system", " c "), ("user", "d"))]
WRITTEN = "{{ m.role }}:{{ m.content }}|"
REFUSED = "{% if m.role == 'system' and not loop.first %}{{ raise_exception('not at the beginning') }}{% endif %}"
LEFT_OUT = "{% if m.role != 'system' or loop.first %}" + WRITTEN + "{% endif %}"


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (WRITTEN, "system:a|user:b|system: c |user:d|"),
        (REFUSED + WRITTEN, "system:a\n\n c |user:b|user:d|"),
        (LEFT_OUT, "system:a\n\n c |user:b|user:d|"),
    ],
    ids=["takes", "refuses", "leaves out"],
)
def test_system_messages_that_a_template_does_not_take_are_in_the_first(turn: str, expected: str) -> None:
    template = ChatTemplate("{% for m in messages %}" + turn + "{% endfor %}", {})
    assert template.render(TURNS) == expected
    open_end = TemplateOptions(False, True)
    assert template.render(TURNS, options=open_end) == expected.removesuffix("|")
    with pytest.raises(InvalidRequestError):
        ChatTemplate("{{ raise_exception('no') }}", {}).render(TURNS)


def test_no_other_message_stays_open_for_a_system_message_that_does_not_take_the_end() -> None:
    template = ChatTemplate("{% for m in messages %}" + REFUSED + WRITTEN + "{% endfor %}", {})
    with pytest.raises(InvalidRequestError, match="not at the beginning"):
        template.render(TURNS[:3], options=TemplateOptions(False, True))


def test_documents_are_a_requests() -> None:
    template = ChatTemplate("{% for d in documents or [] %}{{ d.text }}{% endfor %}", {})
    assert template.variables == {"documents"}
    assert template.render(HELLO) == ""
    assert template.render(HELLO, options=TemplateOptions(variables={"documents": [{"text": "sea"}]})) == "sea"
