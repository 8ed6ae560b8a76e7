"""Commands that compute text, such as `expr`, `tr` and `wc`, with which scripts count and divide. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from envcheck.training_config.launch_scripts import arithmetic

_MAX_TEXT = 10_000  # characters that a filter is applied to
_MOST_REPETITIONS = 1  # in a pattern of `sed`: with two, a long line takes a time that is quadratic
_MOST_AT_THE_START = 2  # in one that matches only at the beginning of a line
_MAX_NUMBERS = 200  # that `seq` prints
_PRINTED_NUMBER = re.compile(r"\s*print\((int\()?([\d\s()*+/-]+?)\)?\)\s*")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_SETS = {"[:space:]": " \t\n\r", "[:blank:]": " \t", "[:digit:]": "0123456789"}
_PATTERNS = re.compile(r"\.|\[0-9\]|\[\^,\]\+|\^|[\w-]+|,")
"""Regular expressions that grep reads as Python does."""

_WHOLE = re.compile(r"-?[0-9]+")
_FIELDS = re.compile(r"\s*\{\s*print\s+NF;?\s*\}\s*")


def printed(words: Sequence[str]) -> str | None:
    """Return the text that a command prints without reading any; None if it is not known."""
    known = _PRINTS.get(words[0])
    return known(words[1:]) if known is not None else None


def _echo(words: Sequence[str]) -> str | None:
    if words and words[0] != "-n" and re.fullmatch("-[neE]+", words[0]):
        return None
    newline = "" if words[:1] == ["-n"] else "\n"
    return " ".join(words if newline else words[1:]) + newline


def formatted(words: Sequence[str]) -> str | None:
    """Return the text of `printf FORMAT WORDS`; None for a format with anything but `%s` and `%d`."""
    if not words or re.search(r"%(?![sd%])|\\(?![nt])", words[0]):
        return None
    form, rest = words[0].replace("\\n", "\n").replace("\\t", "\t"), list(words[1:])
    count = len(re.findall("%[sd]", form))
    if not count:
        return form.replace("%%", "%")
    if len(rest) % count or "%%" in form or (rest and "%d" in form and not all(map(_WHOLE.fullmatch, rest))):
        return None
    parts = re.split("(%[sd])", form)
    rounds = len(rest) // count
    filled = [rest.pop(0) if part in ("%s", "%d") else part for part in parts * rounds]
    return "".join(filled)


def _expr(words: Sequence[str]) -> str | None:
    """Follow `expr 16 / 4`."""
    return _number(" ".join(words))


def _seq(words: Sequence[str]) -> str | None:
    """Follow `seq LAST` and `seq FIRST LAST`."""
    if not 0 < len(words) <= 2 or not all(re.fullmatch(r"[0-9]{1,4}", word) for word in words):  # noqa: PLR2004
        return None
    first, last = int(words[0]) if len(words) > 1 else 1, int(words[-1])
    if last - first >= _MAX_NUMBERS:
        return None
    return "".join(f"{number}\n" for number in range(first, last + 1))


def _basename(words: Sequence[str]) -> str | None:
    """Follow `basename PATH [ENDING]`."""
    if not 0 < len(words) <= 2 or words[0].startswith("-"):  # noqa: PLR2004
        return None
    name = posixpath.basename(words[0].rstrip("/"))
    return (name.removesuffix(words[1]) if len(words) > 1 else name) + "\n"


def _dirname(words: Sequence[str]) -> str | None:
    return f"{posixpath.dirname(words[0]) or '.'}\n" if len(words) == 1 else None


def _path(words: Sequence[str]) -> str | None:
    """Follow `realpath PATH` and `readlink -f PATH`; the path stays relative, as no folder is known."""
    names = [word for word in words if not word.startswith("-")]
    return f"{posixpath.normpath(names[0])}\n" if len(names) == 1 else None


def _program(words: Sequence[str]) -> str | None:
    """Follow `which NAME` and `command -v NAME`: the program is assumed to be installed."""
    names = [word for word in words if not word.startswith("-")]
    return f"{names[0]}\n" if len(names) == 1 else None


def _python(words: Sequence[str]) -> str | None:
    """Follow `python -c "print(64 // 8)"`; a quotient that is not whole is not computed."""
    found = _PRINTED_NUMBER.fullmatch(words[1]) if len(words) == 2 and words[0] == "-c" else None  # noqa: PLR2004
    if found is None:
        return None
    whole, text = found.group(1), found.group(2).replace("//", "/")
    if "//" in found.group(2) and "-" in text:  # Python rounds down, the shell towards zero
        return None
    return _number(text) if whole or "/" not in found.group(2).replace("//", "") else None


def _number(text: str) -> str | None:
    value = arithmetic.evaluate(text, lambda _: None)
    return None if value is None else f"{int(value)}\n"


def filtered(text: str, words: Sequence[str]) -> str | None:
    """Return the output of a filter for a text; None if the filter or one of its options is not known."""
    name, *arguments = words
    known = _FILTERS.get(name)
    return known(text, arguments) if known is not None and len(text) <= _MAX_TEXT else None


def _tr(text: str, arguments: Sequence[str]) -> str | None:
    deletes = arguments[:1] == ["-d"]
    sets = [_characters(each) for each in (arguments[1:] if deletes else arguments)]
    if deletes and len(sets) == 1 and sets[0]:
        return "".join(each for each in text if each not in sets[0])
    if len(sets) != 2 or not (sets[0] and sets[1]):  # noqa: PLR2004 - what to replace, and by what
        return None
    last = sets[1][-1]
    pairs = dict(zip(sets[0], sets[1] + last * len(sets[0]), strict=False))
    return "".join(pairs.get(each, each) for each in text)


def _characters(text: str) -> str:
    """Return the characters of a set of `tr`; "" for a range or a class that is not known."""
    text = _SETS.get(text, _ESCAPES.get(text, text))
    return "" if re.search(r".-.|\[:|\\.", text) else text


def _wc(text: str, arguments: Sequence[str]) -> str | None:
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
    return f"{counts[arguments[0]]}\n" if len(arguments) == 1 and arguments[0] in counts else None


def _grep(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `grep -c PATTERN`, which counts lines, and `grep -o PATTERN`, which prints what matches."""
    if len(arguments) != 2 or not _PATTERNS.fullmatch(arguments[1]):  # noqa: PLR2004 - option and pattern
        return None
    option, pattern = arguments
    if option in ("-o", "-oE", "-Eo"):
        if pattern.endswith("+") and option == "-o":  # not a repetition in a basic expression
            return None
        return "".join(f"{found.group()}\n" for found in re.finditer(pattern, text) if found.group())
    lines = text.removesuffix("\n").split("\n") if text else []
    if option != "-c" or pattern.endswith("+"):
        return None
    return f"{sum(re.search(pattern, line) is not None for line in lines)}\n"


