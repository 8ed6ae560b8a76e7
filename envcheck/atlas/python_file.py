"""Read one Python file: what it binds, offers, imports and reads while it is imported.

Function bodies are not read, except those of functions that decide guards. Statements that cannot run on
import (`if TYPE_CHECKING`) or whose failure is caught (`try … except ImportError`) ask nothing of anybody.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from envcheck.atlas.aliases import read_aliases
from envcheck.atlas.lazy_tables import read_lazy_offers, words_of
from envcheck.atlas.python_names import is_of_python, lacking_in, python_names_mark
from envcheck.atlas.refused_names import read_refused_names
from envcheck.atlas.requirement_tables import read_requirement_tables, read_table_checks
from envcheck.atlas.scripts import reduced_source
from envcheck.atlas.summary import (
    FORMAT,
    FileSummary,
    Guards,
    ImportOrigin,
    ModuleCall,
    ModuleRefusal,
    ModuleRegistration,
    Use,
    UseKind,
)
from envcheck.atlas.syntax import (
    ErrorType,
    catches,
    dotted,
    ends_in_raise,
    expected,
    is_type_checking,
    only_a_refusal,
    suppressed,
)

OFFERS = "__offers__"
"""The guard `__offers__('torch._six.inf')` is true where that import succeeds."""

UNREADABLE_GUARD = "__unreadable__"
ANNOTATIONS_RUN = "sys.version_info < (3, 14)"
"""From Python 3.14 on annotations are evaluated when somebody asks for them."""

_ERRORS: tuple[ErrorType, ...] = (ModuleNotFoundError, ImportError, AttributeError, ValueError)
"""What fails on import: a module, a name in it or an attribute is missing, or a registration is refused."""

_REGISTERING = re.compile(r"(?:.*\.)?(?:Auto[A-Z]\w*|[A-Z]\w*_MAPPING)\.register")
_KEY_NAMES = ("model_type", "config_class", "key")
_LONGEST_RAISE = 160
_LONGEST_CALL = 240


def read_python_file(
    content: bytes, *, package: bool, cache: MutableMapping[str, FileSummary] | None = None
) -> FileSummary:
    """Return the summary of one file.

    Args:
        content: the bytes of the file.
        package: whether the file is an `__init__`, which decides what relative imports mean.
        cache: summaries by digest; the caller keeps it between runs.

    """
    if cache is None:
        return _summarise(content)
    form = f"{FORMAT} {package} {python_names_mark()} ".encode()
    digest = hashlib.sha256(form + content).hexdigest()[:32]
    if digest not in cache:
        cache[digest] = _summarise(content)
    return cache[digest]


def _summarise(content: bytes) -> FileSummary:
    source = content.decode("utf-8", errors="replace").removeprefix("\N{BYTE ORDER MARK}")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
        return _FileReader(tree, source).summary()
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return FileSummary(error=f"{type(error).__name__}: {error}"[:100], computed=True)


@dataclass(frozen=True)
class _Place:
    """Where a statement stands.

    Attributes:
        guards: the tests around it.
        top: it stands in the module, not in a class.
        typing: it stands under `if TYPE_CHECKING`, so it never runs.
        caught: those of `_ERRORS` that a `try` around it expects.

    """

    guards: Guards = ()
    top: bool = True
    typing: bool = False
    caught: frozenset[ErrorType] = frozenset()

    def under(self, *guards: str) -> _Place:
        return replace(self, guards=(*self.guards, *(each for each in guards if each not in self.guards)))


@dataclass
class _FileReader:
    """Walk the statements of one module in order and collect what a summary holds."""

    tree: ast.Module
    source: str
    bindings: dict[str, tuple[Guards, ...]] = field(default_factory=dict)
    imports: dict[str, ImportOrigin] = field(default_factory=dict)
    typing_imports: dict[str, ImportOrigin] = field(default_factory=dict)
    typing_stars: list[ImportOrigin] = field(default_factory=list)
    stars: list[ImportOrigin] = field(default_factory=list)
    exports: list[str] | None = None
    exports_open: bool = False
    computed: bool = False
    namespaces: set[str] = field(default_factory=lambda: {"globals()", "vars()"})
    uses: list[Use] = field(default_factory=list)
    refusals: list[ModuleRefusal] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    called: dict[tuple[str, Guards], ModuleCall] = field(default_factory=dict)
    registrations: list[ModuleRegistration] = field(default_factory=list)
    model_types: dict[str, str] = field(default_factory=dict)
    reassigned: set[str] = field(default_factory=set)
    later_annotations: bool = False

    def summary(self) -> FileSummary:
        self.later_annotations = any(
            isinstance(each, ast.ImportFrom)
            and each.module == "__future__"
            and any(alias.name == "annotations" for alias in each.names)
            for each in self.tree.body
        )
        self.block(self.tree.body, _Place())
        lazy = read_lazy_offers(self.tree, self.source)
        served = read_aliases(self.tree, self.source)
        refused = read_refused_names(self.tree, self.source)
        answers = lazy.answers
        if served.replaces_itself and not lazy.present:
            answers = words_of(self.tree)
        return FileSummary(
            bindings=self.bindings,
            imports=self.imports,
            rebound=frozenset(self.reassigned & self.imports.keys()),
            lazy={**self.typing_imports, **lazy.names} if lazy.present else {},
            lazy_stars=tuple(self.typing_stars) if lazy.present else (),
            scans=lazy.scans,
            stars=tuple(self.stars),
            exports=None if self.exports is None else tuple(dict.fromkeys(self.exports)),
            exports_open=self.exports_open,
            answers=answers,
            refused=refused.words,
            refused_by=refused.tables,
            past=refused.keys,
            computed=self.computed or lazy.computed,
            registers=_texts(self.tree) if served.loose else frozenset(),
            aliases=served.aliases,
            uses=tuple(self.resolved_uses()),
            refusals=tuple(self.refusals),
            calls=tuple(self.calls),
            called=tuple(each for each in self.called.values() if each.text.split(".")[0] in self.bindings),
            registrations=tuple(self.registrations),
            model_types=self.model_types,
            checks=tuple(read_table_checks(self.tree)),
            tables=read_requirement_tables(self.tree),
            script=reduced_source(self.tree),
        )

    def resolved_uses(self) -> Iterator[Use]:
        """Yield the uses, with the root of each attribute replaced by the module it stands for."""
        for use in self.uses:
            if use.kind is not UseKind.ATTRIBUTE:
                yield use
                continue
            root, _, rest = use.module.partition(".")
            origin = self.imports.get(root)
            if origin is None or origin.level or root in self.reassigned:
                continue
            path = ".".join(filter(None, (origin.module, origin.name, rest)))
            if not is_of_python(path) or lacking_in(path):
                yield replace(use, module=path)

    # Statements. Each returns the names that it certainly binds.

    def block(self, statements: Sequence[ast.stmt], place: _Place) -> set[str]:
        bound: set[str] = set()
        for statement in statements:
            reader = getattr(self, f"read_{type(statement).__name__.lower()}", None)
            if reader is not None:
                bound |= reader(statement, place) or set()
        return bound

    def bind(self, name: str, place: _Place) -> set[str]:
        if not place.top or place.typing:
            return set()
        known = self.bindings.get(name, ())
        if place.guards not in known:
            self.bindings[name] = ((),) if not place.guards else (*known, place.guards)
        return {name}

    def use(
        self, kind: UseKind, node: ast.AST, place: _Place, module: str, name: str = "", level: int = 0
    ) -> None:
        left = _unexpected(kind, place.caught)
        if not place.typing and left is not None:
            self.uses.append(Use(left, level, module, name, place.guards, getattr(node, "lineno", 0)))

    def take(self, local: str, origin: ImportOrigin, place: _Place) -> None:
        """Keep what an import binds. A name that two imports bind to different things stands for neither."""
        first = self.imports.setdefault(local, origin)
        if place.top and replace(first, guards=()) != replace(origin, guards=()):
            self.reassigned.add(local)

    def read_import(self, node: ast.Import, place: _Place) -> set[str]:
        bound: set[str] = set()
        for alias in node.names:
            local = alias.asname or alias.name.split(".")[0]
            origin = ImportOrigin(0, alias.name if alias.asname else local, guards=place.guards)
            if place.typing:
                self.typing_imports.setdefault(local, origin)
                continue
            self.use(UseKind.IMPORT, node, place, alias.name)
            self.take(local, origin, place)
            bound |= self.bind(local, place)
        return bound

    def read_importfrom(self, node: ast.ImportFrom, place: _Place) -> set[str]:
        module, bound = node.module or "", set[str]()
        if module == "__future__":
            return bound
        for alias in node.names:
            origin = ImportOrigin(node.level, module, alias.name, place.guards)
            if alias.name == "*":
                (self.typing_stars if place.typing else self.stars).append(replace(origin, name=""))
            elif place.typing:
                self.typing_imports.setdefault(alias.asname or alias.name, origin)
            else:
                self.take(alias.asname or alias.name, origin, place)
                bound |= self.bind(alias.asname or alias.name, place)
            self.use(UseKind.FROM, node, place, module, alias.name, node.level)
        return bound

    def read_if(self, node: ast.If, place: _Place) -> set[str]:
        if is_type_checking(node.test):
            self.block(node.body, replace(place, typing=True))
            return self.block(node.orelse, place)
        self.expression(node.test, place)
        test = ast.unparse(node.test)
        then = self.block(node.body, place.under(test))
        otherwise = self.block(node.orelse, place.under(f"not ({test})"))
        return self.both_ways([then, otherwise], place)

    def both_ways(self, ways: Iterable[set[str]], place: _Place) -> set[str]:
        certain = set.intersection(*ways)
        for name in certain:
            self.bind(name, place)
        return certain

    def read_try(self, node: ast.Try, place: _Place) -> set[str]:
        lenient = [each for each in node.handlers if not ends_in_raise(each.body)]
        refused = only_a_refusal(node.body)
        if refused is not None:
            body: set[str] = set()
            fails, succeeds = refused, f"not ({refused})"
        else:
            caught = expected(node.handlers, _ERRORS)
            succeeds = _import_test(node.body, caught)
            fails = f"not ({succeeds})" if succeeds != UNREADABLE_GUARD else UNREADABLE_GUARD
            inner = replace(place, caught=place.caught | caught)
            # An import that no handler expects to fail is reached for sure if nothing precedes it.
            sure = 0 if caught & {ModuleNotFoundError, ImportError} else _leading_imports(node.body)
            body = self.block(node.body[:sure], inner)
            body |= self.block(node.body[sure:], inner.under(succeeds) if lenient else inner)
        after = place.under(succeeds) if lenient else place
        body |= self.block(node.orelse, after)
        handled = [self.block(each.body, place.under(fails)) for each in lenient]
        for each in node.handlers:
            if each not in lenient:
                self.block(each.body, place.under(UNREADABLE_GUARD))
        return self.both_ways([body, *handled], place) | self.block(node.finalbody, place)

    read_trystar = read_try

    def read_with(self, node: ast.With, place: _Place) -> set[str]:
        bound: set[str] = set()
        for item in node.items:
            self.expression(item.context_expr, place)
            bound |= self.targets(item.optional_vars, place)
        if named := suppressed(node):
            caught = {error for error in _ERRORS if any(catches(each, error) for each in named)}
            place = replace(place.under(UNREADABLE_GUARD), caught=place.caught | caught)
        return bound | self.block(node.body, place)

    def read_for(self, node: ast.For, place: _Place) -> set[str]:
        self.expression(node.iter, place)
        self.targets(node.target, place)
        self.block(node.body, place)
        self.block(node.orelse, place)
        return set()

    def read_while(self, node: ast.While, place: _Place) -> set[str]:
        self.expression(node.test, place)
        self.block(node.body, place.under(ast.unparse(node.test)))
        return set()

    def read_match(self, node: ast.Match, place: _Place) -> set[str]:
        for case in node.cases:
            self.block(case.body, place.under(UNREADABLE_GUARD))
        return set()

    def read_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> set[str]:
        if place.typing:
            return set()
        arguments = node.args
        defaults = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        for value in (*node.decorator_list, *defaults):
            self.expression(value, place)
        if not self.later_annotations:
            every = (
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            )
            for annotation in (*(each.annotation for each in every if each is not None), node.returns):
                self.expression(annotation, place.under(ANNOTATIONS_RUN))
        if place.top:
            for name in (
                name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names
            ):
                self.bind(name, place.under(UNREADABLE_GUARD))
        return self.bind(node.name, place)

    read_asyncfunctiondef = read_functiondef

    def read_classdef(self, node: ast.ClassDef, place: _Place) -> set[str]:
        for value in (*node.decorator_list, *node.bases, *(each.value for each in node.keywords)):
            self.expression(value, place)
        self.block(node.body, replace(place, top=False))
        for statement in node.body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id="model_type")], value=ast.Constant(value=str(text)))
                    | ast.AnnAssign(target=ast.Name(id="model_type"), value=ast.Constant(value=str(text)))
                ):
                    self.model_types[node.name] = text
                case _:
                    pass
        return self.bind(node.name, place)

    def read_assign(self, node: ast.Assign, place: _Place) -> set[str]:
        self.expression(node.value, place)
        bound: set[str] = set()
        for target in node.targets:
            bound |= self.targets(target, place)
            if place.top and isinstance(target, ast.Name) and ast.unparse(node.value) in self.namespaces:
                self.namespaces.add(target.id)
            if place.top and isinstance(target, ast.Name) and target.id == "__all__":
                self.export(node.value, add=bool(place.guards) and self.exports is not None)
            if place.top and isinstance(target, ast.Subscript) and ast.unparse(target.value) == "globals()":
                bound |= self.global_item(target.slice, place)
        return bound

    def global_item(self, key: ast.expr, place: _Place) -> set[str]:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return self.bind(key.value, place)
        self.computed = True
        return set()

    def read_annassign(self, node: ast.AnnAssign, place: _Place) -> set[str]:
        if not self.later_annotations:
            self.expression(node.annotation, place.under(ANNOTATIONS_RUN))
        if node.value is None:
            if isinstance(node.target, ast.Name):
                self.bind(node.target.id, place.under(UNREADABLE_GUARD))
            return set()
        self.expression(node.value, place)
        if place.top and isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self.export(node.value, add=False)
        return self.targets(node.target, place)

    def read_augassign(self, node: ast.AugAssign, place: _Place) -> None:
        self.expression(node.value, place)
        if place.top and isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self.export(node.value, add=True)

    def read_expr(self, node: ast.Expr, place: _Place) -> None:
        self.expression(node.value, place)
        if not place.top or place.typing or not isinstance(node.value, ast.Call):
            return
        call, function = node.value, ast.unparse(node.value.func)
        if function == "__all__.extend" and call.args:
            self.export(call.args[0], add=True)
        elif function == "__all__.append":
            self.export(ast.List(elts=call.args, ctx=ast.Load()), add=True)
        elif function in ("globals().update", "vars().update", "locals().update", "exec") or (
            function == "setattr" and "sys.modules" in ast.unparse(call)
        ):
            self.computed = True
        elif any(ast.unparse(each) in self.namespaces for each in call.args):
            self.computed = True  # as protobuf's builder, which fills the namespace that it is given
        elif any(isinstance(each, ast.Name) and each.id == "__all__" for each in call.args):
            self.exports_open = True
        self.record_call(call, place)
        self.record_registration(call, function, place)

    def record_registration(self, call: ast.Call, function: str, place: _Place) -> None:
        """Record `AutoConfig.register(...)`, unless it allows or expects that the name is taken."""
        if not _REGISTERING.fullmatch(function) or ValueError in place.caught:
            return
        allows = [*call.args[2:], *(each.value for each in call.keywords if each.arg == "exist_ok")]
        if any(not isinstance(each, ast.Constant) or each.value is True for each in allows):
            return
        named = [each.value for each in call.keywords if each.arg in _KEY_NAMES]
        for key in (*call.args, *named)[:1]:
            owner = function.removesuffix(".register")
            self.registrations.append(ModuleRegistration(owner, ast.unparse(key), place.guards, call.lineno))

    def record_call(self, call: ast.Call, place: _Place) -> None:
        values = (*call.args, *(each.value for each in call.keywords))
        text = ast.unparse(call)
        if (
            dotted(call.func)
            and all(isinstance(each, ast.Constant) for each in values)
            and len(text) <= _LONGEST_CALL
        ):
            self.calls.append(ModuleCall(text, place.guards, call.lineno))

    def read_assert(self, node: ast.Assert, place: _Place) -> None:
        self.expression(node.test, place)
        if place.top and not place.typing and not place.caught:
            text = " ".join(ast.unparse(node).split())[:_LONGEST_RAISE]
            guards = (*place.guards, f"not ({ast.unparse(node.test)})")
            self.refusals.append(ModuleRefusal(text, guards, node.lineno))

    def read_raise(self, node: ast.Raise, place: _Place) -> None:
        if not place.typing and not place.caught:
            text = " ".join(ast.unparse(node).split())[:_LONGEST_RAISE]
            self.refusals.append(ModuleRefusal(text, place.guards, node.lineno))

    def read_delete(self, node: ast.Delete, place: _Place) -> None:
        if place.top and not place.guards:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.bindings.pop(target.id, None)

    def targets(self, target: ast.expr | None, place: _Place) -> set[str]:
        bound: set[str] = set()
        for each in ast.walk(target) if target is not None else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                bound |= self.bind(each.id, place)
                self.reassigned.add(each.id)
        return bound

    def export(self, value: ast.expr, *, add: bool) -> None:
        try:
            names = [each for each in ast.literal_eval(value) if isinstance(each, str)]
        except (ValueError, TypeError, SyntaxError):
            self.exports_open = True
            names = [
                each.value
                for each in ast.walk(value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        self.exports = [*(self.exports or ()), *names] if add else names

    # Expressions that are evaluated on import.

    def expression(self, value: ast.expr | None, place: _Place) -> None:
        match value:
            case None | ast.Constant() | ast.Name():
                return
            case ast.Lambda():
                for each in value.args.defaults:
                    self.expression(each, place)
            case ast.IfExp():
                test = ast.unparse(value.test)
                self.expression(value.test, place)
                self.expression(value.body, place.under(test))
                self.expression(value.orelse, place.under(f"not ({test})"))
            case ast.BoolOp():
                self.operands(value, place)
            case ast.Attribute() if chain := dotted(value):
                self.use(UseKind.ATTRIBUTE, value, place, chain)
            case ast.Call(func=ast.Name(id="hasattr" | "getattr" as called)):
                self.reflection(value, called, place)
            case _:
                if isinstance(value, ast.Call):
                    self.note_call(value, place)
                for child in _evaluated_children(value):
                    self.expression(child, place)

    def note_call(self, call: ast.Call, place: _Place) -> None:
        """Note a function that is called by its name, unless it is expected to fail."""
        name = dotted(call.func)
        if name and not place.typing and not place.caught - {ValueError}:
            self.called.setdefault((name, place.guards), ModuleCall(name, place.guards, call.lineno))

    def operands(self, value: ast.BoolOp, place: _Place) -> None:
        for each in value.values:
            self.expression(each, place)
            test = ast.unparse(each)
            place = place.under(test if isinstance(value.op, ast.And) else f"not ({test})")

    def reflection(self, call: ast.Call, called: str, place: _Place) -> None:
        """Read `getattr(torch, "name")` as the attribute; with a default, and `hasattr`, ask for nothing."""
        if called == "getattr" and len(call.args) == 2:  # noqa: PLR2004 - object and name, no default
            base, name = dotted(call.args[0]), call.args[1]
            if base is not None and isinstance(name, ast.Constant):
                self.use(UseKind.ATTRIBUTE, call, place, f"{base}.{name.value!s}")


def _evaluated_children(value: ast.expr) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(value):
        match child:
            case ast.expr():
                yield child
            case ast.keyword():
                yield child.value
            case ast.comprehension():
                yield child.iter
                yield from child.ifs
            case _:
                pass


def _unexpected(kind: UseKind, caught: frozenset[ErrorType]) -> UseKind | None:
    """Return what of a use fails without being expected; None if nothing does.

    `except ModuleNotFoundError` around `from a import b` lets the failure for want of `b` pass.
    """
    if kind is UseKind.ATTRIBUTE:
        return None if AttributeError in caught else kind
    if kind is UseKind.IMPORT or ImportError in caught:
        return None if ModuleNotFoundError in caught else UseKind.IMPORT
    return UseKind.MEMBER if ModuleNotFoundError in caught else kind


def _leading_imports(body: Sequence[ast.stmt]) -> int:
    """Return the number of statements up to the first import of another package; 0 after anything else."""
    for place, statement in enumerate(body):
        match statement:
            case ast.Import(names=[ast.alias(name=name), *_]) | ast.ImportFrom(module=str(name), level=0):
                if name.split(".")[0] not in sys.stdlib_module_names:
                    return place + 1
            case _:
                return 0
    return 0


def _import_test(body: Sequence[ast.stmt], caught: frozenset[ErrorType]) -> str:
    """Return a guard that is true where the imports of a `try` succeed; unreadable if there is more in it.

    If only missing modules are caught, it is true where the modules exist: a missing name ends the program.
    """
    if ModuleNotFoundError not in caught:
        return UNREADABLE_GUARD
    names = ImportError in caught
    paths: dict[str, None] = {}
    for statement in body:
        match statement:
            case ast.Import():
                paths |= dict.fromkeys(alias.name for alias in statement.names)
            case ast.ImportFrom(module=str(module), level=0) if names:
                paths |= dict.fromkeys(
                    f"{module}.{alias.name}" for alias in statement.names if alias.name != "*"
                )
            case ast.ImportFrom(module=str(module), level=0):
                paths[module] = None
            case ast.Assign(value=ast.Constant() | ast.Name()):
                continue
            case _:
                return UNREADABLE_GUARD
    return " and ".join(f"{OFFERS}({path!r})" for path in paths) or UNREADABLE_GUARD


def _texts(tree: ast.Module) -> frozenset[str]:
    """Return every text in a file."""
    return frozenset(
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
