"""Messages with which the code of a release raises exceptions, and the condition before each. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envcheck.knowledge.raised import CHECKS

_LONGEST_CONDITION = 60
"""Characters of a condition. A longer one is cut."""

_LONGEST_TEMPLATE = 120
"""Characters of a message. What follows says no more about which message it is."""

_SHORT_TEMPLATE = 60
"""Characters of a message that begins as no other one of its package does."""

_LEAST_LETTERS = 18
"""Letters in the fixed parts of a message. With fewer, other messages would match by chance."""

_PLACE = "{}"
"""Mark in a template for a value that is known only when the message is raised."""

CUT = "…"
"""Mark at the end of a text that was cut."""

_FORMATTED = re.compile(r"(?<!\{)\{[^{}]*\}(?!\})")
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdrifgexX]")
_PLACES = re.compile(r"(?:\{\})+(?:[ ,]*\{\})*")

_DEDENTING = ("dedent", "cleandoc")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class RaisedMessage(NamedTuple):
    """One `raise` or `assert` with a message.

    `template` is the first line of the message with `{}` for each value. `function` is the qualified name of
    the function, empty at the top of a module. `condition` is the nearest one above, as source: `if x`,
    `unless x`, `on ImportError`, or empty.
    """

    exception: str
    template: str
    function: str
    condition: str


def raised_messages(tree: ast.Module) -> tuple[RaisedMessage, ...]:
    """Return the messages that a module raises, in their order, without those that are too short."""
    return tuple(_of_block(tree.body, _Scope("", "", {})))


class _Scope(NamedTuple):
    """Place of a statement: its function, the nearest condition, and the texts that names hold there."""

    function: str
    condition: str
    texts: dict[str, str]

    def under(self, condition: str) -> _Scope:
        return self._replace(condition=condition, texts=dict(self.texts))


def _of_block(body: Iterable[ast.stmt], scope: _Scope) -> Iterator[RaisedMessage]:
    for statement in body:
        yield from _of_statement(statement, scope)


def _of_statement(statement: ast.stmt, scope: _Scope) -> Iterator[RaisedMessage]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        name = f"{scope.function}.{statement.name}" if scope.function else statement.name
        yield from _of_block(statement.body, _Scope(name, "", dict(scope.texts)))
    elif isinstance(statement, ast.If):
        test = _source(statement.test)
        yield from _of_block(statement.body, scope.under(f"if {test}"))
        yield from _of_block(statement.orelse, scope.under(f"unless {test}"))
    elif isinstance(statement, ast.Try):
        yield from _of_block(statement.body, scope)
        for handler in statement.handlers:
            caught = _source(handler.type) if handler.type else "any exception"
            yield from _of_block(handler.body, scope.under(f"on {caught}"))
        yield from _of_block((*statement.orelse, *statement.finalbody), scope)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield from _of_block(statement.body, scope)
    elif isinstance(statement, _LOOPS):
        yield from _of_block((*statement.body, *statement.orelse), scope)
    elif isinstance(statement, ast.Match):
        for case in statement.cases:
            pattern = f"{_source(statement.subject)} is {ast.unparse(case.pattern)}"
            yield from _of_block(case.body, scope.under(f"if {_cut(pattern, _LONGEST_CONDITION)}"))
    else:
        yield from _of_simple_statement(statement, scope)


def _of_simple_statement(statement: ast.stmt, scope: _Scope) -> Iterator[RaisedMessage]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        _keep_text(statement.targets[0], statement.value, scope)
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        kept = scope.texts.get(statement.target.id)
        if kept is not None:
            scope.texts[statement.target.id] = kept + _text(statement.value, scope.texts)
    elif isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call):
        name = _last_name(statement.exc.func)
        if name and statement.exc.args:
            yield from _message(name, statement.exc.args[0], scope.condition, scope)
    elif isinstance(statement, ast.Assert) and statement.msg is not None:
        yield from _message("AssertionError", statement.msg, f"unless {_source(statement.test)}", scope)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield from _of_check(statement.value, scope)


def _of_check(call: ast.Call, scope: _Scope) -> Iterator[RaisedMessage]:
    """Yield the message of a call of a function that raises it unless a condition holds."""
    name = CHECKS.get(_last_name(call.func), "")
    if not name or len(call.args) != len(("condition", "message")):
        return
    condition, said = call.args
    text = said.body if isinstance(said, ast.Lambda) else said  # written only if it is raised
    always = isinstance(condition, ast.Constant) and not condition.value
    if isinstance(text, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call):
        above = scope.condition if always else f"unless {_source(condition)}"
        yield from _message(name, text, above, scope)


def _keep_text(target: ast.expr, value: ast.expr, scope: _Scope) -> None:
    """Remember the text that an assignment gives a name; forget the name if it is given anything else."""
    if isinstance(target, ast.Name):
        text = _text(value, scope.texts)
        if text.strip(" {}"):
            scope.texts[target.id] = text
        else:
            scope.texts.pop(target.id, None)


def _message(exception: str, argument: ast.expr, condition: str, scope: _Scope) -> Iterator[RaisedMessage]:
    text = _text(argument, scope.texts).strip()
    template = _PLACES.sub(_PLACE, " ".join(text.split("\n", 1)[0].split()))
    template = _cut(template, _LONGEST_TEMPLATE)
    letters = sum(character.isalpha() for character in template)
    if letters >= _LEAST_LETTERS and len(template.split()) > 2:  # noqa: PLR2004 - a word or two say too little
        yield RaisedMessage(exception, template, scope.function, condition)


def _text(node: ast.expr, texts: dict[str, str]) -> str:
    """Return the text that an expression gives, with `{}` for each part that is not fixed."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else _PLACE
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, texts) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_text(node.left, texts)}{_text(node.right, texts)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _PERCENT.sub(_PLACE, _text(node.left, texts)).replace("%%", "%")
    if isinstance(node, ast.Call):
        return _text_of_call(node, texts)
    return texts.get(node.id, _PLACE) if isinstance(node, ast.Name) else _PLACE


def _text_of_call(node: ast.Call, texts: dict[str, str]) -> str:
    """Return the text of `"…".format(…)` and `dedent("…")`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "strip"):
        text = _text(node.func.value, texts)
        return _FORMATTED.sub(_PLACE, text) if node.func.attr == "format" else text.strip()
    if _last_name(node.func) in _DEDENTING and node.args:
        return _text(node.args[0], texts).strip()
    return _PLACE


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _source(node: ast.expr) -> str:
    return _cut(" ".join(ast.unparse(node).split()), _LONGEST_CONDITION)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}{CUT}"


def shortened(messages: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a shorter template for each exception and template of a package.

    Two that begin alike stay as they are: one row for both would give one the condition of the other.
    """
    alike: dict[tuple[str, str], set[str]] = {}
    for exception, template in messages:
        alike.setdefault((exception, _cut(template, _SHORT_TEMPLATE)), set()).add(template)
    return {
        (exception, template): short if len(templates) == 1 else template
        for (exception, short), templates in alike.items()
        for template in templates
    }
