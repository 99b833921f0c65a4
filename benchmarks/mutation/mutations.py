"""The faults that are seeded: one small change of the syntax tree each, of the kinds mutation testing has always used.

Left alone is what no test could tell, or need not: annotations, decorators, strings (docstrings and messages with
them), what is logged, the arguments of what is raised, asserts, `__repr__`, imports.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
NEGATED_BY_SWAP = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
LOGGERS = {"log", "_log", "logger", "_logger", "logging", "warnings"}
KEYWORDS = {"strict", "slots", "frozen", "kw_only"}
"""What they say guards an invariant or shapes a class; no behaviour shows it."""
WIDTH, CONTEXT = 70, 20
"""Characters of a description's sides, and before the place where they differ."""
FIELDS = {"annotation", "returns", "decorator_list", "bases"}
"""Parts of the tree that are not entered."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    path: str
    index: int
    """Which of the file's changes, in the order of the tree."""
    line: int
    lines: tuple[int, int]
    """First and last of the statement, without the block below it: a test that runs one of them may tell."""
    kind: str
    description: str

    def source(self, root: Path) -> str:
        """The file with the change."""
        tree = ast.parse((root / self.path).read_text(encoding="utf-8"))
        change = list(_changes(tree, tree.body[0], ""))[self.index]
        change.apply()
        return ast.unparse(tree)


@dataclass(frozen=True, slots=True)
class _Change:
    kind: str
    parent: ast.AST
    field: str
    position: int | None
    """In the list that the field is."""
    old: ast.AST
    new: ast.AST | None
    statement: ast.stmt

    def apply(self) -> None:
        if self.position is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.position] = self.new

    def __str__(self) -> str:
        is_left_out = self.new is None or isinstance(self.new, ast.Pass)
        old, new = (" ".join(ast.unparse(node).split()) for node in (self.old, self.new or ast.Pass()))
        start = 0
        if not is_left_out and len(old) > WIDTH:
            start = next(place for place in range(len(old)) if old[: place + 1] != new[: place + 1])
        cut = f"...{old[start - CONTEXT : start]}" if start > CONTEXT else old[:start]
        old, new = (_short(cut + text[start:]) for text in (old, new))
        return f"{old} → {'nothing' if is_left_out else new}"


def sample(root: Path, paths: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """At most count mutants, no two on a line: evenly over the lines that can change, each kind at a line alike."""
    lines: dict[tuple[str, int], dict[str, list[Mutant]]] = {}
    for path in sorted(_files(root, paths)):
        for mutant in _mutants(root, path):
            lines.setdefault((path, mutant.line), {}).setdefault(mutant.kind, []).append(mutant)
    generator = random.Random(seed)
    places = sorted(lines)
    step, start = max(1.0, len(places) / count), generator.random()
    chosen = [lines[places[int((start + turn) * step)]] for turn in range(min(count, len(places)))]
    mutants = [generator.choice(kinds[generator.choice(sorted(kinds))]) for kinds in chosen]
    generator.shuffle(mutants)  # the first so many are a sample, too
    return mutants


def unchanged(root: Path, path: str) -> str:
    """The file as a mutant is written, with no change: what fails then is no catch."""
    return ast.unparse(ast.parse((root / path).read_text(encoding="utf-8")))


def _files(root: Path, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        found = [root / path] if (root / path).is_file() else (root / path).rglob("*.py")
        yield from (str(file.relative_to(root)) for file in found)


def _mutants(root: Path, path: str) -> Iterator[Mutant]:
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    if not tree.body:
        return
    for index, change in enumerate(_changes(tree, tree.body[0], "")):
        line = getattr(change.old, "lineno", change.statement.lineno)
        lines = (change.statement.lineno, max(line, _header_end(change.statement)))
        yield Mutant(path, index, line, lines, change.kind, str(change))


def _changes(node: ast.AST, statement: ast.stmt, function: str) -> Iterator[_Change]:
    """Of what is below node, which is part of a statement in a function (its name; "" outside)."""
    for field, value in ast.iter_fields(node):
        if field in FIELDS or (field == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for position, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            inside = child if isinstance(child, ast.stmt) else statement
            for kind, new in _replacements(child, field, function):
                yield _Change(kind, node, field, position, child, new, inside)
            if not isinstance(child, ast.Raise):
                name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
                yield from _changes(child, inside, name)


def _replacements(node: Any, field: str, function: str) -> Iterator[tuple[str, ast.AST | None]]:
    """Kinds of change, and what stands in the node's place: nothing at all for None."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                ops = [*node.ops[:index], OPERATORS[type(operator)](), *node.ops[index + 1 :]]
                yield "comparison", _with(node, ops=ops)
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            yield "arithmetic", _with(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp():
            yield "and, or", _with(node, op=OPERATORS[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.Constant(value=bool()):
            yield "true, false", _with(node, value=not node.value)
        case ast.Constant(value=int() | float()):
            yield "number", _with(node, value=node.value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield "min, max, any, all", _with(node, func=ast.Name(CALLS[name], ast.Load()))
        case ast.Slice():
            yield from (("slice", _with(node, **{end: None})) for end in ("lower", "upper") if getattr(node, end))
        case ast.Break():
            yield "break, continue", ast.Continue()
        case ast.Continue():
            yield "break, continue", ast.Break()
    if field in ("test", "ifs") and not _is_negated_otherwise(node):
        yield "condition", ast.UnaryOp(ast.Not(), node)
    if _may_be_left_out(node, function):
        yield "statement", ast.Pass()


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
            return ast.unparse(owner).rpartition(".")[2] in LOGGERS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.keyword(arg=name):
            return name in KEYWORDS
        case ast.BinOp(op=ast.BitOr()):  # of types
            words = ast.unparse(node).split("|")
            return any(word.strip()[:1].isupper() or word.strip() in ("int", "str", "float") for word in words)
    return False


def _may_be_left_out(node: ast.AST, function: str) -> bool:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete() | ast.Return(value=None):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            return function != "__init__"  # without the attribute everything fails
    return False


def _is_negated_otherwise(node: ast.AST) -> bool:
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[operator]):
            return isinstance(operator, NEGATED_BY_SWAP)
    return False


def _with(node: Any, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _header_end(statement: Any) -> int:
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return int(statement.end_lineno)
    first = getattr(body[0], "lineno", None) or body[0].pattern.lineno
    return max(statement.lineno, first - 1)


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}..."
