"""Write compat/names/python.txt: which releases of Python have a name of the standard library.

`python tools/refresh_python_names.py` reads the stubs that mypy brings along (typeshed), which say by
`sys.version_info` since when and until when a name exists, and prints how much it would write; `--write`
writes it. Only names that differ between the releases are listed. Releases that these stubs no longer cover
are left out, and so are names that begin with `_`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
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


def modules() -> Iterator[ModuleNames]:
    """Yield the modules that only some minors have, or whose names differ, with the names that differ."""
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
            if not name.startswith("_")
        }
        rows = names_by_spans({name: each for name, each in having.items() if each != spans_of(alive, every)})
        if alive and (rows or alive != every):
            yield ModuleNames(module, spans_of(alive, every), rows)


def lifetime(module: str, spans: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the first and the last minor that has a module; one that is not listed has its parent's."""
    while module not in spans:
        module = module.rpartition(".")[0]
    return spans[module]


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    releases = [f"3.{minor}" for minor in MINORS]
    text = names_text("python", modules(), releases)
    text = text.replace("which public names.", "names that others lack.")
    text = text.replace("refresh_names.py", "refresh_python_names.py")
    print(f"{text.count(chr(10))} lines, {len(text)} bytes")
    if given.write:
        FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
