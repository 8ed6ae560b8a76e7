"""Find the model types that a package registers on import and that releases of transformers have themselves.

`AutoConfig.register("bitnet", BitNetConfig)` raises ValueError beside a transformers that knows this type,
and `AutoModel.register(BitNetConfig, ...)` beside one that has a configuration class of this name with a
model for it. Calls with `exist_ok=True`, or inside a `try` that catches ValueError, are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from envcheck.atlas.code_pair import CodePair
from envcheck.atlas.conditions import Condition, all_of, decide
from envcheck.atlas.definitions import Definitions, ForeignPath, OwnClass
from envcheck.atlas.demands import this_stack
from envcheck.atlas.entries import distribution_of
from envcheck.atlas.entry_calls import definitions
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import OfferAnswer, ReleaseOffers
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.summary import ModuleRegistration
from envcheck.core.facts import Tri

_PARTNER = "transformers"
_OF_CONFIGS = ("AutoConfig", "CONFIG_MAPPING")
_CONFIG_NAMES = "CONFIG_MAPPING_NAMES"
_MODEL_TYPE = ".model_type"
_FOLDER = "transformers/models/auto/"

_OWN_TABLES = {
    "AutoProcessor": "PROCESSOR_MAPPING_NAMES",
    "AutoImageProcessor": "IMAGE_PROCESSOR_MAPPING_NAMES",
    "AutoFeatureExtractor": "FEATURE_EXTRACTOR_MAPPING_NAMES",
    "AutoVideoProcessor": "VIDEO_PROCESSOR_MAPPING_NAMES",
    "AutoTokenizer": "TOKENIZER_MAPPING_NAMES",
}
"""The tables of classes that do not name theirs in `_model_mapping`."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A model type, or the name of a configuration class, that a class of transformers registers."""

    owner: str
    key: str

    @property
    def partner(self) -> str:
        """Return the package that may have it."""
        return _PARTNER

    @property
    def text(self) -> str:
        """Return the call."""
        quoted = f"'{self.key}'" if self.owner in _OF_CONFIGS else self.key
        return f"{self.owner}.register({quoted})"


@dataclass(frozen=True, slots=True)
class Registration:
    """A line of a release that registers something when an entry is imported."""

    what: Registered
    entry: str
    condition: Condition
    place: str


