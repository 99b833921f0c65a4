"""A grammar of llguidance's from what a request asks for, within bounds."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import check_numbers, embedded_schemas, parse_schema, schema_text, without_annotations
from pilotfish.types import Grammar, GrammarKind

MAX_GRAMMAR_CHARS = 65_536
"""The longest schema or grammar; longer ones are refused unread."""

MAX_TOLD_CHARS = 300
"""The most that is shown of the library's words, which quote the grammar."""

_OF_SCHEMA = re.compile(r"failed to compile JSON schema: (.*?)\n +\d+ \| ", re.DOTALL)
"""The library's words on a schema, between where it stands in the grammar that was made of it and that grammar."""
_OPTION = "Enable 'coerce_one_of' option to approximate oneOf with anyOf"
"""Advice of the library's that no request can follow."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as json.dumps writes it: a weak model that may put whitespace anywhere may do so for ever."""

_LIMITS = LLParserLimits(step_max_items=20_000, max_lexer_states=100_000)
"""Limits of a mask (0.2 s at worst found; 0.5 with the library's 50,000), and of a request (some 60 MB)."""

_NO_FORCING = '%llguidance {"no_forcing": true}'
"""Last, so that it holds. Else the library writes out all text that has no alternative within one step, by itself:
endless, or many gigabytes of it, where a schema's references lead back or double."""

_ASCII_CLASSES = "d"
r"""Classes of regular expressions that hold ASCII alone: `\d` is a digit from 0 to 9, as in a schema's patterns. The
library's own holds the digits of every script, which a program that asked for a number cannot read."""

MAX_GBNF_CHARS = 4096
"""The longest GBNF: it is converted on the event loop, at some 4 us a character (measured)."""
_GBNF = re.compile(r"^[ \t]*root[ \t]*::=", re.MULTILINE)


def engine_grammar(grammar: Grammar, *, param: str = "grammar") -> str:
    """The grammar as llguidance takes it, not parsed yet.

    Raises InvalidRequestError for what is no JSON, too long, too deep, or holds numbers that cannot be kept exactly.
    """
    if grammar.kind is GrammarKind.LARK:
        check_text(grammar, param)
        for _ in embedded_schemas(grammar.text, param):
            pass  # each is within bounds
        lark = grammar.text
    else:
        lark = f"start: {lark_rule(grammar, param=param)}"
    return str(LLMatcher.grammar_from_lark(f"{lark}\n{_NO_FORCING}"))


def load_vocabulary(folder: Path, vocab_size: int, eos_token_ids: Collection[int]) -> LLTokenizer:
    """What grammars need to know of a model's tokens; takes about a second.

    vocab_size: the width of the logits. eos_token_ids: allowed once the grammar is satisfied.
    """
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return LLTokenizer(text, n_vocab=vocab_size, eos_token=sorted(eos_token_ids))