def _awk(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `awk -F, '{print NF}'`, which counts the fields of each line."""
    separator = "".join(arguments[:-1]).removeprefix("-F")
    if not arguments or len(separator) != 1 or separator == " " or not _FIELDS.fullmatch(arguments[-1]):
        return None
    return "".join(f"{len(line.split(separator)) if line else 0}\n" for line in text.splitlines())


def _sed(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `sed s/PATTERN/WORDS/`, also several of them after `-e` or between semicolons."""
    expressions = [each for each in arguments if each not in ("-e", "-E", "-r", "-i")]
    if not expressions or any(each.startswith("-") for each in expressions):
        return None
    for expression in expressions:
        rest = expression.strip()
        while rest:
            found = _REPLACEMENT.match(rest)
            if found is None or not _WORDS.fullmatch(found["by"]):
                return None
            known, by = _as_python(found["pattern"]), found["by"].replace(r"\/", "/")
            if known is None:
                return None
            count = 0 if "g" in found["flags"] else 1
            if not count and re.fullmatch(known, ""):  # sed and Python replace other empty matches
                return None
            lines = text.split("\n")
            text = "\n".join(re.sub(known, by, line, count=count) for line in lines)
            rest = rest[found.end() :].lstrip("; \n")
    return text


_REPLACEMENT = re.compile(
    r"s(?P<mark>[/|#@,:])(?P<pattern>(?:\\.|(?!(?P=mark))[^\\])+)(?P=mark)"
    r"(?P<by>(?:\\.|(?!(?P=mark))[^\\])*)(?P=mark)(?P<flags>g?)(?=[;\s]|$)"
)
_CLASS = re.compile(r"\[(\^?)\[:(space|blank|digit|alpha|alnum):\]\]")
_CHARACTERS_OF = {
    "space": r"\s", "blank": r" \t", "digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9",
}  # fmt: skip
_LITERAL = re.compile(
    r"\^?(?:\.\*|\[\^[\w,\"'} ]+\]\*|\[0-9\]\*|\[\^?\[:[a-z]+:\]\]\*?|\\s\*?|\\[./]"
    r"|[\w\s\"'<>@#%&=:;,/!~-]|\.)+\$?"
)
"""Patterns that `sed` and `grep` read as Python does, apart from the names of classes in them."""


def _as_python(pattern: str) -> str | None:
    """Return a basic expression as Python spells it; None if it is not one that is known, or takes long."""
    most = _MOST_AT_THE_START if pattern.startswith("^") else _MOST_REPETITIONS
    if not _LITERAL.fullmatch(pattern) or pattern.count("*") > most:
        return None
    spelled = _CLASS.sub(lambda found: f"[{found[1]}{_CHARACTERS_OF[found[2]]}]", pattern)
    return None if "[:" in spelled else spelled.replace(r"\/", "/")


def contains(text: str, words: Sequence[str]) -> bool | None:
    """Return whether `grep -q PATTERN` finds a line in a text; None if that is not known."""
    options, pattern = words[:-1], words[-1] if words else ""
    if not options or not all(_QUIET.fullmatch(each) for each in options) or len(text) > _MAX_TEXT:
        return None
    if not any("q" in each for each in options):  # its output, and not its status, is what counts
        return None
    literal = any("F" in each for each in options)
    expression = re.escape(pattern) if literal else _as_python(pattern)
    if not pattern or expression is None:
        return None
    return any(re.search(expression, line) for line in text.split("\n"))


_QUIET = re.compile("-[qsEF]+|--quiet|--silent")

_WORDS = re.compile(r"(?:[^&\\]|\\/)*")
"""What a match is replaced by, without references to it."""


def _bc(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `echo "64 / 8" | bc`, in whole numbers."""
    return _number(text.strip()) if not arguments and "=" not in text and "." not in text else None


def _cut(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `cut -d, -f1`."""
    found = re.fullmatch(r"-d ?(.) -f ?([1-9])", " ".join(arguments))
    if found is None:
        return None
    separator, number = found.group(1), int(found.group(2))
    found_parts = []
    for line in text.splitlines():
        parts = line.split(separator)
        whole = len(parts) == 1  # a line without the separator is printed as it is
        found_parts.append(line if whole else parts[number - 1] if number <= len(parts) else "")
    return "".join(f"{part}\n" for part in found_parts)


_PRINTS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "echo": _echo, "printf": formatted, "expr": _expr, "seq": _seq, "basename": _basename,
    "dirname": _dirname, "realpath": _path, "readlink": _path, "which": _program, "command": _program,
    "python": _python, "python3": _python,
}  # fmt: skip
_FILTERS: Mapping[str, Callable[[str, Sequence[str]], str | None]] = {
    "tr": _tr,
    "wc": _wc,
    "grep": _grep,
    "awk": _awk,
    "sed": _sed,
    "bc": _bc,
    "cut": _cut,
    "xargs": lambda text, arguments: None if arguments else f"{' '.join(text.split())}\n",
}
