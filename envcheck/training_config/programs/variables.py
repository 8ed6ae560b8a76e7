"""Variables, attributes and imports of a followed program."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod
from collections.abc import Set as AbstractSet
from functools import reduce

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.asides import MOST_STEPS_ASIDES, Asides
from envcheck.training_config.programs.expressions import Expressions, computed
from envcheck.training_config.programs.later_settings import SetAttributes
from envcheck.training_config.programs.modules import LIBRARIES, Module, Project
from envcheck.training_config.programs.names import is_beside
from envcheck.training_config.programs.parsers import Commands, Parser
from envcheck.training_config.programs.paths import of_path
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall
from envcheck.training_config.programs.references import BoundName, Imported, Method, ModuleValue
from envcheck.training_config.programs.values import (
    ANY_CLASS,
    MISSING,
    ClassValue,
    File,
    LibraryName,
    OneOf,
    PartialText,
    PerhapsSet,
    ProjectFunction,
    Record,
    Super,
    Thing,
    Value,
    Variables,
    either,
    has_further,
    is_list,
    is_too_large,
    quoted,
    same,
    truth,
)

_OF_THE_MAIN_PROCESS = frozenset({"is_main_process", "is_local_main_process", "is_world_process_zero"})
_OF_GROUPS = frozenset({"add_command", "command", "group"})
_DTYPES = frozenset({"bfloat16", "float16", "float32", "half", "float", "float64", "int8", "uint8"})
_NAMED_AS_THEIR_VALUES = ("peft.TaskType", "peft.utils.TaskType", "peft.utils.peft_types.TaskType")
"""Enumerations of libraries in which each member has its name as its value: TaskType.SEQ_CLS is "SEQ_CLS"."""
MERGES = frozenset({
    "merge_from_file", "merge_from_list", "merge_with", "merge_with_cli", "merge_with_dotlist",
})  # fmt: skip
"""Methods of OmegaConf's and yacs' configurations that merge others into them."""

_WITH_NAMES = re.compile(r"named_(?:parameters|modules|children)\(")
_LAYERS = re.compile(r"enumerate\([\w.]+\.(?:layers?|blocks|resblocks|h)\)")

_DICTIONARY = frozenset({"get", "items", "keys", "values", "pop", "setdefault", "update", "copy"})


class CallFrame:
    """Call of a function that is being followed: what it returns, and the names that are global in it.

    `given` are the expressions that the caller gives for its parameters, `target` is the name that the caller
    assigns its result, or "".
    """

    def __init__(self, function: ProjectFunction | None) -> None:
        self.function = function
        self.given: dict[str, ast.expr] = {}
        self.target = ""
        self.returned: list[Value] = []
        self.globals: set[str] = set()
        self.path = ""


class Names(Expressions):
    """Evaluator that knows the variables of a program and its modules; calls are left to subclasses.

    `calls` are those of libraries, `unread` the packages that it depends on.
    """

    def __init__(self, project: Project) -> None:
        super().__init__()
        self.project = project
        self.calls: list[FollowedCall] = []
        self.followed: set[ast.AST] = set()  # functions and classes whose code was followed
        self.unread: set[str] = set()
        self.packages: set[str] = set()
        self.incomplete = ""
        self.bodies: set[str] = set()  # names of the project's functions that were followed
        self.about_names: set[str] = set()  # conditions that ask for the name of a parameter
        self.set_later = SetAttributes()
        self._frames: list[CallFrame] = []
        self.asides = Asides(project)
        self._aside = False  # a function is followed that leads to no training
        self.free_steps = MOST_STEPS_ASIDES  # that do not count if spent in such functions
        self._long_asides: set[ast.AST] = set()  # of them, those that are too long
        self._waiting: list[ProjectFunction] = []  # functions given to something that may call them
        self._assigning: ast.Assign | None = None  # the assignment that is followed now
        self._calling: ast.Call | None = None  # the call of a function that is followed next
        self._iterated: dict[str, str] = {}  # the expression that each variable of a loop takes its values of
        self._path = ""
        self.program = ""  # the file that is started
        self.programs: set[str] = set()  # the files that run as programs, not as modules

    @property
    def path(self) -> str:
        """Return the file that is followed now."""
        return self._path

    @abstractmethod
    def run_module(self, module: Module) -> None:
        """Follow the statements of a module once."""

    @abstractmethod
    def set_command_line(self, words: tuple[Value, ...]) -> None:
        """Go on with another command line; the first word is the program."""

    @abstractmethod
    def call_function(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function of the project returns for the arguments."""

    # --- imports ----------------------------------------------------------------------------------

    def _module(self, scope: Variables) -> Module:
        del scope
        module = self.project.read(self._path)
        return module if module is not None else Module(self._path, ast.Module([], []))

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Variables) -> bool:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._note_package(alias.name, 0)
                package, _, last = alias.name.rpartition(".")
                if alias.asname and package:
                    scope.names[alias.asname] = Imported(package, 0, last, self._path)
                else:
                    name = alias.name.partition(".")[0]
                    scope.names[alias.asname or name] = Imported("", 0, name, self._path)
            return False
        package = node.module or ""
        if not node.level:
            self._note_package(package, 0)
        for alias in node.names:
            if alias.name == "*":
                self._import_all(package, node.level, scope)
                continue
            scope.names[alias.asname or alias.name] = Imported(package, node.level, alias.name, self._path)
        return False

    def _note_package(self, name: str, level: int) -> None:
        if not level:
            self.packages.add(name.partition(".")[0])

    def _import_all(self, package: str, level: int, scope: Variables) -> None:
        module = self.project.find(package, level, self._path)
        if module is not None:
            self.run_module(module)
            scope.names.update(
                {name: value for name, value in module.scope.names.items() if not name.startswith("_")}
            )
        elif not level and package.partition(".")[0] in LIBRARIES:
            scope.names[ANY_CLASS] = LibraryName(package)

    def resolved(self, value: Value) -> Value:
        """Return what an imported name stands for; its module is followed when the name is first used."""
        if isinstance(value, OneOf):
            result = reduce(either, map(self.resolved, value.options))
            return Unknown("one of several definitions") if result is MISSING else result
        if not isinstance(value, Imported):
            return value
        if value.found is None:
            value.found = Unknown(f"{value.name} is imported in a circle")
            value.found = self._resolve(value)
        return value.found

    def _resolve(self, value: Imported) -> Value:
        """Return what an imported name stands for, from the project or a library."""
        inside = f"{value.package}.{value.name}" if value.package else value.name
        module = (
            self.project.find(value.package, value.level, value.path)
            if value.package or value.level
            else None
        )
        if module is not None:
            self.run_module(module)
            found = module.scope.find(value.name)
            if found is not MISSING:
                return self.resolved(found)
        submodule = self.project.find(inside, value.level, value.path)
        if submodule is not None:
            return ModuleValue(submodule)
        if value.level:
            return Unknown(f"{value.name} is not in the project")
        return LibraryName(inside)

    # --- attributes -------------------------------------------------------------------------------

    def value(self, node: ast.expr | None, scope: Variables) -> Value:
        """Return the value of an expression; a part of what a library made is the library's too."""
        found = super().value(node, scope)
        if isinstance(found, Unknown) and isinstance(node, ast.Subscript):
            return made_by_library(self.value(node.value, scope)) or found
        return self.resolved(found)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:  # noqa: PLR0911, PLR0912, C901 - each kind
        """Return an attribute of a value."""
        match owner:
            case Record():
                return self._member(owner, name)
            case ModuleValue(module=module):
                self.run_module(module)
                found = module.scope.find(name)
                if found is not MISSING:
                    return self.resolved(found)
                inner = self.project.find(name, 1, module.path)
                return ModuleValue(inner) if inner is not None else computed(node)
            case LibraryName(name=library):
                is_text = library in _NAMED_AS_THEIR_VALUES or (library == "torch" and name in _DTYPES)
                return name if is_text else LibraryName(f"{library}.{name}")
            case ClassValue():
                found = self._in_class(owner, name)
                return found if found is not MISSING else computed(node)
            case OneOf(options=options):
                found = reduce(either, (self.attribute(option, name, node) for option in options))
                return computed(node) if found is MISSING else found
            case Super(owner=inner, after=after):
                found = self._inherited(inner, after, name)
                return found if found is not MISSING else LibraryName(f"super.{name}")
            case ProjectFunction() if name in _OF_GROUPS:
                return BoundName(owner, name)
            case ProjectFunction():  # such as train.remote
                self._waiting.append(owner)
                return computed(node)
            case Thing() if name in _OF_THE_MAIN_PROCESS:
                return True
            case Thing(given=dict() as settings) if name in settings:
                self._name_used(name, node)
                return settings[name]
            case str() if (of_owner := of_path(owner, name)) is not MISSING:
                return of_owner
            case str() | PartialText() | File() | Parser() | Commands() | Thing():
                self._name_used(name, node)
                return BoundName(owner, name)
            case _:
                self._name_used(name, node)
                return computed(node) if isinstance(node, ast.expr) else Unknown(f"{name} is computed")

    def _name_used(self, name: str, node: ast.AST) -> None:
        """Record the name of an attribute of something that is not known."""
        if name not in ("requires_grad", "requires_grad_") and isinstance(
            getattr(node, "ctx", None), ast.Load
        ):
            self.names.add(name)

    def _member(self, owner: Record, name: str) -> Value:
        """Return an attribute of a record: an item, or a member of its class."""
        if owner.role == "dict":
            return Method(owner, name)
        if name in owner.items:
            self.read_items.add(name)
            return self.resolved(owner.items[name])
        if owner.made_from is not None:
            found = self._in_class(owner.made_from, name, owner)
            if found is not MISSING:
                return found
        if owner.role == "namespace" and name in _DICTIONARY | MERGES:
            return Method(owner, name)
        as_dictionary = Record(owner.items, rest=owner.rest, born=owner.born)
        found = as_dictionary if name == "__dict__" else owner.get(name)
        if found is MISSING:
            self.names.add(name)
            return Unknown(f"{name} is computed when the program runs")
        return found

    def _in_class(self, cls: ClassValue, name: str, owner: Value = None) -> Value:
        """Return a member of a class or its bases; a method is bound to `owner`, a property is followed."""
        for each in cls.lineage():
            if not isinstance(each, ClassValue) or name not in each.members:
                continue
            found = each.members[name]
            if not isinstance(found, ProjectFunction):
                return self.resolved(found)
            marks = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in found.marks}
            if "staticmethod" in marks:
                return found
            bound = ProjectFunction(
                found.node,
                found.module,
                found.scope,
                cls if "classmethod" in marks else owner,
                each,
                marks=found.marks,
            )
            if owner is not None and marks & {"property", "cached_property"}:
                return self.call_function(bound, Arguments((), ()))
            return bound
        return MISSING

    def _inherited(self, owner: Value, after: ClassValue | None, name: str) -> Value:
        """Return a member that `super()` finds."""
        cls = owner.made_from if isinstance(owner, Record) else owner
        if not isinstance(cls, ClassValue):
            return MISSING
        lineage = cls.lineage()
        start = next((i + 1 for i, each in enumerate(lineage) if each is after), 1)
        for each in lineage[start:]:
            if isinstance(each, ClassValue) and name in each.members:
                found = each.members[name]
                if isinstance(found, ProjectFunction):
                    return ProjectFunction(
                        found.node, found.module, found.scope, owner, each, marks=found.marks
                    )
                return self.resolved(found)
        return MISSING

    # --- assignments ------------------------------------------------------------------------------

    def bind(self, target: ast.expr, value: Value, scope: Variables) -> None:
        """Give a value to the target of an assignment."""
        match target:
            case ast.Name(id=name):
                frame = self._frames[-1] if self._frames else None
                if frame is not None and name in frame.globals:
                    scope = _outermost(scope)
                scope.set(name, value, self.conditions)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = value if is_list(value) and not has_further(value) else ()
                fits = len(values) == len(parts) and not any(isinstance(each, ast.Starred) for each in parts)
                made = made_by_library(value)
                for index, part in enumerate(parts):
                    inner = values[index] if fits else made if made is not None else computed(part)
                    self.bind(part, inner, scope)
            case ast.Starred(value=inner):
                self.bind(inner, computed(inner), scope)
            case ast.Attribute(value=owner, attr=name):
                self._set_attribute(self.value(owner, scope), target, value)
            case ast.Subscript(value=owner, slice=key):
                held, name = self.value(owner, scope), self.value(key, scope)
                if isinstance(held, Record) and isinstance(name, str):
                    self.put(held, name, value)
                elif isinstance(held, Record):
                    held.rest = held.rest or "a computed key of it is set"
            case _:
                pass

    def _set_attribute(self, owner: Value, target: ast.Attribute, value: Value) -> None:
        name = target.attr
        if isinstance(owner, Record) and owner.role != "dict":
            self.put(owner, name, value)
            self.set_later.add(owner, target, self._path)
            return
        if isinstance(owner, Thing) and owner.given is not None:
            owner.given[name] = self._settled(owner.given.get(name, MISSING), value, owner.born)
            self.set_later.add(owner, target, self._path)
        if isinstance(owner, ModuleValue):
            owner.module.scope.names[name] = value
            return
        if isinstance(owner, LibraryName) and (owner.name, name) == ("sys", "argv") and is_list(value):
            self.set_command_line(value)
            return
        if isinstance(owner, ClassValue):
            owner.members[name] = Unknown("it is set under a condition") if self.conditions else value
        if name == "requires_grad":
            self._note_trainable(target, value)
        elif truth(value) is not False:
            self.names.add(name)

    def _note_trainable(self, target: ast.Attribute, value: Value) -> None:
        """Record `parameter.requires_grad = value` as the call that does the same."""
        owner = self.owner_outside(self.spelled_outside(target.value))
        if is_beside(owner):
            return
        given = value if isinstance(value, bool) else None
        conditions = tuple(self.conditions)
        assigned = self._assigning.value if self._assigning is not None else None
        if given is None and assigned is not None and self.asks_for_names(assigned):
            self.about_names.add(quoted(assigned))  # `parameter.requires_grad = "lora" in name`
            given, conditions = False, (*conditions, quoted(assigned))
        function = ast.copy_location(ast.Attribute(target.value, "requires_grad_", ast.Load()), target)
        call = ast.copy_location(ast.Call(function, [], []), target)
        self.calls.append(
            FollowedCall("requires_grad_", owner, call, self._path, Arguments((given,), ()), conditions)
        )
        if given is not True:
            self.names.add("requires_grad")

    def owner_outside(self, owner: str) -> str:
        """Return an owner with the name of the object in front that a call around it makes beside the model.

        So `self.model` in the class of `reference = Policy(trainable=False)` is a part of `reference`.
        """
        made = next((frame.target for frame in self._frames if is_beside(frame.target)), "")
        return f"{made}.{owner}" if made else owner

    def asks_for_names(self, node: ast.expr) -> bool:
        """Return whether an expression depends on the name of a parameter that a loop goes through.

        Each operand of `and` and `or` has to: a switch of the program may decide the whole otherwise.
        """
        named = {name for name, source in self._iterated.items() if _WITH_NAMES.search(source)}
        counted = {name for name, source in self._iterated.items() if _LAYERS.fullmatch(source)}
        return (bool(named) and _asks_for(node, named)) or (bool(counted) and _is_of_some(node, counted))

    def _spelled_owner(self, node: ast.expr) -> str:
        """Return an expression as it is written; for the variable of a loop, what the loop goes through."""
        return self._iterated.get(node.id, node.id) if isinstance(node, ast.Name) else quoted(node)

    def spelled_outside(self, node: ast.expr) -> str:
        """Return an expression as the code spells it that first has the object.

        What a function is given is spelled as its caller does. In a function for a model beside the one that
        is trained, such as `ref_model = load_reference()`, the name of that is put before it.
        """
        text = self._of_loop(node.id if isinstance(node, ast.Name) else quoted(node))
        for frame in reversed(self._frames):
            root, dot, rest = text.partition(".")
            if root in frame.given:
                text = self._of_loop(f"{quoted(frame.given[root])}{dot}{rest}")
            elif frame.function is not None and root not in ("self", "cls"):
                beside = [each for each in (frame.function.name, frame.target) if is_beside(each)]
                return ".".join((*beside[:1], text))
            else:
                break
        return text

    def _of_loop(self, text: str) -> str:
        """Return an expression with what a loop goes through in place of the loop's variable."""
        seen: set[str] = set()
        while (root := text.partition(".")[0]) in self._iterated and root not in seen:
            seen.add(root)
            text = f"{self._iterated[root]}{text[len(root) :]}"
        return text

    def put(self, record: Record, name: str, value: Value) -> None:
        """Set an item of a record; one that is set under an undecided condition is not known afterwards."""
        if isinstance(value, tuple | Record) and is_too_large(value):
            value = Unknown("it is too large")
        record.items[name] = self._settled(record.items.get(name, MISSING), value, record.born)

    def _settled(self, before: Value, value: Value, born: int) -> Value:
        """Return what an item is after it was set, perhaps under a condition that is not decided."""
        if len(self.conditions) > born and not same(before, value):
            why = f"it is set only where {self.conditions[born]}"
            return PerhapsSet(why) if before is MISSING or isinstance(before, PerhapsSet) else Unknown(why)
        return value


