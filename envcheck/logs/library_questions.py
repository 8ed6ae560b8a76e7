"""Questions that the exception of a failure asks the knowledge about published libraries. Pure.

Either a library raised it itself, and its message is one of those that its code holds; or Python raised it
for an attribute that an object lacks, or for parameters that a function does not take.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from envcheck.core.sanitize import hide_secrets
from envcheck.logs.events import Event, Frame, Raised, without_wrapper
from envcheck.logs.own_code import is_pythons_own

_ATTRIBUTE = re.compile(
    r"(?:(?:type object )?'(?P<owner>\w+)'(?: object)?|(?P<class>[A-Z]\w+)) has no attribute "
    r"'?(?P<name>\w+)'?"
)
"""Message of Python, or of a class's own `__getattr__`: `BertTokenizer has no attribute encode_plus`."""

_BARE_ATTRIBUTE = re.compile(r"[a-z_]\w{3,}$")
"""Message of `del model.x`, which names the attribute alone."""

_CALL = re.compile(
    r"(?P<function>\w+(?:\.\w+)?)\(\) (?:"
    r"takes (?:from )?\d+ (?:to \d+ )?positional arguments? but (?P<given>\d+) (?:was|were) given"
    r"|missing \d+ required (?:positional|keyword-only) arguments?: "
    r"|got an unexpected keyword argument '(?P<keyword>\w+)'"
    r"|got multiple values for argument )"
)
_REFUSED_FIELD = re.compile(r"Unexpected keyword argument '(\w+)'$")
"""Message of msgspec, whose classes, such as vLLM's SamplingParams, do not name themselves."""

_MADE = re.compile(r"\b([A-Z]\w+)\(")
"""The class of which a line of code makes an object."""

_VALIDATED = re.compile(r"(?P<word>Value error|Assertion failed), (?P<message>.*?)(?: \[type=|$)")
_VALIDATED_AS = {"Value error": "ValueError", "Assertion failed": "AssertionError"}

_UNDEFINED = re.compile(r"(?:free variable|name) '(?P<name>\w+)' is not defined")

_REFUSED_CONFIGURATION = re.compile(
    r"Unrecognized configuration class <class 'transformers\.models\.[\w.]+\.(\w+)'> "
    r"for this kind of AutoModel: (\w+)\."
)

_UNDEFINED_SYMBOL = re.compile(r": undefined symbol: (\w+)")

_NONE = re.compile(
    r"'NoneType' object (?:has no attribute '(?P<name>\w+)'|is not (?P<not>subscriptable|iterable|callable))"
    r"|cannot unpack non-iterable (?P<unpacked>NoneType) object"
    r"|object of type '(?P<measured>NoneType)' has no len\(\)"
    r"|(?:\S{1,80} )?argument after \*\*? must be (?:a mapping|an iterable), not (?P<starred>NoneType)"
    r"|(?:unsupported operand type\(s\) for (?P<operator>\S{1,3}): "
    r"|'(?P<compared>[<>]=?)' not supported between instances of )"
    r"'(?P<left>\w+)' and '(?P<right>\w+)'"
)
_WALKED = (
    r"\bin {0}(?=[:\])]|$)",
    r"\.(?:update|extend|join|union)\({0}\)",
    r"(?<![\w.])(?:list|set|tuple|sorted|enumerate|iter|dict|any|all|sum|max|min)\({0}\)",
)
"""Where a line of code goes through the items of an expression."""
_EXPRESSION = r"([A-Za-z_][\w.]*(?:\[[^\[\]]{1,40}\])?)"

_PYTHONS_OWN = frozenset(
    {"NoneType", "str", "int", "float", "list", "dict", "tuple", "set", "bool", "bytes", "function", "module"}
    | {"type", "generator", "method", "builtin_function_or_method"}
)
"""Classes that have the same attributes whatever is installed."""


class RaisedText(NamedTuple):
    """Class and message of an exception, and the innermost frame if it is known.

    `shown` says that the line of that frame raises it, so that no code below it was left out of the log.
    """

    exception: str
    message: str
    place: Frame | None
    shown: bool = False


class MissingAttribute(NamedTuple):
    """Class, the attribute that an object of it lacks, and the innermost frame; the class may be unknown.

    `of_self` says that the line asks `self` for it, so that the object's class is one of that method.
    """

    owner: str
    name: str
    place: Frame | None = None
    of_self: bool = False