def compile_grammar(vocabulary: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """The grammar at its start. The library may crash or take very long: see GrammarGuard.

    Raises InvalidRequestError, with `param`, that names what is wrong or not supported.
    """
    matcher = LLMatcher(vocabulary, engine_grammar(grammar), log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # the first one builds tables that copies share
    if matcher.is_error():
        raise InvalidRequestError(_refusal(grammar, matcher.get_error()), param="grammar")
    return matcher


def _refusal(grammar: Grammar, message: str) -> str:
    """message: the library's."""
    of_schema = _OF_SCHEMA.search(message)
    name, reason = ("JSON schema", of_schema[1]) if of_schema else (name_of(grammar), message)
    reason = reason.replace(_OPTION, "Use anyOf, or give each a required property with a const of its own")
    return f"the {name} cannot be used: {one_line(reason)}"


def schema_grammar(schema: Mapping[str, Any] | bool, param: str) -> Grammar:
    """The grammar of a JSON schema with decimals for what is no integer. Raises InvalidRequestError."""
    grammar = Grammar(GrammarKind.JSON_SCHEMA, schema_text(without_annotations(schema)))
    check_text(grammar, param)  # first: it bounds what the next check takes
    check_numbers(schema, param)
    return grammar


def json_rule(schema: Mapping[str, Any]) -> str:
    """The right-hand side of a Lark rule for documents of a JSON schema."""
    return f"%json {schema_text({**without_annotations(schema), 'x-guidance': _JSON_OPTIONS})}"


def lark_rule(grammar: Grammar, *, param: str = "grammar") -> str:
    """The right-hand side of a Lark rule for texts of a grammar of any kind. Raises InvalidRequestError."""
    check_text(grammar, param)
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA | GrammarKind.JSON_OBJECT:
            return json_rule(_schema(grammar, param))
        case GrammarKind.REGEX:
            return f"/{regex_to_lark(grammar.text, _ASCII_CLASSES)}/" if grammar.text else '""'
        case GrammarKind.LARK:
            return f"%lark {{\n{grammar.text}\n}}"


def lark_of(text: str, param: str) -> str:
    """A grammar as Lark; GBNF (`root ::= ...`), which vLLM takes as well, is converted. Raises InvalidRequestError."""
    if not _GBNF.search(text):
        return text
    if len(text) > MAX_GBNF_CHARS:
        raise InvalidRequestError(
            f"the GBNF grammar has {len(text)} characters; at most {MAX_GBNF_CHARS} are allowed, more in Lark",
            param=param,
        )
    try:
        return str(gbnf_to_lark(text)).removeprefix("%llguidance {}").strip()
    except Exception as error:  # the library raises bare Exception, and trips over what it did not expect
        raise InvalidRequestError(f"the GBNF grammar cannot be used: {error}", param=param) from None


def check_text(grammar: Grammar, param: str) -> None:
    """Raises InvalidRequestError for what is not even looked at."""
    if len(grammar.text) > MAX_GRAMMAR_CHARS:
        raise InvalidRequestError(
            f"the {name_of(grammar)} has {len(grammar.text)} characters; at most {MAX_GRAMMAR_CHARS} are allowed",
            param=param,
        )
    if _SURROGATE.search(grammar.text):
        raise InvalidRequestError(f"the {name_of(grammar)} holds half of a surrogate pair", param=param)
    num_backslashes = len(grammar.text) - len(grammar.text.rstrip("\\"))
    if grammar.kind is GrammarKind.REGEX and num_backslashes % 2:
        # The library would leave it out, and the answer follow another expression.
        raise InvalidRequestError(f"the {name_of(grammar)} ends with a backslash that escapes nothing", param=param)


def _schema(grammar: Grammar, param: str) -> Mapping[str, Any]:
    """Booleans are schemas too, but the library takes objects only."""
    if grammar.kind is GrammarKind.JSON_OBJECT:
        return {"type": "object"}
    schema = parse_schema(grammar.text, param)
    if schema is False:
        raise InvalidRequestError("the JSON schema cannot be used: it is false, which nothing follows", param=param)
    if not isinstance(schema, dict | bool):
        raise InvalidRequestError(f"a JSON schema is an object or a boolean, not {type(schema).__name__}", param=param)
    return schema if isinstance(schema, dict) else {}


def name_of(grammar: Grammar) -> str:
    """What callers know it as."""
    return {
        GrammarKind.JSON_SCHEMA: "JSON schema",
        GrammarKind.JSON_OBJECT: "JSON schema",
        GrammarKind.REGEX: "regular expression",
        GrammarKind.LARK: "Lark grammar",
    }[grammar.kind]


def one_line(message: str) -> str:
    """The library's words, which show the place of a mistake over several lines, without our last one and its state."""
    if "NoExtension" in message:
        return "no text can follow it"  # as of a schema that only refers to itself
    reason = re.sub(rf"\n *\d+ \| {re.escape(_NO_FORCING)}", "", message.partition("<state>")[0])
    words = [word for word in reason.split() if word.strip("^|")]
    return textwrap.shorten(" ".join(words), MAX_TOLD_CHARS, placeholder=" ...") or "the library does not say why"
