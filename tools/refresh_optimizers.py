"""Propose a diff of compat/tables/optimizers.toml: `refresh_optimizers.py --store FOLDER [--write]`.

Reads, in every release of transformers that `envcheck matrix harvest` stored in FOLDER, which names its
TrainingArguments takes for an optimizer (`OptimizerNames`), and follows the code that makes the optimizer of
each name (`Trainer.get_optimizer_cls_and_kwargs`): the package that it imports, the least versions that it
asks for, and the settings under which it refuses. The names that axolotl and ms-swift add are read from their
code in the same way. The files are parsed and never run. Prints a unified diff; changes nothing without
`--write`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from model_type_table import TABLES, bounds, refreshed
from table_diff import propose

from envcheck.commands.harvest.store import ReleaseStore

FILES = ("transformers/training_args.py", "transformers/trainer.py", "transformers/trainer_optimizer.py")

AXOLOTL_FILES = (
    "axolotl/utils/schemas/enums.py",
    "axolotl/core/trainer_builder.py",
    "axolotl/core/builders/base.py",
)

DISTRIBUTIONS = {"optimi": "torch-optimi", "adam_mini": "adam-mini", "q_galore_torch": "q-galore-torch"}
"""Distributions that have another name than the module that is imported."""

OF_TRANSFORMERS = frozenset(
    {"torch", "transformers", "importlib", "packaging", "functools", "axolotl", "swift"}
)
"""Modules that an optimizer's code imports, and that are no package of the optimizer."""


class Needs(NamedTuple):
    """Hold what the code of one optimizer needs in one release."""

    package: str  # empty if it imports none
    floors: frozenset[tuple[str, str]]  # packages, and the least version of each that it asks for
    refuses: frozenset[str]  # settings under which it raises: "distributed", "accumulation"
    handled: bool = True  # False if it raises whatever the settings


# --- the code of one release ------------------------------------------------------------------------


class OptimizerCode:
    """Follow the code that makes an optimizer by its name, in the files of one release."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Take the texts of the modules; every function and list in them is known by its name alone."""
        trees = [ast.parse(text) for text in texts]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._values = {
            target.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        branches = [node for node in nodes if isinstance(node, ast.If)]
        further = {id(node.orelse[0]) for node in branches if node.orelse}
        self._branches = [node for node in branches if id(node) not in further]  # `elif` belongs to its `if`
        enums = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self._enums = {node.name: dict(_members(node)) for node in enums}

    def names(self, enum: str) -> dict[str, str]:
        """Return the values of an enumeration by their member; empty if the release has none."""
        return self._enums.get(enum, {})

    def needs(self, member: str, value: str, maker: str = "", checker: str = "") -> Needs:
        """Return what an optimizer needs in the function that makes it, and in those that it calls.

        Of the function `checker`, only the branches that ask for this optimizer are read. Without a maker,
        every branch of the modules is one that asks for optimizers by their names.
        """
        walk = _Walk(self, member, value)
        if maker:
            walk.function(maker)
            walk.checks(checker)
        else:
            walk.branches(self._branches)
        packages = sorted({DISTRIBUTIONS.get(each, each.replace("_", "-")) for each in walk.modules})
        if len(packages) > 1:
            raise ValueError(f"{value}: expected one package, found {', '.join(packages)}")
        return Needs("".join(packages), frozenset(walk.floors), frozenset(walk.refuses), not walk.raised)

    def function(self, name: str) -> ast.FunctionDef | None:
        """Return the function of this name, in whatever class or function it stands."""
        return self._functions.get(name)

    def handler(self, table: str, member: str) -> str | None:
        """Return the function that a dispatch table has for a member; None if there is none."""
        entries = self._values.get(table)
        if not isinstance(entries, ast.Dict):
            return None
        for key, value in zip(entries.keys, entries.values, strict=True):
            if _member(key) == member and isinstance(value, ast.Name):
                return value.id
            match value:
                case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[listed, ast.Name(id=name)]) if (
                    key is None and member in self.listed(listed)
                ):
                    return name
                case _:
                    pass
        return None

    def listed(self, node: ast.expr) -> frozenset[str | None]:
        """Return the members, or texts, in a list, or in the list that a name stands for."""
        if isinstance(node, ast.Name):
            node = self._values.get(node.id, node)
        entries = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []
        return frozenset(_member(each) or _text(each) for each in entries)