def find_registrations(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return what releases of a package register and what releases of transformers have themselves."""
    if partner.name != _PARTNER or package.name == _PARTNER:
        return []
    return _RegistrationPair(package, partner).gaps()


@dataclass
class _RegistrationPair(CodePair[Registered]):
    """Model types and configuration classes that are registered when a release is imported."""

    kind = GapKind.REGISTER
    _tables: dict[str, AutoTables] = field(default_factory=dict)

    def lines(self, version: str) -> Iterable[Registration]:
        return self.package.reading("registered", version, partial(_read, self.package, version))

    def offer(self, version: str, what: Registered) -> OfferAnswer:
        if version not in self._tables:
            self._tables[version] = read_auto_tables(self.partner.offers(version))
        return self._tables[version].accepts(what)


def _read(package: PackageReader, version: str) -> tuple[Registration, ...]:
    offers, code = package.offers(version), definitions(package, version)
    found = []
    for entry in package.entries(version):
        for module, reached in entry.modules:
            summary = offers.modules.summary(module)
            for line in summary.registrations if summary else ():
                condition = all_of((reached, offers.guards.together(line.guards, module)))
                what = _registered(code, module, line)
                if what is not None and decide(condition, this_stack()) is not Tri.NO:
                    place = f"{offers.modules.path(module)}:{line.line}"
                    found.append(Registration(what, entry.action, condition, place))
    return tuple(found)


def _registered(code: Definitions, module: str, line: ModuleRegistration) -> Registered | None:
    """Return what a line registers; None if it is no class of transformers, or the key cannot be read."""
    owner = code.expression(module, line.owner)
    if not isinstance(owner, ForeignPath) or distribution_of(owner.path) != _PARTNER:
        return None
    name = owner.path.rpartition(".")[2]
    if name in _OF_CONFIGS:
        key = _model_type(code, module, line.key)
    else:
        registered = code.expression(module, line.key)
        key = registered.code.name if isinstance(registered, OwnClass) else ""
    return Registered(name, key) if key else None


def _model_type(code: Definitions, module: str, key: str) -> str:
    """Return the text of a key: `"bitnet"`, or `BitNetConfig.model_type`; empty if it cannot be read."""
    if key.endswith(_MODEL_TYPE):
        owner = code.expression(module, key.removesuffix(_MODEL_TYPE))
        summary = code.offers.modules.summary(owner.module) if isinstance(owner, OwnClass) else None
        return summary.model_types.get(owner.code.name, "") if summary and isinstance(owner, OwnClass) else ""
    try:
        value = ast.literal_eval(key)
    except (ValueError, SyntaxError):
        return ""
    return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class AutoTables:
    """Hold the model types that a release of transformers knows.

    Attributes:
        types: the model type of each configuration class, by its name.
        names: the model types themselves.
        models: the model types for which each automatic class has something.

    """

    types: Mapping[str, str]
    names: frozenset[str]
    models: Mapping[str, frozenset[str]]

    def accepts(self, what: Registered) -> OfferAnswer:
        """Return whether the release lets another package register something."""
        if not self.names:
            return OfferAnswer.UNKNOWN
        if what.owner in _OF_CONFIGS:
            return OfferAnswer.NO if what.key in self.names else OfferAnswer.YES
        model_type = self.types.get(what.key)
        if model_type is None:
            return OfferAnswer.YES
        if what.owner not in self.models:
            return OfferAnswer.UNKNOWN
        return OfferAnswer.NO if model_type in self.models[what.owner] else OfferAnswer.YES


def read_auto_tables(offers: ReleaseOffers) -> AutoTables:
    """Return what a release of transformers knows of model types, from the files of its automatic classes."""
    files = offers.modules.release.files
    trees = []
    for path in sorted(offers.modules.held):
        if path.startswith(_FOLDER) and path.endswith(".py"):
            try:
                trees.append(ast.parse(files.read(path)))
            except (SyntaxError, ValueError):
                continue
    tables: dict[str, dict[str, str]] = {}
    mappings: dict[str, str] = {}
    classes: dict[str, str] = dict(_OWN_TABLES)
    for statement in (each for tree in trees for each in _statements(tree.body)):
        _read_statement(statement, tables, mappings)
        if isinstance(statement, ast.ClassDef):
            classes.update((statement.name, name) for name in _mapping_of(statement))
    configs = tables.get(_CONFIG_NAMES, {})
    models = {
        owner: frozenset(tables[table])
        for owner, mapping in classes.items()
        if (table := mappings.get(mapping, mapping)) in tables
    }
    models |= {mapping: frozenset(tables[table]) for mapping, table in mappings.items() if table in tables}
    return AutoTables({value: key for key, value in configs.items()}, frozenset(configs), models)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements(statement.orelse)


def _read_statement(statement: ast.stmt, tables: dict[str, dict[str, str]], mappings: dict[str, str]) -> None:
    """Read a table of names, an update of one, or the mapping that is made of one."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as value):
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update")) as value):
            pass
        case _:
            return
    if ast.unparse(value.func) == "_LazyAutoMapping":
        mappings.update((name, each.id) for each in value.args[1:2] if isinstance(each, ast.Name))
    elif name.endswith("_NAMES"):
        tables.setdefault(name.removeprefix("MISSING_"), {}).update(_pairs(value))


def _pairs(value: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the keys of a table, each with its value if that is a text."""
    for node in ast.walk(value):
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(key)), target]):
                yield key, _text(target)
            case ast.Dict(keys=keys, values=values):
                for each, target in zip(keys, values, strict=True):
                    if each is not None and _text(each):
                        yield _text(each), _text(target)
            case _:
                pass


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _mapping_of(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="_model_mapping")], value=ast.Name(id=name)):
                yield name
            case _:
                pass
