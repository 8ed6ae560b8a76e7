"""What the functions and classes of one Python file accept and call, as plain values.

`code_file.py` makes it from the text of one file and looks at no other file. `summary.py` says what a file
does when it is imported; this says what its functions do when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from envcheck.atlas.summary import Guards, ImportOrigin

SELF = "self"
SUPER = "super()"
UNREADABLE_TEST = "__unreadable__"
"""The guard of a line that may or may not run, because its test cannot be read."""

UNLESS_RAISED = "unless raised: "
"""Prefix of the guard of a line after `if test: raise`: the line runs unless the test is known to be true."""


def if_original(owner: str, name: str) -> str:
    """Return the guard of a line that runs unless an attribute of a class was replaced before.

    Its test asks for the attribute, or compares its name with that of the replacement.
    """
    return f"{UNREADABLE_TEST}({f'{owner}.{name} is the original'!r})"


def if_given(parameter: str) -> str:
    """Return the guard of a line under `if parameter is not None`, which no other reader can evaluate."""
    return f"{UNREADABLE_TEST}({parameter!r})"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a function, without `self`.

    Attributes:
        positional: those that a call can give by position, in order.
        required: how many of them have no default.
        named: those that a call can give by name.
        any_position: there is `*args`.
        any_name: there is `**kwargs`.

    """

    positional: tuple[str, ...]
    required: int
    named: frozenset[str]
    any_position: bool = False
    any_name: bool = False

    def bound(self) -> Parameters:
        """Return the parameters of the same function as a method, without the first, the object."""
        first = self.positional[:1]
        return replace(
            self,
            positional=self.positional[1:],
            required=max(self.required - 1, 0),
            named=self.named.difference(first),
        )


@dataclass(frozen=True, slots=True)
class CodeCall:
    """Hold a call in the body of a function, or a dotted name that is read, such as `self.model`.

    Attributes:
        target: what is called, as written: `Accelerator`, `self.accelerator.unwrap_model`.
        keywords: names of keyword arguments.
        unpacked: expressions after `**` whose result is a table of fields: `self.args.config.to_dict`.
        guards: the tests that are true when the call runs; outermost first.
        line: counted from 1.
        looped: the call is in a loop, so it may never run.
        read: an attribute is read rather than called, which runs code only if it is a property.
        positional: number of positional arguments; -1 if it is not known, as in `f(*values)`.
        methods: arguments that are methods of `self`, each after its keyword or position.
        optional: a `try` around it expects that what is named may be missing.
        classes: arguments that are named as classes are, each after its keyword or position.
        rest: the function passes its own `**kwargs` on.

    """

    target: str
    keywords: tuple[str, ...]
    unpacked: tuple[str, ...]
    guards: Guards
    line: int
    looped: bool = False
    read: bool = False
    positional: int = -1
    methods: tuple[tuple[str | int, str], ...] = ()
    optional: bool = False
    classes: tuple[tuple[str | int, str], ...] = ()
    rest: bool = False


@dataclass(frozen=True, slots=True)
class CodePatch:
    """Hold one statement that sets an attribute of a class: `Trainer.compute_loss = compute_loss`.

    Attributes:
        owner: the class, as written.
        name: the attribute.
        value: the name of the function that it is set to; empty for any other value.
        parameters: what the function takes, without `self`, if it is defined in the same body.
        copied: the function around it reads the source text of what is replaced, and edits it.
        guards: the tests that are true when it runs; outermost first.
        line: counted from 1.
        looped: it is in a loop, so it may never run.

    """

    owner: str
    name: str
    value: str
    parameters: Parameters | None
    copied: bool
    guards: Guards
    line: int
    looped: bool = False


@dataclass(frozen=True, slots=True)
class CodeImport:
    """One import in the body of a function, unless a `try` expects it to fail.

    Attributes:
        origin: what is imported; the name is empty for `import a.b`.
        guards: the tests that are true when it runs.
        line: counted from 1.
        looped: it is in a loop, so it may never run.

    """

    origin: ImportOrigin
    guards: Guards
    line: int
    looped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCode:
    """Hold one function or method.

    Attributes:
        name: its name.
        accepted: names that it takes as keywords, without `self`; None if it takes any (`**kwargs`).
        decorators: as written, outermost first.
        calls: what its body calls, in order.
        imports: names that its body imports.
        locals: names that its body or its parameters bind; they hide those of the module.
        made: local names that hold an instance, with the expression of its class.
        returns_fields: the method returns all fields of its object as a dictionary, as `asdict(self)` does.
        parameters: what it takes.
        annotated: parameters that the body does not bind anew, each with the class that its annotation names.
        line: of its name, counted from 1.
        imported: the imports that surely run if their guards are true.
        patches: the attributes of classes that its body sets.
        dropped: keywords that its body may take out of its `**kwargs`; None if it has none, or may change
            them in another way.

    """

    name: str
    accepted: frozenset[str] | None
    decorators: tuple[str, ...] = ()
    calls: tuple[CodeCall, ...] = ()
    imports: Mapping[str, ImportOrigin] = field(default_factory=dict)
    locals: frozenset[str] = frozenset()
    made: Mapping[str, str] = field(default_factory=dict)
    returns_fields: bool = False
    parameters: Parameters = Parameters((), 0, frozenset())
    annotated: Mapping[str, str] = field(default_factory=dict)
    line: int = 0
    imported: tuple[CodeImport, ...] = ()
    patches: tuple[CodePatch, ...] = ()
    dropped: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCode:
    """One class.

    Attributes:
        name: its name.
        bases: as written.
        decorators: as written.
        methods: each name with all of its definitions.
        fields: annotated names in its body that a dataclass would take as arguments.
        made: attributes of `self` that always hold an instance of one class, with its expression.
        peculiar: it has a metaclass, or a base that is not a name, so its constructor cannot be read.
        bound: names that its body binds.
        attributes: names that its methods assign to `self`.
        answers_more: its objects may have attributes that nothing in the file names, as with `__getattr__`.
        sets_named: a method sets attributes by names that are values, as in `setattr(self, name, …)`.

    """

    name: str
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    methods: Mapping[str, tuple[FunctionCode, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    peculiar: bool = False
    bound: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    answers_more: bool = False
    sets_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCode:
    """Hold the functions and classes of one file; each name with all of its definitions.

    Attributes:
        functions: functions at module level.
        classes: classes at module level.
        assigned: names at module level that a statement assigns.
        aliases: those that one statement alone assigns, and to a dotted name: `Client = _Client`.
        replaced: attributes of names that a statement at module level deletes or sets: `del Base.__init__`.
        body: its statements at module level, if one sets an attribute of a class.

    """

    functions: Mapping[str, tuple[FunctionCode, ...]] = field(default_factory=dict)
    classes: Mapping[str, tuple[ClassCode, ...]] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    replaced: frozenset[tuple[str, str]] = frozenset()
    body: FunctionCode | None = None