class UndefinedName(NamedTuple):
    """Name that a module uses and does not define, and the frame that uses it, if it is known."""

    name: str
    place: Frame | None


class RefusedConfiguration(NamedTuple):
    """Class of a model's configuration, and the Auto class that does not load its models."""

    configuration: str
    auto_class: str


class RefusedCall(NamedTuple):
    """Function, the keyword that it does not take (empty for another mistake), and the innermost frame.

    `given` is the number of positional arguments that it got, `self` among them, if they were too many.
    `written` says that the line of that frame calls the function with arguments that it writes out, and
    `field` that the keyword is a field of a class that has no constructor of its own.
    """

    function: str
    keyword: str
    place: Frame | None
    given: int = 0
    written: bool = False
    field: bool = False

    @property
    def too_many(self) -> bool:
        """Return whether the function got more positional arguments than it takes."""
        return self.given > 0


def raised_texts(event: Event) -> tuple[RaisedText, ...]:
    """Return the exceptions of an event; one that pydantic reports is the validator's own.

    A wrapper that only quotes another exception is left out.
    """
    return tuple(
        _raised_text(raised)
        for raised in event.exceptions
        if without_wrapper(raised.message) == raised.message
    )


def _raised_text(raised: Raised) -> RaisedText:
    if raised.name.endswith("ValidationError") and (found := _VALIDATED.search(raised.message)):
        return RaisedText(_VALIDATED_AS[found["word"]], found["message"], None)
    return RaisedText(
        raised.name, raised.message, raised.place, raised.source.startswith(("raise ", "assert "))
    )


def missing_attribute(event: Event) -> MissingAttribute | None:
    """Return the attribute that the first exception which names one reports as missing.

    A wrapper, such as PEFT's, asks the object inside it for what it has not itself: of exceptions that follow
    one another with the same attribute, the last is of the innermost object, and shows who asked.
    """
    first: MissingAttribute | None = None
    for raised in event.exceptions:
        found = _missing_attribute(raised)
        if first is not None and (found is None or found.name != first.name):
            break
        first = found or first
    return first


def _missing_attribute(raised: Raised) -> MissingAttribute | None:
    found = _ATTRIBUTE.match(without_wrapper(raised.message))
    owner = (found["owner"] or found["class"]) if found else ""
    if found and owner not in _PYTHONS_OWN:
        of_self = re.search(rf"\bself\.{found['name']}\b", raised.source) is not None
        return MissingAttribute(owner, found["name"], raised.place, of_self)
    if raised.name.endswith("AttributeError") and _BARE_ATTRIBUTE.match(raised.message):
        return MissingAttribute("", raised.message, raised.place)
    return None


def refused_configuration(event: Event) -> RefusedConfiguration | None:
    """Return the configuration that an Auto class of transformers does not load, if an exception says so.

    A configuration that the model brings itself is left out: transformers knows nothing of it.
    """
    for raised in event.exceptions:
        if found := _REFUSED_CONFIGURATION.match(raised.message):
            return RefusedConfiguration(found[1], found[2])
    return None


def undefined_name(event: Event) -> UndefinedName | None:
    """Return the first name that an exception reports as not defined."""
    for raised in event.exceptions:
        found = _UNDEFINED.match(raised.message)
        if raised.name.endswith("NameError") and found:
            return UndefinedName(found["name"], raised.place)
    return None


def undefined_symbol(event: Event) -> str:
    """Return the first symbol that the loader reports as undefined in a library; empty if there is none."""
    for raised in event.exceptions:
        if found := _UNDEFINED_SYMBOL.search(raised.message):
            return found[1]
    return ""


def refused_call(event: Event) -> RefusedCall | None:
    """Return the first call with other parameters than the function takes."""
    for raised in event.exceptions:
        if raised.name.endswith("TypeError") and (found := _CALL.match(raised.message)):
            function = found["function"]
            if function == "__init__" and len(made := {*_MADE.findall(raised.source)}) == 1:
                function = f"{made.pop()}.__init__"  # Python before 3.10 leaves the class out
            name = function.removesuffix(".__init__").rpartition(".")[2]
            call = re.search(rf"\b{re.escape(name)}\((?P<arguments>.*)", raised.source)
            written = call is not None and "*" not in call["arguments"]
            given = int(found["given"] or 0)
            return RefusedCall(function, found["keyword"] or "", raised.place, given, written)
        made = {*_MADE.findall(raised.source)}
        field = _REFUSED_FIELD.match(raised.message) if raised.name.endswith("TypeError") else None
        if field is not None and len(made) == 1:
            return RefusedCall(f"{made.pop()}.__init__", field[1], raised.place, field=True)
    return None


