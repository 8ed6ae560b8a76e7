"""Attributes and parameters that some releases of a package have and others lack, from compat/members/. Pure.

A file `trl.txt` says in its first lines which releases were read. Below the line of a class and its bases,
`[GRPOConfig < TrainingArguments]`, each line holds the releases in which the class has the attributes in it.
Below the line of a function or method, `(Trainer.compute_loss)`, each line holds the releases in which it
takes the parameters in it. Classes bear no module, as in Python's messages. An attribute or a function
without a line is the same in all releases that have its class.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from envcheck.core.rules import Span
from envcheck.core.versions import order
from envcheck.knowledge.release_spans import (
    is_in_spans,
    open_spans,
    parse_open_spans,
    read_ends,
    spans_in_words,
)

_HEAD = """\
# What some releases of {package} have in a class or take in a function, and others do not.
# Written by tools/refresh_messages.py; the form is described in envcheck/knowledge/members.py.
# read: {first} to {last}
"""

_SHORTEST_BASE = 7
"""Letters of a class name that the name of a class derived from it may end with: `Trainer`."""

_TELLING = 14
"""Letters of the name of a method that is looked up in all classes."""

_DEEPEST = 6
"""Bases of bases that are followed."""

LIBRARIES = ("transformers", "trl", "peft", "accelerate", "deepspeed", "datasets", "vllm")
"""Packages from whose classes others derive their own, often by the same name; the first is asked first."""

_DERIVED_BY_USERS = "Trainer"
"""End of the names of classes that projects derive, with words of their own in the name: `GRPOEnvTrainer`."""


class MemberRow(NamedTuple):
    """Attributes of a class, or parameters of a function, that some releases share.

    `owner` is the class or the function. `bases` are those of a class. `members` are names of attributes, or
    one text of parameters if `is_function`.
    """

    owner: str
    spans: tuple[Span, ...]
    members: tuple[str, ...]
    bases: tuple[str, ...] = ()
    is_function: bool = False


class Membership(NamedTuple):
    """Package whose releases differ: in words those in which `owner` has what `has` names.

    `derived` says that it is about another class than was asked for: a base of it, or the class whose name
    its name ends with. `spans` are the same releases, and `ends` the first and the last one that was read.
    """

    package: str
    owner: str
    releases: str
    has: str
    derived: bool = False
    spans: tuple[Span, ...] = ()
    ends: Span = ("", "")

    def includes(self, version: str) -> bool:
        """Return whether a release is certainly one of these."""
        return is_in_spans(version, self.spans, self.ends)


# --- rows → text ------------------------------------------------------------------------------------


def members_text(package: str, rows: Iterable[MemberRow], releases: Sequence[str]) -> str:
    """Return the text of one package's file."""
    lines = [_HEAD.format(package=package, first=releases[0], last=releases[-1])]
    header = ""
    for row in sorted(rows, key=lambda row: (row.is_function, row.owner, row.spans, row.members)):
        bases = f" < {' '.join(row.bases)}" if row.bases else ""
        own = f"({row.owner})" if row.is_function else f"[{row.owner}{bases}]"
        if own != header:
            lines.append(f"{own}\n")
            header = own
        words = (open_spans(row.spans, releases[-1]), *row.members)
        lines.append(f"{' '.join(words).rstrip()}\n")
    return "".join(lines)


# --- text → rows ------------------------------------------------------------------------------------


def releases_with_attribute(
    texts: Mapping[str, str],
    owner: str,
    attribute: str,
    *,
    among: Collection[str] | None = None,
    families: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Membership, ...]:
    """Return the packages in which some releases of a class, or of a base of it, have an attribute.

    The class itself counts in each package that has it, then the class whose name its name ends with, then
    that whose name has its first and last words. A base is looked up in the package of the derived class,
    and if that does not have it, in the first of `LIBRARIES` that does.

    `among` are the packages whose classes may be meant, None for all. `families` are the bases of classes
    that no text has, by how their names end.
    """
    packages = [package for package in texts if among is None or package in among]
    known = [*_candidates(texts, owner)]
    family = next((base for ending, base in families.items() if owner.endswith(ending)), "")
    if family and not any(_section(text, owner) for text in texts.values()):
        known, packages = [family], [*texts]
    for name in known:
        found = [row for package in packages for row in _in_class_or_bases(texts, package, name, attribute)]
        if found:
            return tuple(row._replace(derived=row.owner != owner) for row in dict.fromkeys(found))
    return ()


