"""Read one Python file: the signatures of its functions and classes, and what their bodies call.

A call counts only if it certainly runs: nested functions are not entered, and a call in a `try`
that catches TypeError is left out, because its failure is expected.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from envcheck.atlas.class_objects import answers_more, assigned_to_self, sets_named
from envcheck.atlas.code_summary import ClassCode, FileCode, FunctionCode
from envcheck.atlas.function_body import made_class
from envcheck.atlas.function_patches import PatchReader, parameters_of, read_module_body
from envcheck.atlas.rest_keywords import dropped_keywords
from envcheck.atlas.syntax import dotted, is_type_checking, parsed

_FIELDS_OF_SELF = frozenset(
    {
        "asdict(self)",
        "dataclasses.asdict(self)",
        "copy.deepcopy(self.__dict__)",
        "deepcopy(self.__dict__)",
        "self.__dict__",
        "self.__dict__.copy()",
        "dict(self.__dict__)",
        "vars(self)",
    }
)
_CLASS_METHODS = ("staticmethod",)


def read_code(content: bytes, cache: MutableMapping[bytes, FileCode]) -> FileCode:
    """Return the functions and classes of a file; empty if it cannot be parsed.

    Args:
        content: the bytes of the file.
        cache: files read before, by the SHA-256 digest of their content.

    """
    digest = hashlib.sha256(content).digest()
    if digest not in cache:
        cache[digest] = _read(content)
    return cache[digest]


def _read(content: bytes) -> FileCode:
    tree = parsed(content)
    if tree is None:
        return FileCode()
    functions: dict[str, tuple[FunctionCode, ...]] = {}
    classes: dict[str, tuple[ClassCode, ...]] = {}
    assigned: set[str] = set()
    aliases: dict[str, list[str]] = {}
    replaced: set[tuple[str, str]] = set()
    for node in flat(tree.body):
        if isinstance(node, ast.Assign | ast.Delete):
            replaced |= {
                (owner, each.attr)
                for each in node.targets
                if isinstance(each, ast.Attribute) and (owner := dotted(each.value)) is not None
            }
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = (*functions.get(node.name, ()), _function(node, method=False))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = (*classes.get(node.name, ()), _class(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
            stored = {
                each.id
                for each in ast.walk(node)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            assigned |= stored
            value = dotted(node.value) if isinstance(node, ast.Assign) else None
            for name in stored:
                aliases.setdefault(name, []).append(value or "")
    return FileCode(
        functions=functions,
        classes=classes,
        assigned=frozenset(assigned),
        aliases={name: only for name, found in aliases.items() if len(found) == 1 and (only := found[0])},
        replaced=frozenset(replaced),
        body=read_module_body(tree) if replaced or b"setattr(" in content else None,
    )


def flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements; replace `if`, `try` and `with` by the statements inside them.

    Those under `if TYPE_CHECKING` never run and are left out.
    """
    for node in body:
        match node:
            case ast.If(test=test) if is_type_checking(test):
                yield from flat(node.orelse)
            case ast.If():
                yield from flat([*node.body, *node.orelse])
            case ast.Try():
                handled = [each for handler in node.handlers for each in handler.body]
                yield from flat([*node.body, *handled, *node.orelse, *node.finalbody])
            case ast.With():
                yield from flat(node.body)
            case _:
                yield node


def _function(node: ast.FunctionDef, *, method: bool) -> FunctionCode:
    decorators = tuple(ast.unparse(each) for each in node.decorator_list)
    bound = method and "staticmethod" not in decorators
    reader = PatchReader(node)
    reader.read()
    return FunctionCode(
        name=node.name,
        accepted=_accepted(node.args, bound=bound),
        decorators=decorators,
        calls=tuple(reader.calls),
        imports=reader.imports,
        locals=reader.locals,
        made=reader.made,
        returns_fields=_returns_fields(node),
        parameters=parameters_of(node.args, bound=bound),
        annotated=_annotated(node),
        line=node.lineno,
        imported=tuple(reader.imported),
        patches=tuple(reader.patches),
        dropped=dropped_keywords(node),
    )