class _Walk:
    """Walk through the statements that run for one optimizer, and note what they need."""

    def __init__(self, code: OptimizerCode, member: str, value: str) -> None:
        self._code = code
        self._member = member
        self._value = value
        self._seen: set[str] = set()
        self._known: dict[str, bool | None] = {}
        self.modules: set[str] = set()
        self.floors: set[tuple[str, str]] = set()
        self.refuses: set[str] = set()
        self.raised = False

    def function(self, name: str) -> None:
        """Walk through a function once."""
        found = self._code.function(name)
        if found is not None and name not in self._seen:
            self._seen.add(name)
            self.statements(found.body)

    def checks(self, name: str) -> None:
        """Walk through the branches of a function that run for this optimizer alone."""
        found = self._code.function(name)
        for statement in found.body if found is not None else ():
            if isinstance(statement, ast.If) and self._asks_for_this(statement.test):
                self.statements(statement.body)

    def branches(self, found: Iterable[ast.If]) -> None:
        """Walk through the branches that ask for optimizers by name, wherever they stand."""
        for branch in found:
            if self.decide(branch.test) is not None:
                self._branch(branch)

    def _asks_for_this(self, test: ast.expr) -> bool:
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        return any(self.decide(each) is True for each in parts)

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Walk through statements in their order, leaving out branches for other optimizers."""
        for statement in body:
            match statement:
                case ast.If():
                    self._branch(statement)
                case ast.Try():
                    self.statements([*statement.body, *statement.orelse])
                case ast.For() | ast.With():
                    self.statements(statement.body)
                case ast.ImportFrom(module=str(module), level=0):
                    self._import(module)
                case ast.Import(names=names):
                    for each in names:
                        self._import(each.name)
                case ast.Raise():
                    self.raised = True
                case ast.FunctionDef() | ast.ClassDef():
                    pass
                case _:
                    self._plain(statement)

    def _import(self, module: str) -> None:
        top = module.partition(".")[0]
        if top not in OF_TRANSFORMERS and top not in sys.stdlib_module_names:
            self.modules.add(top)

    def _plain(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._known[name] = self.decide(value)
            case _:
                pass
        for call in ast.walk(statement):
            match call:
                case ast.Call(func=ast.Name(id=name)):
                    self.function(name)
                    self._dispatch(name)
                case _:
                    pass

    def _dispatch(self, name: str) -> None:
        """Follow `handler(ctx)`, where a dispatch table holds the handlers."""
        if name != "handler":
            return
        if found := self._code.handler("_OPTIMIZER_HANDLERS", self._member):
            self.function(found)
        else:
            self.raised = True

    def _branch(self, branch: ast.If) -> None:
        answer = self.decide(branch.test)
        raises = any(isinstance(each, ast.Raise) for each in branch.body)
        if raises and answer is None:
            self.floors |= set(_floors(branch.test))
            self.refuses |= _settings(branch.test)
        if answer is not False and not raises:
            self.statements(branch.body)
        if answer is not True:
            self.statements(branch.orelse)

    def decide(self, test: ast.expr) -> bool | None:
        """Return the value of a test for this optimizer; None if it depends on something else."""
        answer: bool | None = None
        match test:
            case ast.BoolOp(op=operator, values=values):
                answers = [self.decide(each) for each in values]
                decisive = isinstance(operator, ast.Or)
                answer = decisive if decisive in answers else (None if None in answers else not decisive)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.decide(operand)
                answer = None if inner is None else not inner
            case ast.Name(id=name):
                answer = self._known.get(name)
            case ast.Call(
                func=ast.Attribute(value=whole, attr="endswith"), args=[ast.Constant(value=str(end))]
            ) if self._is_optimizer(whole):
                answer = self._value.endswith(end)
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                answer = self._compare(left, operation, right)
            case _:
                pass
        return answer

    def _compare(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool | None:
        answer: bool | None = None
        if isinstance(left, ast.Constant) and self._is_optimizer(right):
            answer = str(left.value) in self._value if isinstance(operator, ast.In | ast.NotIn) else None
        elif self._is_optimizer(left) and isinstance(operator, ast.In | ast.NotIn):
            listed = self._code.listed(right)
            answer = bool(listed & {self._member, self._value}) if listed else None
        elif self._is_optimizer(left) and isinstance(operator, ast.Eq | ast.NotEq):
            named = _member(right) or _text(right)
            answer = named in (self._member, self._value) if named else None
        if answer is not None and isinstance(operator, ast.NotIn | ast.NotEq):
            return not answer
        return answer

    def _is_optimizer(self, node: ast.expr) -> bool:
        """Return whether an expression is the name of the optimizer, or that in lower case."""
        match node:
            case ast.Call(func=ast.Attribute(value=whole, attr="lower"), args=[]):
                return self._is_optimizer(whole)
            case ast.Attribute(attr="value", value=whole):
                return self._is_optimizer(whole)
            case ast.Attribute(attr=name) | ast.Name(id=name):
                return name in ("optim", "optim_name", "optimizer_name", "optimizer")
            case _:
                return False


def _members(enum: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement in enum.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield name, value
            case _:
                pass


def _member(node: ast.expr | None) -> str | None:
    """Return the member in `OptimizerNames.SGD`, with or without `.value`."""
    match node:
        case ast.Attribute(value=ast.Name(id=enum), attr=name) if enum.endswith(("Names", "Optimizers")):
            return name
        case ast.Attribute(value=inner, attr="value"):
            return _member(inner)
        case _:
            return None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _floors(test: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the packages that a test asks for in a version: compared, or passed to `is_x_available`."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
                package, floor = _package_in(left), [_text(each) for each in _leaves(right)]
                if package and any(floor):
                    yield package, next(each for each in floor if each)
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(floor))]):
                if found := re.fullmatch(r"is_(\w+?)_available", name):
                    yield found[1], floor
            case _:
                pass


def _package_in(node: ast.expr) -> str:
    """Return the package whose version an expression reads."""
    for each in _leaves(node):
        match each:
            case ast.Attribute(value=ast.Name(id=package), attr="__version__"):
                return package
            case ast.Constant(value=str(package)):
                return package
            case _:
                pass
    return ""


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    return (each for each in ast.walk(node) if isinstance(each, ast.expr))


def _settings(test: ast.expr) -> set[str]:
    named = {each.attr for each in ast.walk(test) if isinstance(each, ast.Attribute)}
    words = {"DISTRIBUTED": "distributed", "gradient_accumulation_steps": "accumulation"}
    return {word for attribute, word in words.items() if attribute in named}


# --- all releases -----------------------------------------------------------------------------------

Found = dict[str, dict[str, Needs]]
"""What is needed, by optimizer and release."""


def of_transformers(store: ReleaseStore) -> tuple[Found, list[str]]:
    """Read the optimizers of every release of transformers; return them, and the releases."""
    found: Found = defaultdict(dict)
    releases: list[str] = []
    for version in _final(store, "transformers"):
        code = _code(store, "transformers", version, FILES)
        for member, value in code.names("OptimizerNames").items():
            if not releases or releases[-1] != version:
                releases.append(version)
            found[value][version] = code.needs(member, value, "get_optimizer_cls_and_kwargs", "__post_init__")
    return found, releases


def of_axolotl(store: ReleaseStore) -> tuple[Found, list[str]]:
    """Read the optimizers that axolotl adds, from 0.8.0 on, which lists them in one place."""
    found: Found = defaultdict(dict)
    releases = []
    for version in _final(store, "axolotl"):
        code = _code(store, "axolotl", version, AXOLOTL_FILES)
        if added := code.names("CustomSupportedOptimizers"):
            releases.append(version)
        for member, value in added.items():
            found[value][version] = code.needs(member, value)
    return found, releases


def _final(store: ReleaseStore, package: str) -> list[str]:
    return [each for each in store.versions(package) if not Version(each).is_prerelease]


def _code(store: ReleaseStore, package: str, version: str, files: Sequence[str]) -> OptimizerCode:
    with zipfile.ZipFile(store.path(package, version)) as archive:
        present = [each for each in files if each in archive.namelist()]
        return OptimizerCode(archive.read(each).decode("utf-8") for each in present)


def rows(found: Found, releases: Sequence[str], trainer: str = "") -> Iterator[str]:
    """Yield one line for each optimizer."""
    for name, by_release in sorted(found.items()):
        fields = [f'name = "{name}"']
        if trainer:
            fields.append(f'trainer = "{trainer}"')
        fields.append(f"known = {_written(bounds([*by_release], releases))}")
        packages = {each.package for each in by_release.values() if each.handled} or {""}
        if len(packages) > 1:
            raise ValueError(f"{name}: releases import different packages: {', '.join(sorted(packages))}")
        if package := packages.pop():
            fields.append(f'package = "{package}"')
        for setting in ("distributed", "accumulation"):
            refusing = [version for version, each in by_release.items() if setting in each.refuses]
            if refusing:
                fields.append(f"refuses_{setting} = {_written(bounds(refusing, releases))}")
        unhandled = [version for version, each in by_release.items() if not each.handled]
        if unhandled:
            fields.append(f"unhandled = {_written(bounds(unhandled, releases))}")
        yield f"  {{ {', '.join(fields)} }},"


def floor_rows(found: Found, releases: Sequence[str]) -> Iterator[str]:
    """Yield one line for each optimizer and the least version that it asks of a package."""
    for name, by_release in sorted(found.items()):
        asked: Mapping[tuple[str, str], list[str]] = defaultdict(list)
        for version, needs in by_release.items():
            for floor in needs.floors:
                asked[floor].append(version)
        for (package, least), holding in sorted(asked.items()):
            yield (
                f'  {{ name = "{name}", package = "{package}", minimum = "{least}", '
                f"transformers = {_written(bounds(holding, releases))} }},"
            )


def _written(texts: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{each}"' for each in texts) + "]"


def main(arguments: Sequence[str]) -> int:
    """Print the diff of the table, and write it if asked; return 0 if nothing differs or it was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path, required=True, help="the folder that `matrix harvest` filled")
    parser.add_argument("--table", type=Path, default=TABLES / "optimizers.toml")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    options = parser.parse_args(arguments)
    store = ReleaseStore(options.store)
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    found, releases = of_transformers(store)
    lines = [*rows(found, releases), *rows(*of_axolotl(store), trainer="axolotl")]
    floors = ["]", "", "optimizer_floor = [", *floor_rows(found, releases)]
    after = refreshed(before, "optimizer_code", [*lines, *floors], releases[-1])
    return propose(options.table, before, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