def _in_class_or_bases(
    texts: Mapping[str, str], package: str, name: str, attribute: str, depth: int = _DEEPEST
) -> list[Membership]:
    """Return the releases in which a package's class, or the nearest base that differs, has an attribute."""
    section = _section(texts[package], name)
    if section is None or not depth:
        return []
    if own := [*_attribute_rows({package: texts[package]}, name, attribute)]:
        return own
    for base in section[0].split():
        having = [each for each in (package, *LIBRARIES, *texts) if _section(texts.get(each, ""), base)]
        if having and (found := _in_class_or_bases(texts, having[0], base, attribute, depth - 1)):
            return found
    return []


def related_classes(texts: Mapping[str, str], owner: str) -> tuple[str, ...]:
    """Return a class, the class whose name its name ends with, and the bases of both, nearest first."""
    found = dict.fromkeys(_candidates(texts, owner))
    queue = [*found]
    for _ in range(_DEEPEST):
        queue = [base for each in queue for base in _bases(texts, each) if base not in found]
        found |= dict.fromkeys(queue)
    return tuple(found)


def derived_classes_with(texts: Mapping[str, str], owner: str, attribute: str) -> tuple[Membership, ...]:
    """Return the classes derived from this one that have an attribute, each with its releases."""
    found: list[Membership] = []
    for package, text in texts.items():
        for head in re.finditer(rf"^\[(\w+) < [^\]\n]*\b{re.escape(owner)}\b[^\]\n]*\]$", text, re.MULTILINE):
            if head[1] != owner:
                rows = _attribute_rows({package: text}, head[1], attribute)
                found += [row._replace(derived=True) for row in rows]
    return tuple(found)


def classes_with_method(texts: Mapping[str, str], method: str) -> tuple[Membership, ...]:
    """Return the trainers of which only some releases have a method of this name."""
    return tuple(
        row
        for package, text in texts.items()
        for head in re.finditer(r"^\[(\w*Trainer)(?: < [^\]\n]*)?\]$", text, re.MULTILINE)
        for row in _attribute_rows({package: text}, head[1], method)
    )


def releases_by_parameters(texts: Mapping[str, str], function: str) -> tuple[Membership, ...]:
    """Return the parameters that a function or a method takes, by releases, in the packages that changed it.

    Methods of the same name of the bases come along: a method that overrides another must take what the
    caller of that one passes.
    """
    owner, _, method = function.rpartition(".")
    if not owner:
        return tuple(_parameter_rows(texts, function)) or tuple(_methods_named(texts, method))
    found: list[Membership] = []
    for name in _candidates(texts, owner):
        queue = [name]
        for _ in range(_DEEPEST):
            for each in queue:
                rows = _parameter_rows(texts, f"{each}.{method}")
                found += [row for row in rows if row not in found]
            queue = [base for each in queue for base in _bases(texts, each)]
        if found:
            break
    return tuple(found)


def releases_with_parameter(texts: Mapping[str, str], function: str, keyword: str) -> tuple[Membership, ...]:
    """Return the releases in which a function takes a keyword; fields of a dataclass count for `__init__`."""
    owner, _, method = function.rpartition(".")
    if owner and (own := tuple(_own_parameter(texts, function, keyword))):
        return own
    if method == "__init__" and (found := releases_with_attribute(texts, owner, keyword)):
        return found
    taken = re.compile(rf"[( ]{re.escape(keyword)}[=,)]")
    return tuple(row for row in releases_by_parameters(texts, function) if taken.search(row.has))


_ANY_NUMBER = 99
"""Positional arguments of a function that takes any number of them."""


def most_positional(parameters: str) -> int:
    """Return how many positional arguments a list of parameters takes at most: 2 of `(self, logs, *, x=)`."""
    names = [each.strip() for each in parameters.strip("()").split(",") if each.strip()]
    if any(re.match(r"\*\w", each) for each in names):
        return _ANY_NUMBER
    ends = [number for number, each in enumerate(names) if each.startswith("*")]
    return ends[0] if ends else len(names)


def _own_parameter(texts: Mapping[str, str], function: str, keyword: str) -> Iterator[Membership]:
    """Yield the releases in which a package's own function takes a keyword, those in a row as one span."""
    taken = re.compile(rf"[ ,]{re.escape(keyword)}(?:=|,|$)")
    for package, text in texts.items():
        ends = read_ends(text)
        spans = sorted(
            (
                (span, bool(taken.search(parameters)))
                for spans, parameters in _rows_of(text, f"({function})")
                for span in parse_open_spans(spans, ends[1])
            ),
            key=lambda each: order(each[0][0]),
        )
        having = []
        for has, row in groupby(spans, key=lambda each: each[1]):
            alike = [span for span, _ in row]
            if has:
                having.append((alike[0][0], alike[-1][1]))
        if having:
            words = spans_in_words(tuple(having), ends)
            yield Membership(package, function, words, f"({keyword}=)", spans=tuple(having), ends=ends)


