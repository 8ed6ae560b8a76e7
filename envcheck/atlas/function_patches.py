"""Read the statements of a function that set attributes of classes: `Trainer.compute_loss = compute_loss`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from envcheck.atlas.code_summary import CodePatch, FunctionCode, Parameters, if_original
from envcheck.atlas.function_body import FunctionReader, Spot, names_a_class
from envcheck.atlas.syntax import dotted

_READS_SOURCE = ("getsource", "getsourcelines")


@dataclass
class PatchReader(FunctionReader):
    """Walk the statements of a function; collect the attributes of classes that they set, too.

    Attributes:
        patches: the attributes that are set, in order.

    """

    patches: list[CodePatch] = field(default_factory=list)
    _defined: dict[str, Parameters | None] = field(default_factory=dict)
    _copied: set[str] = field(default_factory=set)

    def _read_functiondef(self, node: ast.FunctionDef, _spot: Spot) -> None:
        """Note what a function inside takes; nothing if a decorator may change that, or if it has a twin."""
        alone = node.name not in self._defined and not node.decorator_list
        self._defined[node.name] = parameters_of(node.args, bound=True) if alone else None

    def _read_assign(self, node: ast.Assign, spot: Spot) -> None:
        super()._read_assign(node, spot)
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self._patch(dotted(target.value), target.attr, node.value, spot)

    def _call(self, node: ast.Call, spot: Spot) -> None:
        super()._call(node, spot)
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), value]):
                self._patch(dotted(owner), name, value, spot)
            case ast.Call(func=function, args=[read]) if (dotted(function) or "").rsplit(".", 1)[
                -1
            ] in _READS_SOURCE:
                self._copied.add(dotted(read) or "")
            case _:
                pass

    def _patch(self, owner: str | None, name: str, value: ast.expr, spot: Spot) -> None:
        if owner is None or not names_a_class(owner):
            return
        parameters, text = None, ""
        match value:
            case ast.Lambda(args=arguments):
                parameters = parameters_of(arguments, bound=True)
            case ast.Name(id=text) if text in self._defined:
                parameters = self._defined[text]
            case _:
                text = dotted(value) or ""
        copied = f"{owner}.{name}" in self._copied
        patch = CodePatch(owner, name, text, parameters, copied, spot.guards, value.lineno, spot.looped)
        self.patches.append(patch)

    def _test(self, node: ast.expr) -> str:
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
                path = dotted(owner) or ""
                return if_original(path, name) if names_a_class(path) else super()._test(node)
            case ast.Compare(
                left=ast.Attribute(value=ast.Attribute(value=owner, attr=name), attr="__name__"),
                ops=[ast.Eq() | ast.NotEq() as comparison],
                comparators=[ast.Constant(value=str())],
            ) if names_a_class(dotted(owner) or ""):
                original = if_original(dotted(owner) or "", name)
                return original if isinstance(comparison, ast.NotEq) else f"not ({original})"
            case _:
                return super()._test(node)


def is_original(guard: str, owner: str, name: str) -> bool:
    """Return whether a guard is true unless this attribute of the class was replaced before."""
    while guard.startswith("not (not (") and guard.endswith("))"):
        guard = guard[len("not (not (") : -2]
    return guard == if_original(owner, name)


def read_module_body(tree: ast.Module) -> FunctionCode | None:
    """Return the statements of a module, as those of a function; None if they set no attribute of a class."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    whole = ast.FunctionDef(name="<module>", args=nothing, body=tree.body, decorator_list=[])
    reader = PatchReader(whole)
    reader.read()
    if not reader.patches:
        return None
    return FunctionCode(
        name=whole.name,
        accepted=frozenset(),
        imports=reader.imports,
        locals=reader.locals,
        patches=tuple(reader.patches),
    )


def parameters_of(arguments: ast.arguments, *, bound: bool) -> Parameters:
    """Return what a function takes; without its first parameter, the object, if it is bound."""
    by_position = [*arguments.posonlyargs, *arguments.args][bound:]
    by_name = [*arguments.args[bound and not arguments.posonlyargs :], *arguments.kwonlyargs]
    return Parameters(
        positional=tuple(each.arg for each in by_position),
        required=max(len(by_position) - len(arguments.defaults), 0),
        named=frozenset(each.arg for each in by_name),
        any_position=arguments.vararg is not None,
        any_name=arguments.kwarg is not None,
    )