def _annotated(node: ast.FunctionDef) -> Mapping[str, str]:
    """Return the parameters that a body does not bind anew, each with the class that its annotation names."""
    stored = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del)
    }
    return {
        each.arg: name
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if each.arg not in stored
        and each.annotation is not None
        and (name := annotated_class(each.annotation))
    }


def _accepted(arguments: ast.arguments, *, bound: bool) -> frozenset[str] | None:
    if arguments.kwarg is not None:
        return None
    named = [each.arg for each in arguments.args]
    skipped = 1 if bound and not arguments.posonlyargs else 0
    return frozenset([*named[skipped:], *(each.arg for each in arguments.kwonlyargs)])


def _returns_fields(node: ast.FunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    match body:
        case [ast.Return(value=ast.expr() as value)]:
            return ast.unparse(value) in _FIELDS_OF_SELF
        case _:
            return False


def _class(node: ast.ClassDef) -> ClassCode:
    methods: dict[str, tuple[FunctionCode, ...]] = {}
    fields: list[str] = []
    definitions: list[ast.FunctionDef] = []
    for each in flat(node.body):
        if isinstance(each, ast.FunctionDef):
            definitions.append(each)
            methods[each.name] = (*methods.get(each.name, ()), _function(each, method=True))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and _is_field(each):
            fields.append(each.target.id)
    bases = [dotted(each) for each in node.bases if not isinstance(each, ast.Subscript)]
    return ClassCode(
        name=node.name,
        bases=tuple(filter(None, bases)),
        decorators=tuple(ast.unparse(each) for each in node.decorator_list),
        methods=methods,
        fields=tuple(fields),
        made=_made_attributes(definitions),
        peculiar=bool(node.keywords) or None in bases,
        bound=frozenset(_bound(node.body)),
        attributes=frozenset(assigned_to_self(node)),
        answers_more=answers_more(node),
        sets_named=sets_named(node),
    )


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that the statements of a class bind; those inside its functions are not its own."""
    for each in flat(body):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in each.names)
        else:
            names = (node for node in ast.walk(each) if isinstance(node, ast.Name))
            yield from (node.id for node in names if isinstance(node.ctx, ast.Store))


def _is_field(node: ast.AnnAssign) -> bool:
    annotation, value = ast.unparse(node.annotation), ast.unparse(node.value) if node.value else ""
    return "ClassVar" not in annotation and "init=False" not in value


def _made_attributes(definitions: Sequence[ast.FunctionDef]) -> Mapping[str, str]:
    """Return the attributes of `self` that are only ever set to None or to instances of one class."""
    found: dict[str, set[str | None]] = {}
    for definition in definitions:
        annotated = {
            each.arg: annotation
            for each in (*definition.args.args, *definition.args.kwonlyargs)
            if each.annotation is not None and (annotation := annotated_class(each.annotation))
        }
        for node in ast.walk(definition):
            value, targets = _assigned(node)
            for target in targets:
                if not isinstance(target, ast.Attribute) or dotted(target.value) != "self":
                    continue
                if isinstance(value, ast.Constant) and value.value is None:
                    continue
                known = annotated.get(value.id) if isinstance(value, ast.Name) else None
                found.setdefault(target.attr, set()).add(known or made_class(value))
    return {
        name: only
        for name, classes in found.items()
        if len(classes) == 1 and (only := next(iter(classes))) is not None
    }


def _assigned(node: ast.AST) -> tuple[ast.expr | None, Sequence[ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            return value, targets
        case ast.AnnAssign(target=target, value=value):
            return value, [target]
        case ast.AugAssign(target=target):
            return None, [target]
        case _:
            return None, ()


def annotated_class(node: ast.expr) -> str:
    """Return the one class that an annotation names, without None; empty if there are several."""
    match node:
        case ast.Constant(value=str(text)):
            try:
                return annotated_class(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return ""
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return annotated_class(inner)
        case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
            return annotated_class(left)
        case _:
            return dotted(node) or ""