def packages_whose_releases_all_refuse(
    texts: Mapping[str, str], function: str, keyword: str
) -> tuple[Membership, ...]:
    """Return the packages that have the function, and no release of which takes the keyword by its name."""
    found = []
    for package, text in texts.items():
        rows = [parameters for _, parameters in _rows_of(text, f"({function})")]
        if rows and not any("**" in row or re.search(rf"\b{re.escape(keyword)}\b", row) for row in rows):
            first, last = read_ends(text)
            found.append(Membership(package, function, f"{first} to {last}", f"({keyword}=)"))
    return tuple(found)


def _rows_of(text: str, header: str) -> Iterator[tuple[str, str]]:
    """Yield the spans of each line below a header, and the rest of the line."""
    opening = f"\n{header}\n"
    at = text.find(opening)
    if at >= 0:
        for line in _until_next(text[at + len(opening) :]).splitlines():
            spans, _, rest = line.partition(" ")
            yield spans, rest


def _candidates(texts: Mapping[str, str], owner: str) -> Iterator[str]:
    """Yield a class, then the class with the longest name that ends its name, then that of its words.

    A model of a project of its own is named after the one that it is made of (`TinyLlavaForCausalLM`), and is
    not derived from it.
    """
    yield owner
    if _OF_MODELS.search(owner):
        return
    for start in range(1, len(owner) - _SHORTEST_BASE + 1):
        name = owner[start:]
        if name[0].isupper() and any(_section(text, name) is not None for text in texts.values()):
            yield name
            break
    if owner.endswith(_DERIVED_BY_USERS):
        words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z\d]+", owner)
        for count in range(len(words) - 2, 0, -1):  # `GRPO` and `Trainer` of `GRPOEnvTrainer`
            name = "".join((*words[:count], words[-1]))
            if any(_section(text, name) is not None for text in texts.values()):
                yield name
                return


_OF_MODELS = re.compile(r"For[A-Z]\w+$|Model$")
"""End of the name of a model with a head, or without one."""


def _section(text: str, owner: str) -> tuple[str, str] | None:
    """Return the bases of a class, and the lines about it; None if the file does not have it."""
    for opening in (f"\n[{owner}]\n", f"\n[{owner} < "):
        at = text.find(opening)
        if at >= 0:
            head, _, body = text[at + 1 :].partition("\n")
            return head[1:-1].partition(" < ")[2], _until_next(body)
    return None


def _until_next(body: str) -> str:
    ends = [at for at in (body.find("\n["), body.find("\n(")) if at >= 0]
    return body[: min(ends)] if ends else body


def _bases(texts: Mapping[str, str], owner: str) -> Iterator[str]:
    for text in texts.values():
        if section := _section(text, owner):
            yield from section[0].split()


def _attribute_rows(texts: Mapping[str, str], owner: str, attribute: str) -> Iterator[Membership]:
    for package, text in texts.items():
        section = _section(text, owner)
        for line in section[1].splitlines() if section else ():
            spans, *names = line.split()
            if attribute in names:
                yield _membership(package, owner, spans, attribute, text)


def _methods_named(texts: Mapping[str, str], method: str) -> Iterator[Membership]:
    """Yield the parameters of all methods of a name, for a function that was put in the place of one.

    The name must be one that unrelated classes hardly share.
    """
    if "_" not in method.strip("_") or len(method) < _TELLING:
        return
    for package, text in texts.items():
        for found in re.finditer(rf"^\((\w+\.{re.escape(method)})\)$", text, re.MULTILINE):
            yield from _parameter_rows({package: text}, found[1])


def _parameter_rows(texts: Mapping[str, str], function: str) -> Iterator[Membership]:
    for package, text in texts.items():
        for spans, parameters in _rows_of(text, f"({function})"):
            yield _membership(package, function, spans, f"({parameters})", text)


def _membership(package: str, owner: str, spans: str, has: str, text: str) -> Membership:
    """Return what some releases of a package have; `spans` are those of a line of its file, `text`."""
    ends = read_ends(text)
    parsed = parse_open_spans(spans, ends[1])
    return Membership(package, owner, spans_in_words(parsed, ends), has, spans=parsed, ends=ends)
