"""Write compat/names/python.txt: which releases of Python have a name of the standard library.

`python tools/refresh_python_names.py` reads the stubs that mypy brings along (typeshed), which say by
`sys.version_info` since when and until when a name exists, and prints how much it would write; `--write`
writes it. Only names that differ between the releases are listed. Releases that these stubs no longer cover
are left out, and so are names that begin with `_`.

The stubs are not always right. With `--python PATH`, given once for each interpreter at hand, a name is left
out if one of these has it and the stubs say that its release has not. The opposite proves nothing: many names
are there on another platform only.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess  # noqa: TID251 - a tool for curators, which only asks interpreters
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import mypy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck.knowledge.atlas import spans_of
from envcheck.knowledge.names import ModuleNames, names_by_spans, names_text

FILE = Path(__file__).resolve().parent.parent / "compat/names/python.txt"
STUBS = Path(mypy.__file__).parent / "typeshed/stdlib"

MINORS = range(10, 16)  # of Python 3; typeshed has no conditions for older ones


def lifetimes(text: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last minor of Python 3 that has each module, from typeshed's VERSIONS."""
    found = {}
    for line in text.splitlines():
        module, _, span = line.partition("#")[0].strip().partition(": ")
        if span:
            first, _, last = span.partition("-")
            found[module] = (int(first[2:]), int(last[2:]) if last else MINORS[-1])
    return found


def applies(test: ast.expr, minor: int) -> bool | None:
    """Return whether a condition on `sys.version_info` holds; None for another condition."""
    match test:
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="sys"), attr="version_info"),
            ops=[ast.GtE() | ast.Lt() as operator],
            comparators=[ast.Tuple(elts=[ast.Constant(value=3), ast.Constant(value=int(least))])],
        ):
            return minor >= least if isinstance(operator, ast.GtE) else minor < least
        case ast.BoolOp(op=ast.And(), values=values):
            answers = [applies(value, minor) for value in values]
            return False if False in answers else (None if None in answers else True)
        case _:
            return None


def names(body: Iterable[ast.stmt], minor: int, folder: Path) -> Iterator[str]:
    """Yield the names that a module defines in this minor, on some platform; `folder` is that of its stub.

    `from .part import *` offers what the part exports, even if the module does not list it in `__all__`.
    """
    for node in body:
        match node:
            case ast.If(test=test, body=then, orelse=other):
                answer = applies(test, minor)
                yield from names(then, minor, folder) if answer is not False else ()
                yield from names(other, minor, folder) if answer is not True else ()
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List(elts=elements) | ast.Tuple(elts=elements)
            ):
                yield from (str(each.value) for each in elements if isinstance(each, ast.Constant))
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(module=str(part), names=[ast.alias(name="*")], level=1):
                yield from exported(folder / f"{part.replace('.', '/')}.pyi", minor)
            case ast.ImportFrom(names=imported):  # a stub offers these as `name as name`, or by `__all__`
                yield from (each.asname for each in imported if each.asname == each.name)
            case ast.AugAssign(
                target=ast.Name(id="__all__"), value=ast.List(elts=elements) | ast.Tuple(elts=elements)
            ):
                yield from (str(each.value) for each in elements if isinstance(each, ast.Constant))
            case _:
                pass


def exported(stub: Path, minor: int) -> Iterator[str]:
    """Yield the names that a star import takes from a module: those in `__all__` if it has one."""
    body = ast.parse(stub.read_text("utf-8")).body
    listing = (ast.Assign, ast.AugAssign, ast.If)
    only_lists = [node for node in body if isinstance(node, listing) and "__all__" in ast.unparse(node)]
    yield from names(only_lists or body, minor, stub.parent)


def modules(denied: Container[tuple[str, str]] = ()) -> Iterator[ModuleNames]:
    """Yield the modules that only some minors have, or whose names differ, with the names that differ.

    `denied` are names that are left out, each with its module.
    """
    spans = lifetimes((STUBS / "VERSIONS").read_text("utf-8"))
    every = [f"3.{minor}" for minor in MINORS]
    for file in sorted(STUBS.rglob("*.pyi")):
        module = ".".join(file.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__")
        if module.partition(".")[0] not in sys.stdlib_module_names or "._" in f".{module}":
            continue
        first, last = lifetime(module, spans)
        alive = [f"3.{minor}" for minor in MINORS if first <= minor <= last]
        body = ast.parse(file.read_text("utf-8")).body
        found = {
            f"3.{minor}": {*names(body, minor, file.parent)} for minor in MINORS if first <= minor <= last
        }
        having = {
            name: spans_of([minor for minor, there in found.items() if name in there], every)
            for name in set().union(*found.values())
            if not name.startswith("_") and (module, name) not in denied
        }
        rows = names_by_spans({name: each for name, each in having.items() if each != spans_of(alive, every)})
        if alive and (rows or alive != every):
            yield ModuleNames(module, spans_of(alive, every), rows)


ASK = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
def has(module, name):
    try:
        return hasattr(importlib.import_module(module), name)
    except Exception:
        return False
asked = json.load(sys.stdin)
there = {module: [name for name in names if has(module, name)] for module, names in asked.items()}
print(json.dumps([sys.version_info[1], there]))
"""
"""A program that prints the minor release of its interpreter, and which of some names it has."""


def names_there(python: str, asked: Mapping[str, list[str]]) -> tuple[int, dict[str, list[str]]]:
    """Return the minor release of an interpreter, and which names of each module it has."""
    ran = subprocess.run(
        [python, "-I", "-c", ASK], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    minor, there = json.loads(ran.stdout.splitlines()[-1])  # a module may print when it is imported
    return minor, there


def wrongly_denied(found: Iterable[ModuleNames], pythons: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield module and name of what an interpreter has although the stubs say that its release has not."""
    rows = [(each.module, row) for each in found for row in each.rows]
    asked: dict[str, list[str]] = {}
    for module, row in rows:
        asked.setdefault(module, []).extend(row.names)
    for python in pythons:
        minor, there = names_there(python, asked)
        for module, row in rows:
            if not any(int(first[2:]) <= minor <= int(last[2:]) for first, last in row.spans or ()):
                yield from ((module, name) for name in row.names if name in there[module])


def lifetime(module: str, spans: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the first and the last minor that has a module; one that is not listed has its parent's."""
    while module not in spans:
        module = module.rpartition(".")[0]
    return spans[module]


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--python", action="append", default=[], metavar="PATH")
    given = parser.parse_args()
    releases = [f"3.{minor}" for minor in MINORS]
    denied = {*wrongly_denied(modules(), given.python)}
    for module, name in sorted(denied):
        print(f"left out, because an interpreter has it: {module}.{name}")
    text = names_text("python", modules(denied), releases)
    text = text.replace("which public names.", "names that others lack.")
    text = text.replace("refresh_names.py", "refresh_python_names.py")
    print(f"{text.count(chr(10))} lines, {len(text)} bytes")
    if given.write:
        FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