def made_by_library(value: Value) -> Thing | None:
    """Return what stands for a part of something that a library made, or None."""
    if isinstance(value, BoundName):
        value = value.owner
    if isinstance(value, LibraryName):
        return Thing(value.name)
    return Thing(value.maker) if isinstance(value, Thing) else None


def _outermost(scope: Variables) -> Variables:
    while scope.around is not None:
        scope = scope.around
    return scope


def _is_of_some(node: ast.expr, counted: AbstractSet[str]) -> bool:
    """Return whether a condition holds for the first layers that a loop counts, such as `i < 10`.

    With a number that is not known, it may hold for none.
    """
    match node:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Lt()], comparators=[ast.Constant(value=int() as end)]
        ):
            return name in counted and end > 0
        case ast.Compare(left=ast.Name(id=name), ops=[ast.LtE()], comparators=[ast.Constant(value=int())]):
            return name in counted
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.Lt()],
            comparators=[
                ast.BinOp(left=ast.Call(func=ast.Name(id="len")), op=ast.Sub(), right=ast.Constant())
            ],
        ):
            return name in counted
        case _:
            return False


def _asks_for(node: ast.expr, names: AbstractSet[str]) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return all(_asks_for(each, names) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _asks_for(operand, names)
        case ast.IfExp(test=test):
            return _asks_for(test, names)
        case _:
            return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))
