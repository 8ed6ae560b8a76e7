"""Conditions in the code of libraries, in words, and the settings that they depend on. Pure.

A condition is the text of a row of compat/raised/, such as `if args.eval_strategy == 'no' and not args.x`.
What is not of a simple form stays code.
"""

from __future__ import annotations

import re

_NAME = r"[A-Za-z_][\w.]*"
_CONFIGURED = r"(?:self\.)?(?:\w*(?:args|arguments|config|cfg|conf|params|settings)|data|values)"
"""Objects that hold settings: `args`, `self.args`, `training_args`, `config`, axolotl's `data`."""

_SETTING = re.compile(
    rf"\b{_CONFIGURED}(?:\.(?P<dotted>[a-z_][\w.]*)(?![\w.]*\()|(?:\.get\(|\[)'(?P<quoted>[a-z_]\w*)')"
)
_OWN = re.compile(r"\bself\.(?P<name>[a-z]\w*)\b(?![.(\w])")
_NO_SETTING = re.compile(r"(?:get|keys|items|values)$|(?:\w+\.)*(?:is_|has_|_)")
"""Names of methods, and of properties that follow from other settings."""

_OF_CONFIGURATION = re.compile(r"(?:Config|Arguments|Args|Params|ConfigMixin|Schema)\w*\.|\.__post_init__$")
"""Functions in which attributes of `self` are settings."""

_AVAILABLE = re.compile(r"(?:if not|unless) (?:\w+\.)*is_(\w+?)_available\(\)$")
_SPELLED = {
    "torch_cuda": "",
    "cuda": "",
    "torch_gpu": "",
    "bnb": "bitsandbytes",
    "flash_attn_2": "flash-attn",
}
_NO_GPU = ("if not torch.cuda.is_available()", "unless torch.cuda.is_available()")

_PARTS = (
    (re.compile(rf"({_NAME}) is None$"), "{} is not set"),
    (re.compile(rf"({_NAME}) is not None$"), "{} is set"),
    (re.compile(rf"({_NAME}) == (None)$"), "{} is not set"),
    (re.compile(rf"({_NAME}) == ('[^']*'|-?[\d.]+|True|False)$"), "{} is {}"),
    (re.compile(rf"({_NAME}) != ('[^']*'|-?[\d.]+|True|False)$"), "{} is not {}"),
    (re.compile(rf"({_NAME}) (<|<=|>|>=) (-?[\d.]+|{_NAME})$"), "{} {} {}"),
    (re.compile(rf"({_NAME}) % ({_NAME}) != 0$"), "{} is not divisible by {}"),
    (re.compile(rf"({_NAME}) % ({_NAME}) == 0$"), "{} is divisible by {}"),
    (re.compile(rf"({_NAME}) not in [\[({{](.*)[\])}}]$"), "{} is none of {}"),
    (re.compile(rf"({_NAME}) not in ({_NAME})$"), "{} is none of {}"),
    (re.compile(rf"({_NAME}) in ({_NAME})$"), "{} is one of {}"),
    (re.compile(rf"({_NAME}) in [\[({{](.*)[\])}}]$"), "{} is one of {}"),
    (re.compile(rf"not ({_NAME})$"), "{} is not set"),
    (re.compile(rf"({_NAME})$"), "{} is set"),
)
_OPPOSITES = {
    "is not set": "is set",
    "is set": "is not set",
    "is not divisible by": "is divisible by",
    "is divisible by": "is not divisible by",
    "is none of": "is one of",
    "is one of": "is none of",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}


def in_words(condition: str) -> str:
    """Return a condition in words; one of another form is returned as it is."""
    if _AVAILABLE.match(condition):
        package = package_asked_for(condition)
        return (
            f"{package} is not installed, or this check does not accept its release" if package else condition
        )
    if condition in _NO_GPU:
        return "torch sees no GPU"
    word, _, code = condition.partition(" ")
    if word not in ("if", "unless") or code.endswith("…") or " or " in code:
        return condition
    parts = [_part(part.strip()) for part in code.split(" and ")]
    if not all(parts):
        return condition
    if word == "if":
        return " and ".join(parts)
    return _opposite(parts[0]) if len(parts) == 1 else condition


def _part(code: str) -> str:
    """Return one comparison in words, or an empty text."""
    for pattern, words in _PARTS:
        if found := pattern.match(code):
            return words.format(*(_bare(group) for group in found.groups()))
    return ""


def _bare(name: str) -> str:
    """Return the name of a setting without the object that holds it."""
    return re.sub(rf"^(?:{_CONFIGURED}|self)\.", "", name)


def _opposite(words: str) -> str:
    """Return the opposite of one comparison in words."""
    for phrase, other in _OPPOSITES.items():
        if words.endswith(f" {phrase}") or f" {phrase} " in words:
            return words.replace(f" {phrase}", f" {other}", 1)
    name, is_not, value = words.partition(" is not ")
    if is_not:
        return f"{name} is {value}"
    name, is_, value = words.partition(" is ")
    return f"{name} is not {value}" if is_ else f"not ({words})"


def package_asked_for(condition: str) -> str:
    """Return the package whose absence a condition states, or an empty text."""
    found = _AVAILABLE.match(condition)
    if found is None:
        return ""
    name = found[1]
    return _SPELLED.get(name, name.replace("_", "-"))


def settings(condition: str, function: str) -> tuple[str, ...]:
    """Return the settings that a condition reads; `function` is the one that it stands in."""
    code = condition
    if condition.endswith("…"):  # the last word may be cut
        code = re.sub(r"[\w.]*…$", "", condition)
    names = [found["dotted"] or found["quoted"] for found in _SETTING.finditer(code)]
    if _OF_CONFIGURATION.search(function):
        names += [found["name"] for found in _OWN.finditer(code) if not _SETTING.match(found[0])]
    return tuple(dict.fromkeys(name for name in names if not _NO_SETTING.match(name)))


_NOT_CONFIGURED = re.compile(r"(?<![\w.])(?:data|values)(?=[.\[])")
"""Objects that hold settings in the validators of some libraries only."""


def settings_of_assertion(condition: str, function: str) -> tuple[str, ...]:
    """Return the settings that an `assert` in any code reads."""
    return settings(_NOT_CONFIGURED.sub("it", condition), function)
