"""Read the tables by which a module offers names that it imports only when somebody asks for them.

There are six forms: `_import_structure` filled piece by piece, a table such as `_SUBMOD_ATTRS`, a table
inside `_attach(...)`, `define_import_structure(...)`, which reads the `__all__` of every file below, the body
of a `__getattr__`, and a block under `TYPE_CHECKING` beside one of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from envcheck.atlas.lazy_getters import getter_names, relative, relative_key, table_pair
from envcheck.atlas.summary import Guards, ImportOrigin
from envcheck.atlas.syntax import dotted, only_a_refusal

_TABLES = frozenset(
    {
        "_import_structure",
        "import_structure",
        "_SUBMOD_ATTRS",
        "_LAZY_IMPORTS",
        "_lazy_imports",
        "_LAZY_ATTRS",
        "_ATTR_TO_MODULE",
        "MODULE_ATTRS",
        "_MODULE_ATTRS",
        "_lazy_import_structure",
    }
)
_ATTACH = ("_attach", "attach")


@dataclass
class LazyOffers:
    """What the tables of one module offer.

    Attributes:
        present: the module offers names lazily in one of the forms.
        names: the names of the tables.
        scans: it uses `define_import_structure`.
        answers: the words a module-level `__getattr__` may answer to, or None without one.
        computed: its `__getattr__` may answer to any word.
        stars: modules whose names are all offered, by `dir(module)`.

    """

    present: bool = False
    names: dict[str, ImportOrigin] = field(default_factory=dict)
    scans: bool = False
    answers: frozenset[str] | None = None
    computed: bool = False
    stars: list[ImportOrigin] = field(default_factory=list)


def read_lazy_offers(tree: ast.Module, source: str) -> LazyOffers:
    """Return what a module offers lazily."""
    offers = LazyOffers()
    getter = next((each for each in _functions(tree.body) if each.name == "__getattr__"), None)
    tables = _TABLES | (_dictionaries(tree) if getter is not None else frozenset())
    if getter is not None or any(word in source for word in (*_TABLES, "_attach(", "lazy.attach(")):
        for statement, guards in _statements(tree.body, ()):
            _read_statement(statement, guards, tables, offers)
    if getter is not None:
        _read_getter(tree, getter, offers)
        offers.answers = words_of(tree)
        offers.computed = _delegates(getter)
    offers.scans = "define_import_structure(" in source and "def define_import_structure" not in source
    offers.present = bool(
        offers.names or offers.stars or offers.scans or getter is not None or "_LazyModule(" in source
    )
    return offers


def _read_getter(tree: ast.Module, getter: ast.FunctionDef, offers: LazyOffers) -> None:
    if relative_key(getter):
        offers.names.update({name: relative(origin) for name, origin in offers.names.items()})
    for name, origin in getter_names(tree, getter).items():
        offers.names.setdefault(name, origin)


def _functions(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for statement, _ in _statements(body, ()):
        if isinstance(statement, ast.FunctionDef):
            yield statement


def _statements(body: Sequence[ast.stmt], guards: Guards) -> Iterator[tuple[ast.stmt, Guards]]:
    """Yield the statements at module level, inside `if` and `try` too, with the tests around them."""
    for statement in body:
        match statement:
            case ast.If():
                test = ast.unparse(statement.test)
                typing = test.rsplit(".", 1)[-1] == "TYPE_CHECKING"
                yield from _statements(statement.body, (*guards, test))
                yield from _statements(statement.orelse, guards if typing else (*guards, f"not ({test})"))
            case ast.Try():
                refused = only_a_refusal(statement.body)
                passed = guards if refused is None else (*guards, f"not ({refused})")
                yield from _statements(statement.body, guards)
                for handler in statement.handlers:
                    yield from _statements(handler.body, guards if refused is None else (*guards, refused))
                yield from _statements(statement.orelse, passed)
            case _:
                yield statement, guards


def _dictionaries(tree: ast.Module) -> frozenset[str]:
    """Return the names of module-level dictionaries whose keys are texts."""
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Dict):
            keys = statement.value.keys
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if keys and isinstance(keys[0], ast.Constant) and isinstance(keys[0].value, str):
                names.update(each.id for each in targets if isinstance(each, ast.Name))
    return frozenset(names)


def _read_statement(statement: ast.stmt, guards: Guards, tables: frozenset[str], offers: LazyOffers) -> None:
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _read_assignment(target, value, guards, tables, offers)
            _read_attach(value, guards, offers)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            _read_assignment(target, value, guards, tables, offers)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Subscript() as table, attr=method)) as call
        ):
            key = _table_key(table, tables)
            if key is not None and method in ("append", "extend") and call.args:
                _offer(key, _texts(call.args[0]), guards, offers)
        case ast.Expr(value=ast.Call() as call):
            _read_attach(call, guards, offers)
        case _:
            pass


def _read_assignment(
    target: ast.expr, value: ast.expr, guards: Guards, tables: frozenset[str], offers: LazyOffers
) -> None:
    match target, value:
        case ast.Name(id=name), ast.Dict() if name in tables:
            _read_dictionary(value, guards, offers)
        case ast.Subscript(), ast.ListComp() if (key := _table_key(target, tables)) is not None:
            offers.stars.append(ImportOrigin(1, key, guards=guards))
        case ast.Subscript(), _ if (key := _table_key(target, tables)) is not None:
            _offer(key, _texts(value), guards, offers)


def _read_attach(value: ast.expr, guards: Guards, offers: LazyOffers) -> None:
    if isinstance(value, ast.Call) and (dotted(value.func) or "").rsplit(".", 1)[-1] in _ATTACH:
        for argument in (*value.args, *(each.value for each in value.keywords)):
            if isinstance(argument, ast.Dict):
                _read_dictionary(argument, guards, offers)
            else:
                for name in _texts(argument):
                    offers.names.setdefault(name, ImportOrigin(1, name, guards=guards))


def _read_dictionary(table: ast.Dict, guards: Guards, offers: LazyOffers) -> None:
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case ast.Constant(value=str(word)), ast.Constant(value=str(target)):
                # An attribute and its module: "LLM": ".entrypoints.llm:LLM".
                module, _, name = target.partition(":")
                level = len(module) - len(module.lstrip("."))
                if all(part.isidentifier() for part in module.lstrip(".").split(".")):
                    offers.names.setdefault(
                        word, ImportOrigin(level, module.lstrip("."), name or word, guards)
                    )
            case ast.Constant(value=str(word)), _ if (pair := table_pair(value)) is not None:
                module = pair[0].lstrip(".")
                origin = ImportOrigin(len(pair[0]) - len(module), module, pair[1], guards)
                offers.names.setdefault(word, origin)
            case ast.Constant(value=str(word)), ast.List() | ast.Tuple() | ast.Set():
                _offer(word, _texts(value), guards, offers)
            case _:
                pass


def _offer(module: str, names: Sequence[str], guards: Guards, offers: LazyOffers) -> None:
    module = module.lstrip(".")
    for name in names:
        offers.names.setdefault(name, ImportOrigin(1, module, name, guards))
    first = module.split(".")[0]
    offers.names.setdefault(first, ImportOrigin(1, first, guards=guards))


def _table_key(target: ast.expr, tables: frozenset[str]) -> str | None:
    match target:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name in tables:
            return key
    return None


def _texts(value: ast.expr) -> list[str]:
    """Return the texts of a list, or the one text."""
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [text for each in elements for text in _texts(each)]
        case _:
            return []


def words_of(tree: ast.Module) -> frozenset[str]:
    """Return every identifier that stands in a module as a text or a name."""
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text.isidentifier():
                words.add(text)
            case ast.Name(id=name) | ast.alias(name=name):
                words.add(name.rsplit(".", 1)[-1])
            case _:
                pass
    return frozenset(words)


def _delegates(getter: ast.FunctionDef) -> bool:
    """Return whether `__getattr__` passes any word on, without a test against words that are written down."""
    parameter = getter.args.args[0].arg if getter.args.args else "name"
    raises = any(isinstance(each, ast.Raise) for each in ast.walk(getter))
    tested = any(
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == parameter
        and isinstance(node.ops[0], ast.Eq | ast.In | ast.NotIn | ast.NotEq)
        for node in ast.walk(getter)
    )
    passed_on = any(
        isinstance(node, ast.Call)
        and (dotted(node.func) or "").rsplit(".", 1)[-1] in ("getattr", "import_module", "__import__")
        and any(isinstance(each, ast.Name) and each.id == parameter for each in ast.walk(node))
        for node in ast.walk(getter)
    )
    return not raises or (passed_on and not tested)
