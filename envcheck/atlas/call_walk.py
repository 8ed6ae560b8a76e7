"""Follow the calls of one entry through its release to the keyword arguments that other packages receive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from envcheck.atlas.called import ClassPatch, KeywordDemand, KeywordUse, SelfCall
from envcheck.atlas.code_summary import (
    SELF,
    SUPER,
    UNLESS_RAISED,
    CodeCall,
    CodeImport,
    CodePatch,
    FunctionCode,
    Parameters,
    if_given,
)
from envcheck.atlas.conditions import ALWAYS, UNREADABLE, Condition, all_of, decide
from envcheck.atlas.definitions import (
    Definition,
    Definitions,
    ForeignPath,
    FoundMethod,
    OwnClass,
    OwnFunction,
    is_dataclass,
    keeps_signature,
)
from envcheck.atlas.demands import Demand, Demanded, DemandKind, this_stack
from envcheck.atlas.entries import BY_CONSTRUCTOR, CONSTRUCTING, CallEntry, called_on
from envcheck.atlas.function_patches import is_original
from envcheck.atlas.instance_members import has_to_have
from envcheck.atlas.python_names import is_of_python, lacking_in
from envcheck.atlas.walk_conditions import asks_a_class, is_opaque, survived
from envcheck.core.facts import Tri

_DEEPEST = 14
_MOST_FRAMES = 4000


@dataclass(frozen=True)
class _Frame:
    """Hold a function that runs: its module, the class of `self`, and where its owner is among the bases.

    `through` holds the methods of the entry's object that led here, if this is one of them. `given` holds
    the parameters that are methods of the object, `classes` those that are classes of other packages.
    `rest` holds the keywords in its `**kwargs`, each with the file and line that passes it.
    """

    module: str
    function: FunctionCode
    receiver: OwnClass | None = None
    position: int = -1
    condition: Condition = ALWAYS
    depth: int = 0
    loops: bool = False
    through: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    classes: tuple[tuple[str, str], ...] = ()
    rest: tuple[tuple[str, str], ...] = ()


@dataclass
class CallWalk:
    """Walk the calls of one entry.

    Attributes:
        code: the definitions of the release.
        entry: what a user calls.
        usual: patterns of tests that are true in nearly every run, though no version decides them.
        self_calls: the calls of the object's own methods that were met.
        imports: the imports from other packages that were met.
        attributes: the names in modules of other packages that were met, as `torch.accelerator`, and the
            attributes of their objects, as `self.accelerator.parallelism_config`.

    """

    code: Definitions
    entry: CallEntry
    usual: tuple[str, ...] = ()
    self_calls: list[SelfCall] = field(default_factory=list)
    imports: list[Demand] = field(default_factory=list)
    attributes: list[Demand] = field(default_factory=list)
    patches: list[ClassPatch] = field(default_factory=list)
    _given: list[tuple[OwnClass, Condition, int]] = field(default_factory=list)
    _action: str = ""
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _frames: int = 0

    def read(self) -> Iterator[KeywordDemand]:
        """Yield the keyword arguments that the entry passes to other packages."""
        definition = self.code.path(self.entry.path)
        self._action = f"{self.entry.path}(...)"
        if isinstance(definition, OwnFunction):
            yield from self._run(_Frame(definition.module, definition.code))
        if not isinstance(definition, OwnClass):
            return
        by_base = [name for name, action in self.entry.methods.items() if action == BY_CONSTRUCTOR]
        for name in (*CONSTRUCTING, *by_base):
            yield from self._method(definition, name, _root(through=(name,)))
        for name, action in self.entry.methods.items():
            if action != BY_CONSTRUCTOR:
                self._action = f"{self.entry.path}.{action}(...)"
                yield from self._method(definition, name, _root(loops=True, through=(name,)))
        for owner, condition, depth in tuple(self._given):
            for name, action in called_on(owner.code.name).items():
                if action in self.entry.methods.values():
                    self._action = f"{self.entry.path}.{action}(...)"
                    yield from self._method(owner, name, _root(condition, depth, loops=True))

    def run(self, definition: Definition) -> None:
        """Follow a function, or the constructor of a class, for its imports and attributes alone."""
        nothing = CodeCall("", (), (), (), 0)
        for _ in self._on(definition, nothing, _root(), ALWAYS):
            pass

    def _run(self, frame: _Frame) -> Iterator[KeywordDemand]:
        receiver = f"{frame.receiver.module}.{frame.receiver.code.name}" if frame.receiver else ""
        key = (
            f"{frame.module}.{frame.function.name}:{frame.function.line}",
            frame.position,
            receiver,
            frame.condition,
            frame.given,
            frame.classes,
            frame.rest,
        )
        self._frames += 1
        if key in self._seen or frame.depth > _DEEPEST or self._frames > _MOST_FRAMES:
            return
        self._seen.add(key)
        for each in frame.function.imported:
            self._import(each, frame)
        for patch in frame.function.patches:
            self._patch(patch, frame)
        for call in frame.function.calls:
            condition = self._condition(call, frame)
            if decide(condition, this_stack()) is not Tri.NO and not is_opaque(condition):
                self._attribute(call, frame, condition)
                yield from self._call(call, frame, condition)

    def _attribute(self, call: CodeCall, frame: _Frame, condition: Condition) -> None:
        """Note a name in a module of another package, up to the first class in the path."""
        root, _, rest = call.target.partition(".")
        known_locally = frame.function.imports.get(root)
        if not rest or call.optional or (root in frame.function.locals and known_locally is None):
            return
        modules = self.code.offers.modules
        summary = modules.summary(frame.module)
        origin = known_locally or (summary.imports.get(root) if summary else None)
        if origin is None or origin.level or origin.name[:1].isupper() or modules.owns(origin.module):
            return
        if is_of_python(origin.module) and not lacking_in(
            ".".join(filter(None, (origin.module, origin.name, rest)))
        ):
            return
        if known_locally is None and summary is not None:
            if root in summary.rebound:
                return
            imported = self.code.offers.guards.together(origin.guards, frame.module)
            condition = all_of((condition, imported))
        names: list[str] = []
        for name in rest.split("."):
            names.append(name)
            if name[:1].isupper():
                break
        *base, last = filter(None, (origin.module, origin.name, *names))
        what = Demanded(DemandKind.ATTRIBUTE, ".".join(base), last)
        place = f"{modules.path(frame.module)}:{call.line}"
        self.attributes.append(Demand(what, self._action, condition, place))

    def _member(
        self,
        owner: Definition,
        name: str,
        call: CodeCall,
        frame: _Frame,
        condition: Condition,
        after: int = -1,
    ) -> None:
        """Note an attribute of an object whose class is another package's, or derives from one."""
        path = "" if call.optional else has_to_have(self.code, owner, name, after)
        if path and not is_of_python(path):
            what = Demanded(DemandKind.MEMBER, path, name)
            place = f"{self.code.offers.modules.path(frame.module)}:{call.line}"
            self.attributes.append(Demand(what, self._action, condition, place))

    def _import(self, line: CodeImport, frame: _Frame) -> None:
        """Note an import from another package."""
        module = self.code.offers.modules.resolve(frame.module, line.origin.level, line.origin.module)
        if line.origin.level or self.code.offers.modules.owns(module):
            return
        if is_of_python(module) and not lacking_in(module, line.origin.name):
            return
        condition = self._condition(line, frame)
        if decide(condition, this_stack()) is not Tri.NO and not is_opaque(condition):
            kind = DemandKind.NAME if line.origin.name else DemandKind.MODULE
            what = Demanded(kind, module, line.origin.name)
            place = f"{self.code.offers.modules.path(frame.module)}:{line.line}"
            self.imports.append(Demand(what, self._action, condition, place))

    def run_body(self, module: str, condition: Condition = ALWAYS) -> None:
        """Follow the statements of a module that set attributes of classes."""
        body = self.code.file(module).body
        if body is not None:
            for _ in self._run(_Frame(module, body, condition=condition)):
                pass

    def _patch(self, patch: CodePatch, frame: _Frame) -> None:
        """Note an attribute of another package's class that is set."""
        root, _, rest = patch.owner.partition(".")
        if root in dict(frame.classes):
            path = ".".join(filter(None, (dict(frame.classes)[root], rest)))
        else:
            owner = self._expression(frame, patch.owner)
            path = owner.path if isinstance(owner, ForeignPath) else ""
        guards = tuple(each for each in patch.guards if not is_original(each, patch.owner, patch.name))
        condition = self._condition(replace(patch, guards=guards), frame)
        if not path or decide(condition, this_stack()) is Tri.NO:
            return
        file, line, parameters = self.code.offers.modules.path(frame.module), patch.line, patch.parameters
        value = self._expression(frame, patch.value) if patch.value and parameters is None else None
        if isinstance(value, OwnFunction) and keeps_signature(value.code):
            file, line = self.code.offers.modules.path(value.module), value.code.line
            parameters = value.code.parameters.bound()
        copied = patch.copied and parameters is None
        self.patches.append(
            ClassPatch(path, patch.name, parameters, copied, self._action, condition, f"{file}:{line}")
        )

    def _condition(self, call: CodeCall | CodeImport | CodePatch, frame: _Frame) -> Condition:
        if call.looped and not frame.loops:
            return UNREADABLE
        parts = [frame.condition]
        passed = {if_given(name) for name, _ in frame.given}
        for guard in call.guards:
            if guard in passed or any(fnmatchcase(guard, each) for each in self.usual):
                continue
            test = self.code.offers.guards.condition(guard.removeprefix(UNLESS_RAISED), frame.module)
            if asks_a_class(test):
                test = UNREADABLE
            parts.append(survived(test) if guard.startswith(UNLESS_RAISED) else test)
        return all_of(parts)

    # Targets

    def _call(self, call: CodeCall, frame: _Frame, condition: Condition) -> Iterator[KeywordDemand]:
        root, _, rest = call.target.partition(".")
        if not rest and root in dict(frame.given):
            call, root, rest = (
                replace(call, target=f"{SELF}.{dict(frame.given)[root]}"),
                SELF,
                dict(frame.given)[root],
            )
        if root in (SELF, SUPER, "cls"):
            if frame.receiver is not None:
                yield from self._on_receiver(call, frame, condition, rest)
            return
        known = frame.function.annotated.get(root) or frame.function.made.get(root)
        if known is not None and rest and "." not in rest:
            self._member(self._expression(frame, known), rest, call, frame, condition)
        if root in frame.function.made and rest and "." not in rest and not call.read:
            definition = self._expression(frame, frame.function.made[root])
            yield from self._on_instance(definition, rest, call, frame, condition)
            return
        local = frame.function.imports.get(root)
        if call.read or (root in frame.function.locals and local is None):
            return
        yield from self._on(self.code.expression(frame.module, call.target, local), call, frame, condition)

    def _expression(self, frame: _Frame, text: str) -> Definition:
        root = text.split(".", maxsplit=1)[0]
        local = frame.function.imports.get(root)
        if root in frame.function.locals and local is None:
            return None
        return self.code.expression(frame.module, text, local)

    def _on(
        self, definition: Definition, call: CodeCall, frame: _Frame, condition: Condition
    ) -> Iterator[KeywordDemand]:
        """Call a function, or make an instance of a class."""
        if isinstance(definition, ForeignPath):
            yield from self._demands(definition.path, "", call, frame, condition)
        elif isinstance(definition, OwnFunction):
            classes = tuple(self._given_classes(call, definition.code.parameters, frame))
            yield from self._run(
                _Frame(
                    definition.module,
                    definition.code,
                    condition=condition,
                    depth=frame.depth + 1,
                    classes=classes,
                    rest=_left_over(self._handed(call, frame), definition.code),
                )
            )
        elif isinstance(definition, OwnClass):
            yield from self._construct(definition, call, frame, condition)

    def _construct(
        self, owner: OwnClass, call: CodeCall, frame: _Frame, condition: Condition
    ) -> Iterator[KeywordDemand]:
        """Make an instance of a class, whose constructor another package may define."""
        found = self.code.constructor(owner)
        if found is not None and isinstance(found.owner, ForeignPath):
            yield from self._demands(found.owner.path, "__init__", call, frame, condition)
        if called_on(owner.code.name):
            self._given.append((owner, condition, frame.depth + 1))
        rest = self._handed(call, frame) if found is not None else ()
        for name in CONSTRUCTING:
            start = _root(condition, frame.depth + 1, rest=rest if name == "__init__" else ())
            yield from self._method(owner, name, start)

    def _given_classes(
        self, call: CodeCall, parameters: Parameters, frame: _Frame
    ) -> Iterator[tuple[str, str]]:
        """Yield the parameters of a called function that receive classes of other packages, and the paths."""
        positional = parameters.positional
        for place, text in call.classes:
            definition = self._expression(frame, text)
            if isinstance(definition, ForeignPath):
                if not isinstance(place, int):
                    yield place, definition.path
                elif place < len(positional):
                    yield positional[place], definition.path

    def _on_receiver(
        self, call: CodeCall, frame: _Frame, condition: Condition, rest: str
    ) -> Iterator[KeywordDemand]:
        """Call `self.method`, `super().method` or `self.attribute.method`."""
        receiver = frame.receiver
        if receiver is None:
            return
        name, _, method = rest.partition(".")
        if call.target.startswith(SUPER):
            found = self.code.method(receiver, name, frame.position)
            if found is None or method:
                return
            if found.method is None and isinstance(found.owner, ForeignPath):
                self._member(receiver, name, call, frame, condition, frame.position)
                yield from self._demands(found.owner.path, name, call, frame, condition)
            else:
                start = _root(
                    condition, frame.depth + 1, through=frame.through, rest=self._handed(call, frame)
                )
                yield from self._method(receiver, name, start, frame.position)
        elif not method and name:
            found = self.code.method(receiver, name)
            self._note(call, frame, condition, name)
            if found is not None and found.method is None:
                self._member(receiver, name, call, frame, condition)
            if call.read and (found is None or found.method is None or not _is_property(found.method)):
                return
            if found is not None and found.method is None and isinstance(found.owner, ForeignPath):
                yield from self._demands(found.owner.path, name, call, frame, condition)
            else:
                yield from self._method(
                    receiver,
                    name,
                    _root(
                        condition,
                        frame.depth + 1,
                        loops=frame.loops and not call.read,
                        through=(*frame.through, name) if frame.through else (),
                        given=_given_methods(call, found),
                        rest=self._handed(call, frame),
                    ),
                )
        elif method and "." not in method:
            yield from self._on_attribute(receiver, name, method, call, frame, condition)

    def _on_attribute(
        self,
        receiver: OwnClass,
        name: str,
        method: str,
        call: CodeCall,
        frame: _Frame,
        condition: Condition,
    ) -> Iterator[KeywordDemand]:
        """Call `self.attribute.method`, or read an attribute of the object's attribute."""
        definition = self.code.instance(receiver, name)
        self._member(definition, method, call, frame, condition)
        if not call.read:
            yield from self._on_instance(definition, method, call, frame, condition)

    def _on_instance(
        self, definition: Definition, method: str, call: CodeCall, frame: _Frame, condition: Condition
    ) -> Iterator[KeywordDemand]:
        if isinstance(definition, ForeignPath):
            yield from self._demands(definition.path, method, call, frame, condition)
        elif isinstance(definition, OwnClass):
            start = _root(condition, frame.depth + 1, rest=self._handed(call, frame))
            yield from self._method(definition, method, start)

    def _method(
        self, receiver: OwnClass, name: str, start: _Frame, after: int = -1
    ) -> Iterator[KeywordDemand]:
        """Run a method of a class, unless another package defines it."""
        found = self.code.method(receiver, name, after)
        if found is not None and found.method is not None and isinstance(found.owner, OwnClass):
            yield from self._run(
                _Frame(
                    found.owner.module,
                    found.method,
                    receiver,
                    found.position,
                    start.condition,
                    start.depth,
                    start.loops,
                    start.through,
                    start.given,
                    rest=_left_over(start.rest, found.method),
                )
            )

    def _note(self, call: CodeCall, frame: _Frame, condition: Condition, method: str) -> None:
        if not frame.through or call.read:
            return
        place = f"{self.code.offers.modules.path(frame.module)}:{call.line}"
        self.self_calls.append(
            SelfCall(
                method,
                call.positional,
                call.keywords,
                self.entry.methods.get(frame.through[0], ""),
                frame.through,
                condition,
                place,
            )
        )

    def _demands(
        self, path: str, method: str, call: CodeCall, frame: _Frame, condition: Condition
    ) -> Iterator[KeywordDemand]:
        method = "" if method == "__init__" else method  # as where the class itself is called
        place = f"{self.code.offers.modules.path(frame.module)}:{call.line}"
        for keyword in (*call.keywords, *self._unpacked(call, frame)):
            yield KeywordDemand(KeywordUse(path, method, keyword), self._action, condition, place)
        for keyword, written in self._handed(call, frame)[len(call.keywords) :]:
            yield KeywordDemand(KeywordUse(path, method, keyword), self._action, condition, written)
        if method and call.positional > 0:
            use = KeywordUse(path, method, "", call.positional)
            yield KeywordDemand(use, self._action, condition, place)

    def _handed(self, call: CodeCall, frame: _Frame) -> tuple[tuple[str, str], ...]:
        """Return the keywords of a call, and those in the `**kwargs` that it passes on, with their lines."""
        place = f"{self.code.offers.modules.path(frame.module)}:{call.line}"
        named = tuple((keyword, place) for keyword in call.keywords)
        dropped = frame.function.dropped
        if not call.rest or dropped is None:
            return named
        return (*named, *(pair for pair in frame.rest if pair[0] not in dropped))

    def _unpacked(self, call: CodeCall, frame: _Frame) -> Iterator[str]:
        """Yield the keywords of `**self.args.config.to_dict()`, where the class of the value is known."""
        for text in call.unpacked:
            *attributes, method = text.split(".")
            owner: Definition = frame.receiver if attributes[0] == SELF else None
            for attribute in attributes[1:]:
                owner = self.code.instance(owner, attribute) if isinstance(owner, OwnClass) else None
            if isinstance(owner, OwnClass) and is_dataclass(owner.code) and "pop" not in owner.code.methods:
                found = self.code.method(owner, method)
                if found is not None and found.method is not None and found.method.returns_fields:
                    yield from sorted(self.code.fields(owner) or ())


