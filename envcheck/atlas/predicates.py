"""Turn guards into conditions by evaluating the package's own predicates on symbols instead of versions.

`is_accelerate_available()` means what its own release says: the constants and functions that decide it are
executed, with "the version of accelerate" and "accelerate is installed" as values. So a hidden minimum, a
local helper or a flag set in a `try` needs no list of names. Code that cannot be followed is unreadable; only
a predicate that another package defines may be interpreted by its name.

The environment is assumed to be Linux with no environment variable set.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from envcheck.atlas.conditions import (
    ALWAYS,
    CUDA,
    NEVER,
    PYTHON,
    UNREADABLE,
    AllOf,
    Compared,
    Condition,
    HasName,
    Installed,
    all_of,
    any_of,
    negate,
)
from envcheck.atlas.entries import devices, distribution_of
from envcheck.atlas.named_predicates import named_predicate
from envcheck.atlas.release_modules import ModuleForm, ReleaseModules
from envcheck.atlas.summary import Guards
from envcheck.atlas.symbols import (
    FLIPPED,
    OPAQUE,
    WHOLE,
    Choice,
    DistributionTable,
    LocalFunction,
    MethodOf,
    OwnName,
    PartOf,
    PathOf,
    SpecOf,
    SymbolValue,
    VersionOf,
    as_floor,
    assign,
    attribute,
    call_method,
    choose,
    compare,
    constant,
    item,
    merge,
    texts,
    truth,
)
from envcheck.atlas.syntax import catcher

_FUEL = 6000
"""The most statements and expressions to evaluate for one guard; a guard that needs more is unreadable."""

_DEEPEST = 12
"""The most nested calls, and the most re-exports in a chain, to follow."""

_PASSED_ON = frozenset({"int", "float", "tuple", "list", "map", "set", "frozenset", "sorted", "join"})
_SAME_VERSION = frozenset(
    {"parse", "Version", "LooseVersion", "StrictVersion", "parse_version", "TorchVersion", "str"}
)
_TRUE_ON_LINUX = frozenset(
    {
        "torch.distributed.is_available",
        "torch._C._c10d_init",
        "torch._C._rpc_init",
        "torch._C._dist_autograd_init",
    }
)
"""Names that are present, or answer yes, in every published build of torch for Linux."""

_PACKAGE_CHECK = re.compile(r"_?is_package_available")
_PAIR = 2
_CONSTANTS: Mapping[str, SymbolValue] = {
    "sys.version_info": VersionOf(PYTHON, depth=WHOLE),
    "sys.platform": "linux",
    "os.name": "posix",
}

Names: TypeAlias = dict[str, SymbolValue]


class _Falls:
    """Outcome of a block that ran to its end without a `return`."""


class _Raises:
    """Outcome of a block that raised; a module that raises is not imported."""


_RAISED: SymbolValue = (OPAQUE,)
"""An error that a handler has caught: it is true, not None, and what it holds is not known."""

_FALLS = _Falls()
_RAISES = _Raises()
_Outcome: TypeAlias = SymbolValue | _Falls | _Raises
_Way: TypeAlias = tuple[_Outcome, Names]


@dataclass
class GuardReader:
    """Read the guards of one release.

    Attributes:
        modules: the release.
        foreign: returns the condition of another package's predicate by its dotted path; None if unknown.
        variables: environment variables that were asked for since the caller cleared the set.

    """

    modules: ReleaseModules
    foreign: Callable[[str], Condition | None] = lambda _path: None
    variables: set[str] = field(default_factory=set)
    _scopes: dict[str, Names] = field(default_factory=dict)
    _read: dict[tuple[str, str], Condition] = field(default_factory=dict)
    _joined: dict[tuple[Guards, str], Condition] = field(default_factory=dict)
    _asked: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _fuel: int = 0
    _depth: int = 0
    _in_function: bool = False
    _needs: list[Condition] = field(default_factory=list)

    def condition(self, guard: str, module: str) -> Condition:
        """Return the condition that a guard in a module states."""
        key = (guard, module)
        if key not in self._read:
            self._fuel, self._depth = _FUEL, 0
            self.variables.clear()
            self._read[key] = truth(self._value(_parsed(guard), {}, module))
            self._asked[key] = tuple(sorted(self.variables))
        return self._read[key]

    def asked(self, guards: Guards, module: str) -> tuple[str, ...]:
        """Return the environment variables on which guards in a module depend."""
        self.together(guards, module)
        return tuple(dict.fromkeys(name for each in guards for name in self._asked[each, module]))

    def together(self, guards: Guards, module: str) -> Condition:
        """Return the condition that all of these guards in a module are true."""
        key = (guards, module)
        if key not in self._joined:
            self._joined[key] = all_of(self.condition(each, module) for each in guards)
        return self._joined[key]

    def predicate(self, path: str) -> Condition | None:
        """Return what a predicate of this release states without arguments; None if there is none."""
        module, _, name = path.rpartition(".")
        self._fuel, self._depth = _FUEL, 0
        function = self._own(module, name) if self.modules.owns(module) else OPAQUE
        return truth(self._call_value(function, [], {})) if isinstance(function, LocalFunction) else None

    def value(self, node: ast.expr, names: Names, module: str) -> SymbolValue:
        """Return the value of an expression in a function of a module, whose local names are given."""
        self._fuel, self._depth = _FUEL, 0
        return self._value(node, names, module)

    def run_import(self, node: ast.Import | ast.ImportFrom, names: Names, module: str) -> None:
        """Bind what an import in a function of a module binds."""
        self._run([node], names, module)

    # Names

    def _scope(self, module: str) -> Names:
        """Return what the script of a module binds; a circular import sees what is bound so far."""
        if module not in self._scopes:
            names: Names = {"__name__": module}
            self._scopes[module] = names
            summary = self.modules.summary(module)
            if summary is not None and summary.script:
                needs, self._needs = self._needs, []
                in_function, self._in_function = self._in_function, False
                self._run(_script(summary.script), names, module)
                self._needs, self._in_function = needs, in_function
        return self._scopes[module]

    def _own(self, module: str, name: str) -> SymbolValue:
        """Return the value of a name of a module of this release, through re-exports."""
        for _ in range(_DEEPEST):
            scope = self._scope(module)
            if name in scope:
                value = scope[name]
                if not isinstance(value, OwnName):
                    return value
                module, name = value.module, value.name
                continue
            step = self._imported(module, name)
            if not isinstance(step, OwnName):
                return step
            module, name = step.module, step.name
        return OPAQUE

    def _imported(self, module: str, name: str) -> SymbolValue:
        """Return what a module's own import binds to a name: a value, or the name to look up next."""
        summary = self.modules.summary(module)
        if summary is None:
            return OPAQUE
        origin = summary.imports.get(name) or summary.lazy.get(name)
        if origin is None:
            starred = self._starred(module, name)
            if starred:
                return OwnName(starred, name)
            return OPAQUE if name in summary.bindings else PathOf(name)
        target = self.modules.absolute(module, origin)
        whole = f"{target}.{origin.name}" if origin.name else target
        if not self.modules.owns(target):
            return _foreign_value(whole)
        if not origin.name or self.modules.form(whole) is not None:
            return PathOf(whole)
        return OwnName(target, origin.name)

    def _starred(self, module: str, name: str) -> str:
        summary = self.modules.summary(module)
        for star in summary.stars if summary else ():
            target = self.modules.absolute(module, star)
            below = self.modules.summary(target) if self.modules.owns(target) else None
            if below is not None and (name in below.bindings or name in below.lazy):
                return target
        return ""

    # Statements

    def _run(self, body: Sequence[ast.stmt], names: Names, module: str) -> _Outcome:
        """Execute statements; return what they return, or _FALLS if they reach the end."""
        for index, statement in enumerate(body):
            self._fuel -= 1
            if isinstance(statement, ast.If | ast.Try):
                outcome = self._split(statement, body[index + 1 :], names, module)
            else:
                runner = getattr(self, f"_run_{type(statement).__name__.lower()}", None)
                outcome = runner(statement, names, module) if runner is not None else _FALLS
            if outcome is not _FALLS:
                return outcome
        return _FALLS

    def _split(
        self, statement: ast.If | ast.Try, rest: Sequence[ast.stmt], names: Names, module: str
    ) -> _Outcome:
        """Execute an `if` or a `try` both ways, and the rest of the block on a way that does not return."""
        test, (one, one_names), (other, other_names) = (
            self._if(statement, names, module)
            if isinstance(statement, ast.If)
            else self._try(statement, names, module)
        )
        if test in (ALWAYS, NEVER):
            outcome, bound = (one, one_names) if test == ALWAYS else (other, other_names)
            names.update(bound)
            return outcome
        if not self._in_function and (one is _RAISES or other is _RAISES):
            # Read the rest of the module under the condition that this statement did not raise.
            self._needs.append(test if other is _RAISES else negate(test))
            outcome, bound = (one, one_names) if other is _RAISES else (other, other_names)
            names.update(bound)
            return outcome
        if one is _FALLS and other is _FALLS:
            merge(test, one_names, other_names, names)
            return _FALLS
        if one is _FALLS:
            one = self._run(rest, one_names, module)
        elif other is _FALLS:
            other = self._run(rest, other_names, module)
        return choose(test, _returned(one), _returned(other))

    def _if(self, statement: ast.If, names: Names, module: str) -> tuple[Condition, _Way, _Way]:
        one, other = dict(names), dict(names)
        test = truth(self._value(statement.test, names, module))
        then = self._run(statement.body, one, module) if test != NEVER else _FALLS
        otherwise = self._run(statement.orelse, other, module) if test != ALWAYS else _FALLS
        return test, (then, one), (otherwise, other)

    def _try(self, statement: ast.Try, names: Names, module: str) -> tuple[Condition, _Way, _Way]:
        """Execute a `try`; its body succeeds if everything that it looks up is installed.

        If no handler is for a missing module, such as `except RuntimeError`, the program needs what is looked
        up: it ends here without it.
        """
        one, other = dict(names), dict(names)
        outer, self._needs = self._needs, []
        then = self._run((*statement.body, *statement.orelse), one, module)
        test, self._needs = all_of(self._needs), outer
        handlers = statement.handlers
        handler = catcher(handlers, ModuleNotFoundError, derived=True)
        if handler is None and catcher(handlers, AttributeError) is None and not _has_unread(test):
            self._needs.append(test)
            return ALWAYS, (then, one), (_FALLS, other)
        test = test if handler else all_of((test, UNREADABLE))
        handler = handler or next(iter(handlers), None)
        if handler is None or test == ALWAYS:
            return test, (then, one), (_FALLS, other)
        if handler.name:
            other[handler.name] = _RAISED
        otherwise = self._run(handler.body, other, module)
        other.pop(handler.name or "", None)
        return test, (then, one), (otherwise, other)

    def _run_return(self, statement: ast.Return, names: Names, module: str) -> _Outcome:
        return self._value(statement.value, names, module) if statement.value else None

    def _run_raise(self, _statement: ast.Raise, _names: Names, _module: str) -> _Outcome:
        return OPAQUE if self._in_function else _RAISES

    def _run_assign(self, statement: ast.Assign, names: Names, module: str) -> _Outcome:
        value = self._value(statement.value, names, module)
        for target in statement.targets:
            assign(target, value, names)
        return _FALLS

    def _run_annassign(self, statement: ast.AnnAssign, names: Names, module: str) -> _Outcome:
        if statement.value is not None:
            assign(statement.target, self._value(statement.value, names, module), names)
        return _FALLS

    def _run_expr(self, statement: ast.Expr, names: Names, module: str) -> _Outcome:
        value = self._value(statement.value, names, module)
        if value == OPAQUE and not _harmless(statement.value):
            self._needs.append(UNREADABLE)
        if isinstance(value, PathOf) and isinstance(statement.value, ast.Attribute):
            self._need(value.path)
        return _FALLS

    def _run_functiondef(self, statement: ast.FunctionDef, names: Names, module: str) -> _Outcome:
        names[statement.name] = LocalFunction(statement, module)
        return _FALLS

    def _run_with(self, statement: ast.With, names: Names, module: str) -> _Outcome:
        return self._run(statement.body, names, module)

    def _run_for(self, statement: ast.stmt, names: Names, _module: str) -> _Outcome:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = OPAQUE
        returns = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        return OPAQUE if returns else _FALLS

    _run_while = _run_augassign = _run_for

    def _run_import(self, statement: ast.Import, names: Names, _module: str) -> _Outcome:
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            names[alias.asname or top] = PathOf(alias.name if alias.asname else top)
            self._need(alias.name)
        return _FALLS

    def _run_importfrom(self, statement: ast.ImportFrom, names: Names, module: str) -> _Outcome:
        target = self.modules.resolve(module, statement.level, statement.module or "")
        for alias in statement.names:
            local, whole = alias.asname or alias.name, f"{target}.{alias.name}"
            if not self.modules.owns(target):
                names[local] = _foreign_value(whole)
                self._need(whole)
            elif alias.name != "*":
                submodule = self.modules.form(whole) is not None
                names[local] = PathOf(whole) if submodule else OwnName(target, alias.name)
                if self.modules.form(target) is not ModuleForm.SOURCE:
                    self._needs.append(UNREADABLE)
        return _FALLS

    def _need(self, path: str) -> None:
        """Record the condition under which an import inside a `try` succeeds."""
        if not self.modules.owns(path) and path.split(".", maxsplit=1)[0] not in sys.stdlib_module_names:
            installed = Installed(distribution_of(path))
            self._needs.append(installed if "." not in path else all_of((installed, HasName(path))))

    # Expressions

    def _value(self, node: ast.expr, names: Names, module: str) -> SymbolValue:
        self._fuel -= 1
        reader = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if self._fuel < 0 or reader is None:
            return OPAQUE
        value: SymbolValue = reader(node, names, module)
        return value

    def _values(self, nodes: Sequence[ast.expr], names: Names, module: str) -> list[SymbolValue]:
        return [self._value(each, names, module) for each in nodes]

    def _value_constant(self, node: ast.Constant, _names: Names, _module: str) -> SymbolValue:
        return constant(node.value)

    def _value_name(self, node: ast.Name, names: Names, module: str) -> SymbolValue:
        value = names[node.id] if node.id in names else self._own(module, node.id)
        return self._own(value.module, value.name) if isinstance(value, OwnName) else value

    def _value_attribute(self, node: ast.Attribute, names: Names, module: str) -> SymbolValue:
        base = self._value(node.value, names, module)
        if not isinstance(base, PathOf):
            return attribute(base, node.attr)
        whole = f"{base.path}.{node.attr}"
        if self.modules.owns(base.path) and self.modules.form(base.path) is not None:
            return PathOf(whole) if self.modules.form(whole) is not None else self._own(base.path, node.attr)
        return _foreign_value(whole)

    def _value_boolop(self, node: ast.BoolOp, names: Names, module: str) -> SymbolValue:
        join = all_of if isinstance(node.op, ast.And) else any_of
        return join(map(truth, self._values(node.values, names, module)))

    def _value_unaryop(self, node: ast.UnaryOp, names: Names, module: str) -> SymbolValue:
        if not isinstance(node.op, ast.Not):
            return OPAQUE
        return negate(truth(self._value(node.operand, names, module)))

    def _value_ifexp(self, node: ast.IfExp, names: Names, module: str) -> SymbolValue:
        test, then, otherwise = self._values((node.test, node.body, node.orelse), names, module)
        return choose(truth(test), then, otherwise)

    def _value_compare(self, node: ast.Compare, names: Names, module: str) -> SymbolValue:
        sides = self._values((node.left, *node.comparators), names, module)
        return all_of(map(compare, sides, node.ops, sides[1:]))

    def _value_tuple(self, node: ast.Tuple, names: Names, module: str) -> SymbolValue:
        return tuple(self._values(node.elts, names, module))

    _value_list = _value_tuple

    def _value_set(self, node: ast.Set, names: Names, module: str) -> SymbolValue:
        return texts(self._values(node.elts, names, module))

    def _value_subscript(self, node: ast.Subscript, names: Names, module: str) -> SymbolValue:
        key = OPAQUE if isinstance(node.slice, ast.Slice) else self._value(node.slice, names, module)
        return item(self._value(node.value, names, module), node.slice, key)

    def _value_call(self, node: ast.Call, names: Names, module: str) -> SymbolValue:
        function = self._value(node.func, names, module)
        values = self._values(node.args, names, module)
        keywords = {
            each.arg: self._value(each.value, names, module) for each in node.keywords if each.arg is not None
        }
        called = ast.unparse(node.func)
        name = function.node.name if isinstance(function, LocalFunction) else called.rsplit(".", 1)[-1]
        compared = _comparing_call(name, values)
        if compared is not None:
            return compared
        if not isinstance(function, LocalFunction):
            known = self._known_call(function, called, values)
            if known is not None:
                return known[0]
        return self._call_value(function, values, keywords)

    # Calls

    def _known_call(
        self, function: SymbolValue, called: str, values: Sequence[SymbolValue]
    ) -> tuple[SymbolValue] | None:
        """Return the value of a call of a library, in a tuple; None if it is not known."""
        name, first = called.rsplit(".", 1)[-1], values[0] if values else None
        if isinstance(function, MethodOf):
            return (call_method(function.value, function.name, values),)
        if isinstance(function, PathOf) and function.path in _TRUE_ON_LINUX:
            return (ALWAYS,)
        if isinstance(function, PathOf) and not values and (device := _device(function.path)):
            return (device,)
        if name in _SAME_VERSION:
            return (str(first) if isinstance(first, float) else first,)
        if name in _PASSED_ON:
            return (next((each for each in values if isinstance(each, VersionOf | PartOf)), first),)
        name = name if name != "get" or called.endswith("environ.get") else "get of something else"
        reader = getattr(self, f"_library_{name.strip('_')}", None)
        return (reader(values),) if reader is not None else None

    def _library_getenv(self, values: Sequence[SymbolValue]) -> SymbolValue:
        if values and isinstance(values[0], str):
            self.variables.add(values[0])
        return values[1] if len(values) > 1 else None

    _library_get = _library_getenv

    def _library_system(self, _values: Sequence[SymbolValue]) -> SymbolValue:
        return "Linux"

    def _library_find_spec(self, values: Sequence[SymbolValue]) -> SymbolValue:
        return SpecOf(values[0]) if values and isinstance(values[0], str) else OPAQUE

    def _library_version(self, values: Sequence[SymbolValue]) -> SymbolValue:
        if not values or not isinstance(values[0], str):
            return OPAQUE
        package = distribution_of(values[0])
        self._needs.append(Installed(package))
        return VersionOf(package)

    _library_get_distribution = _library_version

    def _library_import_module(self, values: Sequence[SymbolValue]) -> SymbolValue:
        if not values or not isinstance(values[0], str):
            return OPAQUE
        self._need(values[0])
        return PathOf(values[0])

    def _library_packages_distributions(self, _values: Sequence[SymbolValue]) -> SymbolValue:
        return DistributionTable()

    def _library_bool(self, values: Sequence[SymbolValue]) -> SymbolValue:
        return truth(values[0]) if values else NEVER

    def _library_hasattr(self, values: Sequence[SymbolValue]) -> SymbolValue:
        match values:
            case [PathOf(path), str(name)]:
                whole = f"{path}.{name}"
                return ALWAYS if whole in _TRUE_ON_LINUX else _there(whole)
            case _:
                return OPAQUE

    def _library_getattr(self, values: Sequence[SymbolValue]) -> SymbolValue:
        match values:
            case [PathOf(path), "__version__", *_]:
                return VersionOf(distribution_of(path))
            case [PathOf(path), str(name)]:
                return PathOf(f"{path}.{name}")
            case [PathOf(path), str(name), default]:
                return Choice(_there(f"{path}.{name}"), PathOf(f"{path}.{name}"), default)
            case _:
                return OPAQUE

    def _library_callable(self, values: Sequence[SymbolValue]) -> SymbolValue:
        """Read `callable(getattr(torch.npu, "is_available", None))`, which asks whether the name is there."""
        match values:
            case [Choice(condition, PathOf(), None)]:
                return condition
            case _:
                return OPAQUE

    def _library_any(self, values: Sequence[SymbolValue]) -> SymbolValue:
        return any_of(map(truth, values[0])) if values and isinstance(values[0], tuple) else OPAQUE

    def _library_all(self, values: Sequence[SymbolValue]) -> SymbolValue:
        return all_of(map(truth, values[0])) if values and isinstance(values[0], tuple) else OPAQUE

    def _library_offers(self, values: Sequence[SymbolValue]) -> SymbolValue:
        """Read the guard `__offers__('torch._six.inf')`, which stands for a `try` around imports."""
        if not values or not isinstance(values[0], str) or self.modules.owns(values[0]):
            return OPAQUE
        if values[0].split(".")[0] in sys.stdlib_module_names:
            return OPAQUE
        return all_of((Installed(distribution_of(values[0])), HasName(values[0])))

    def _call_value(
        self, function: SymbolValue, values: Sequence[SymbolValue], keywords: Mapping[str, SymbolValue]
    ) -> SymbolValue:
        if isinstance(function, LocalFunction):
            result = self._inlined(function, values, keywords)
            if _PACKAGE_CHECK.fullmatch(function.node.name):
                result = _package_check(result, (*values, *keywords.values()))
            return result if values or keywords else as_floor(result)
        if isinstance(function, PathOf):
            named = named_predicate(function.path, (*values, *keywords.values()))
            if isinstance(named, Installed) and keywords.get("return_version") == ALWAYS:
                return named, VersionOf(named.package)
            bare = named is not None and not values and not keywords
            return (self.foreign(function.path) if bare else None) or named or OPAQUE
        return OPAQUE

    def _inlined(
        self, function: LocalFunction, values: Sequence[SymbolValue], keywords: Mapping[str, SymbolValue]
    ) -> SymbolValue:
        """Execute a function of the package with these arguments."""
        if self._depth >= _DEEPEST:
            return OPAQUE
        self._depth += 1
        names = self._parameters(function, values, keywords)
        in_function, self._in_function = self._in_function, True
        result = self._run(function.node.body, names, function.module)
        self._depth, self._in_function = self._depth - 1, in_function
        return _returned(result)

    def parameters(
        self, function: LocalFunction, values: Sequence[SymbolValue], keywords: Mapping[str, SymbolValue]
    ) -> Names:
        """Return a function's parameters, bound to the arguments or to their defaults."""
        self._fuel, self._depth = _FUEL, 0
        return self._parameters(function, values, keywords)

    def _parameters(
        self, function: LocalFunction, values: Sequence[SymbolValue], keywords: Mapping[str, SymbolValue]
    ) -> Names:
        arguments = function.node.args
        parameters = [*arguments.posonlyargs, *arguments.args]
        named = [*parameters, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        names: Names = {each.arg: OPAQUE for each in named if each is not None}
        defaults = zip(reversed(parameters), reversed(arguments.defaults), strict=False)
        keyword_defaults = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for parameter, default in (*defaults, *keyword_defaults):
            if default is not None:
                names[parameter.arg] = self._value(default, {}, function.module)
        names.update(zip((each.arg for each in parameters), values, strict=False))
        names.update(keywords)
        return names


def _comparing_call(name: str, values: Sequence[SymbolValue]) -> Condition | None:
    """Read `compare_versions("torch", ">=", "2.0")` and `is_torch_version(">=", "2.0")`."""
    match values:
        case [str(package), str(op), str(bound)] if op in FLIPPED:
            return Compared(distribution_of(package), op, bound)
        case [VersionOf(package), str(op), str(bound)] if op in FLIPPED:
            return Compared(package, op, bound)
        case [str(op), str(bound)] if op in FLIPPED and (found := re.fullmatch(r"_?is_(\w+?)_version", name)):
            return Compared(distribution_of(found[1]), op, bound)
        case _:
            return None


def _package_check(result: SymbolValue, values: Sequence[SymbolValue]) -> SymbolValue:
    """Return what `_is_package_available("torch", return_version=True)` means, however it is written."""
    match result, values:
        case (tuple() as pair, [str(module), *_]) if len(pair) == _PAIR and pair[1] is not None:
            package = distribution_of(module)
            return Installed(package), VersionOf(package)
        case (found, [str(module)]) if not isinstance(found, tuple):
            installed = Installed(distribution_of(module))
            return installed if truth(found) in (UNREADABLE, all_of((installed, UNREADABLE))) else result
        case _:
            return result


def _returned(outcome: _Outcome) -> SymbolValue:
    return None if isinstance(outcome, _Falls) else OPAQUE if isinstance(outcome, _Raises) else outcome


@lru_cache(maxsize=8192)
def _parsed(guard: str) -> ast.expr:
    return ast.parse(guard, mode="eval").body


@lru_cache(maxsize=1024)
def _script(source: str) -> tuple[ast.stmt, ...]:
    return tuple(ast.parse(source).body)


def _has_unread(condition: Condition) -> bool:
    parts = condition.of if isinstance(condition, AllOf) else (condition,)
    return UNREADABLE in parts


def _harmless(node: ast.expr) -> bool:
    """Return whether an expression statement is a constant, or only logs or warns."""
    return isinstance(node, ast.Constant) or any(word in ast.unparse(node) for word in ("log", "warn"))


def _foreign_value(path: str) -> SymbolValue:
    if path in _CONSTANTS:
        return _CONSTANTS[path]
    name = path.rsplit(".", 1)[-1]
    if name == "TYPE_CHECKING":
        return NEVER
    return VersionOf(distribution_of(path)) if name == "__version__" else PathOf(path)


def _device(path: str) -> Condition | None:
    """Return when torch says that a device is there, if the path is that of the function that says so."""
    if path == "torch.cuda.is_available":
        return Installed(CUDA)
    module, _, function = path.rpartition(".")
    return _put_into_torch(module) if function == "is_available" else None


def _there(path: str) -> Condition:
    """Return when a library has a name."""
    return _put_into_torch(path) or _put_into_torch(path.rpartition(".")[0]) or HasName(path)


def _put_into_torch(name: str) -> Condition | None:
    """Return when torch has a module of this name, if it is one that another package adds."""
    return next((Installed(package) for package, module in devices().items() if module == name), None)