_TEXT = re.compile(r"""(?:raise \w+\()?f(?P<quote>["'])(?P<text>.{20,}?)(?:(?P=quote)\W*)?$""")
_HOLE = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}?")
_REFUSES = re.compile(
    r"(?i)\b(?:invalid|must|should|expected|expects|supported|unsupported|cannot|can't|could not|missing"
    r"|required|requires|unknown|unrecognized|not found|failed|only)\b"
)
"""Words of a message that reports a failure."""


def _begins_so(message: str, text: str) -> bool:
    """Return whether a message begins as a text whose values are `…`."""
    begin = text.strip().partition("…")[0]
    return len(begin) > 1 and message.strip().startswith(begin)


def composed_message(event: Event) -> str:
    """Return the message of which the line that failed was to be made, with `…` for its values.

    Then what that message reports came first, and writing it failed. Empty if the line makes no such message.
    """
    first = event.exceptions[0] if event.exceptions else None
    found = _TEXT.match(first.source) if first is not None else None
    if found is None or "{" not in found["text"]:
        return ""
    text = _HOLE.sub("…", found["text"])
    if first is not None and _begins_so(first.message, text):  # it was written, and this is it
        return ""
    return hide_secrets(text.strip()) if _REFUSES.search(text) else ""


def expression_that_is_none(event: Event) -> str:
    """Return the expression that is None, as the line of code shows it; empty if that is not certain."""
    of_none = (raised for raised in event.exceptions if raised.source and _NONE.match(raised.message))
    first = next(of_none, None)
    none = none_in(first) if first is not None else ""
    if first is not None and first.place is not None and none.isidentifier():
        return _given_by_caller(none, first.place, event.text) or none
    return none


_FRAME_WITH_SOURCE = re.compile(
    r'^ *File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d+), in [^\n]{1,300}\n +(?P<source>\S[^\n]{0,500})$',
    re.MULTILINE,
)
_ONLY_ARGUMENT = re.compile(r"\w\((?:\w+=)?([A-Za-z_][\w.]*)\)$")


def _given_by_caller(name: str, place: Frame, text: str) -> str:
    """Return the only argument of the call that led into Python's own file; empty if that is not certain.

    There the name is one of Python's, which tells nobody what they left out.
    """
    if not is_pythons_own(place.file):
        return ""
    frames = [*_FRAME_WITH_SOURCE.finditer(text)]
    inner = [at for at, one in enumerate(frames) if (one["file"], int(one["line"])) == place[:2]]
    if len(inner) != 1 or not inner[0]:
        return ""
    caller = frames[inner[0] - 1]
    found = _ONLY_ARGUMENT.search(caller["source"])
    return found[1] if found and found[1] != name and not is_pythons_own(caller["file"]) else ""


def none_in(raised: Raised) -> str:
    """Return the expression that an exception says is None; empty if its line does not tell for certain."""
    found = _NONE.match(raised.message)
    if found is None or not raised.source:
        return ""
    if found["unpacked"]:
        shown = [f"{call}()" for call in re.findall(r"(?<![=!<>])= ?([A-Za-z_][\w.]*)\(", raised.source)]
    elif found["name"]:
        shown = _owners(found["name"], raised.source)
    elif found["not"] == "subscriptable":
        shown = _subscripted(raised)
    elif found["not"] == "iterable":
        shown = [one for form in _WALKED for one in re.findall(form.format(_EXPRESSION), raised.source)]
    elif found["measured"]:
        shown = re.findall(rf"\blen\({_EXPRESSION}\)", raised.source)
    elif found["starred"]:
        shown = re.findall(rf"\*\*?{_EXPRESSION}(?=[,)]|$)", raised.source)
    elif found["operator"] or found["compared"]:
        shown = _operand_that_is_none(found, raised.source)
    else:
        shown = [raised.marked] if raised.marked else re.findall(rf"{_EXPRESSION}\(", raised.source)
    return shown[0] if len({*shown}) == 1 else ""