def _root(
    condition: Condition = ALWAYS,
    depth: int = 0,
    *,
    loops: bool = False,
    through: tuple[str, ...] = (),
    given: tuple[tuple[str, str], ...] = (),
    rest: tuple[tuple[str, str], ...] = (),
) -> _Frame:
    """Return a frame with only what a called method takes over from its caller."""
    nothing = FunctionCode(name="", accepted=None)
    return _Frame("", nothing, None, -1, condition, depth, loops, through, given, rest=rest)


def _left_over(handed: tuple[tuple[str, str], ...], code: FunctionCode) -> tuple[tuple[str, str], ...]:
    """Return what of the keywords of a call ends up in the `**kwargs` of a function."""
    if not code.parameters.any_name or code.dropped is None or not keeps_signature(code):
        return ()
    return tuple(pair for pair in handed if pair[0] not in code.parameters.named)


def _given_methods(call: CodeCall, found: FoundMethod | None) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a called method that receive methods of the object, each with the method."""
    if found is None or found.method is None:
        return ()
    positional = found.method.parameters.positional
    return tuple(
        (positional[place] if isinstance(place, int) else place, method)
        for place, method in call.methods
        if not isinstance(place, int) or place < len(positional)
    )


def _is_property(code: FunctionCode) -> bool:
    return any(text.rsplit(".", 1)[-1] in ("property", "cached_property") for text in code.decorators)
