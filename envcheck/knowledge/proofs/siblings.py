"""Find other values of a training fact whose code has the line that a rule rests on.

A rule that names a model type, an adapter, a method or a quantisation rests on a file for that value. Files
beside it stand for other values: where the same line is found there, inside the bounds of the rule, the rule
is too narrow, or says why the line does no harm there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core.facts import Known, Tri
from envcheck.core.rules import Rule
from envcheck.knowledge.proofs.declaration import Proof, ReadCheck
from envcheck.rules import clause_algebra


class SiblingFiles(NamedTuple):
    """Name the files of a package that stand for values of a fact.

    Attributes:
        key: the fact.
        package: the package.
        path: an expression for the files; its group `value` is the value, or is translated by `words`.
        words: values by the word in the path, where the two differ.

    """

    key: str
    package: str
    path: re.Pattern[str]
    words: Mapping[str, tuple[str, ...]] = {}

    def values(self, path: str) -> tuple[str, ...]:
        """Return the values that a file stands for; none if it is not such a file."""
        match = self.path.fullmatch(path)
        return () if match is None else self.words.get(match["value"], (match["value"],))


_ADAPTERS = {
    "prefix_tuning": ("prefix",),
    "prompt_tuning": ("prompt",),
    "multitask_prompt_tuning": ("multitask_prompt",),
}
_QUANTIZERS = {"bnb_4bit": ("nf4", "fp4"), "bnb_8bit": ("int8",), "bnb": ("nf4", "fp4", "int8")}

SIBLINGS = (
    SiblingFiles(
        "train.model_type",
        "transformers",
        re.compile(r"transformers/models/(?:deprecated/)?(?P<value>\w+)/modeling_(?!tf_|flax_)\w+\.py"),
    ),
    SiblingFiles("train.adapter", "peft", re.compile(r"peft/tuners/(?P<value>\w+?)(?:/\w+)?\.py"), _ADAPTERS),
    SiblingFiles("train.method", "trl", re.compile(r"trl/(?:\w+/)+(?P<value>\w+?)_(?:trainer|config)\.py")),
    SiblingFiles(
        "train.quantization",
        "transformers",
        re.compile(r"transformers/quantizers/quantizer_(?P<value>\w+)\.py"),
        _QUANTIZERS,
    ),
    SiblingFiles(
        "train.quantization",
        "peft",
        re.compile(r"peft/tuners/\w+/(?P<value>bnb|gptq|awq|hqq|aqlm|eetq)\.py"),
        _QUANTIZERS,
    ),
    SiblingFiles(
        "train.zero_stage",
        "deepspeed",
        re.compile(r"deepspeed/runtime/zero/(?P<value>stage3|stage_1_and_2)\.py"),
        {"stage3": ("3",), "stage_1_and_2": ("1", "2")},
    ),
)
"""The files that are read. A folder of transformers is named as its model type, but for hyphens."""

AXES = frozenset(
    {each.key for each in SIBLINGS}
    | {f"train.{name}" for name in ("trainer", "precision", "parallel", "optimizer", "attention")}
)
"""The facts whose values rules list."""


class SiblingQuestion(NamedTuple):
    """Hold a check of a rule that names values of one or more of the facts."""

    rule: Rule
    check: ReadCheck


def questions(rule: Rule, proof: Proof) -> list[SiblingQuestion]:
    """Return the checks of a rule that look for text, if the rule names values of such a fact."""
    if not AXES.intersection(clause.key for table in rule.when for clause in table):
        return []
    return [SiblingQuestion(rule, check) for check in proof.reads if check.has and check.files]


def unnamed_values(question: SiblingQuestion, path: str) -> list[str]:
    """Return the values that a file stands for and the rule does not name, `train.adapter vera`."""
    found = []
    for sibling in SIBLINGS:
        clauses = [clause for table in question.rule.when for clause in table if clause.key == sibling.key]
        if sibling.package != question.check.package or not clauses:
            continue
        for value in sibling.values(path):
            read: str | int = int(value) if value.isdecimal() else value
            if all(clause_algebra.answer(clause, Known(read)) is not Tri.YES for clause in clauses):
                found.append(f"{sibling.key} {value}")
    return found


def conditions(text: str, expression: str) -> list[str]:
    """Return the conditions under which the first match of an expression is reached, outermost first."""
    match = re.search(expression, text, re.MULTILINE)
    if match is None:
        return []
    line = text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    return [*_around(tree.body, line)]


def _around(body: Sequence[ast.stmt], line: int) -> Iterator[str]:
    node = next((each for each in body if each.lineno <= line <= (each.end_lineno or 0)), None)
    if node is None:
        return
    for name in ("body", "orelse", "handlers", "finalbody"):
        inner = getattr(node, name, [])
        if any(each.lineno <= line <= (each.end_lineno or 0) for each in inner):
            if isinstance(node, ast.If):
                yield f"{'' if name == 'body' else 'not '}{ast.unparse(node.test)}"
            if name == "handlers":
                inner = [each for handler in inner for each in handler.body]
            yield from _around(inner, line)