def _owners(name: str, source: str) -> list[str]:
    """Return the expressions that a line asks for an attribute; none if it asks what a call returns as well.

    Of `a.get("x").get("y")`, either object may lack `get`.
    """
    attribute = rf"\.{re.escape(name)}\b"
    shown = re.findall(_EXPRESSION + attribute, source)
    return shown if len(shown) == len(re.findall(attribute, source)) else []


def _subscripted(raised: Raised) -> list[str]:
    """Return the expression that a line subscripts; none if it does so several times without a mark."""
    if raised.marked:
        return [raised.marked]
    shown = re.findall(rf"{_EXPRESSION}\[", raised.source)
    return shown if len(re.findall(r"[\w)\]]\[", raised.source)) == 1 else []


def _operand_that_is_none(found: re.Match[str], source: str) -> list[str]:
    """Return the operand that a message calls NoneType, if the line has its operator once."""
    operator = rf"(?<![*/<>=!+-]){re.escape(found['operator'] or found['compared'])}(?![*/=<>])"
    sides = re.search(rf"(?:{_EXPRESSION}|[\w.)\]]) ?{operator} ?(?:{_EXPRESSION}|\S)", source)
    both = found["left"] == found["right"]
    if sides is None or both or len(re.findall(operator, source)) != 1:
        return []
    shown = sides[1] if found["left"] == "NoneType" else sides[2]
    return [shown] if shown and "NoneType" in (found["left"], found["right"]) else []


_WRONG_TYPE = re.compile(
    r"'(?P<owner>str|int|float|list|dict|tuple|set|bool|bytes)' object (?:has no attribute '(?P<name>\w+)'"
    r"|is not (?P<not>subscriptable|iterable|callable))"
    r"|(?P<indexed>list|tuple|string) indices must be integers"
    r"|argument of type '(?P<searched>int|float|bool)' is not (?:iterable|a container or iterable)"
    r"|object of type '(?P<measured>int|float|bool)' has no len\(\)"
)
"""Messages of Python on a value of one of its own types, where another type is needed."""

_TYPES = {"string": "str"}


def value_of_wrong_type(event: Event) -> tuple[str, str]:
    """Return the expression whose value has a type that its line has no use for, and the type.

    Both are empty if the line of code does not tell for certain which expression is meant.
    """
    for raised in event.exceptions:
        found = _WRONG_TYPE.match(raised.message)
        if found is not None and raised.source:
            shown = {*_of_wrong_type(found, raised)}
            kind = found["owner"] or found["indexed"] or found["searched"] or found["measured"]
            return (shown.pop(), _TYPES.get(kind, kind)) if len(shown) == 1 else ("", "")
    return "", ""


def _of_wrong_type(found: re.Match[str], raised: Raised) -> list[str]:
    """Return the expressions of a line that a message on a wrong type may be about."""
    if found["name"]:
        return _owners(found["name"], raised.source)
    if found["indexed"] or found["not"] == "subscriptable":
        return _subscripted(raised)
    if found["searched"]:
        return re.findall(rf"\bin {_EXPRESSION}(?=[:\s)\]]|$)", raised.source)
    if found["measured"]:
        return re.findall(rf"\blen\({_EXPRESSION}\)", raised.source)
    if found["not"] == "iterable":
        return [one for form in _WALKED for one in re.findall(form.format(_EXPRESSION), raised.source)]
    return [raised.marked] if raised.marked else re.findall(rf"{_EXPRESSION}\(", raised.source)


_OF_SETTINGS = re.compile(
    r"(?:self\.)?(?:\w*(?:args|arguments|config|cfg|conf|hparams))\.(?P<name>[a-z_]\w*(?:\.[a-z_]\w*)*)$"
)
"""An attribute of an object that holds settings: `self.args.generation_kwargs`."""


def setting_that_is_none(event: Event) -> str:
    """Return the name of the setting whose value is None where one is needed; empty if none is shown."""
    found = _OF_SETTINGS.match(expression_that_is_none(event))
    return found["name"] if found else ""


def asserted(event: Event) -> str:
    """Return the condition of an `assert` without a message that failed first; empty if there is none."""
    first = event.exceptions[0] if event.exceptions else None
    if first is None or not first.message.startswith("assert "):
        return ""
    return first.message.removeprefix("assert ").strip()
