"""Lines that state a failure without a traceback: an exception alone, a signal, an exit code, an error.

The forms are rows of compat/tables/failure_lines.toml. An exception that is named in the middle of a sentence
counts only if nothing else in the log reports a failure (`aside`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import patterns
from envcheck.core.facts import EMPTY_MAPPING
from envcheck.knowledge.needed_text import NeededOfPatterns, may_match
from envcheck.logs.events import FailureForm, Raised, without_wrapper
from envcheck.logs.library_questions import none_in

_NAME = (
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*?(?:Error|Exception|Interrupt|Timeout|Expired|Refused|Failure|Died|NotFound|Invalid"
    r"|ExceptionGroup|OutOfResources|ProcessPool)"
    r"|(?:[A-Za-z_]\w*\.)+(?:exc|exceptions|errors)\.[A-Z]\w+"
    r"|(?:[A-Za-z_]\w*\.)+Invalid[A-Z]\w+"
)
_MARKUP = re.compile(r"(?:[#>*`'\"|│❌✗\s]|E {3}|-\s|【[^】]*】|\[\w{1,12}\]:? ?){0,12}")
_LABEL = re.compile(r"(?:(?:ERROR|Error|error|FATAL|Caused by|Exception|CRITICAL)(?::\w+)?: ){0,2}")
_EXCEPTION = re.compile(rf"({_NAME})(?:\(\w{{1,80}}\))?: ?(.*)")
_BARE_EXCEPTION = re.compile(r"Exception: (\S.{3,})")  # `raise Exception("...")`; else the word is a label
_EXCEPTION_ALONE = re.compile(rf"({_NAME})\W*$")
_ASSERTION = re.compile(r"(AssertionError)\W+(assert .+)")
"""Line of an assertion whose name and source several processes wrote at once, so that they stand together."""
_MENTIONED = re.compile(rf"(?<![\w.'\"(])({_NAME}): (\S.*)")
_SHOWN = re.compile(rf"(?<![\w.'\"])({_NAME})\((?P<quote>['\"])(?P<message>.+?)(?P=quote),?\)")
"""An exception as Python's `repr` shows it: `KeyError('labels')`."""

_SAYS_IT_FAILED = re.compile(r"(?i)\b(?:error|fail(?:ed|ure)?|exception|crashed)\b")
_NO_FAILURE = re.compile(
    r"(?i)warn|\binfo\b|\bdebug\b|fall(?:ing|s|en)?[ -]?back|skip|ignor|disabl|continu|retry|optional"
    r"|deprecat|recommend|^\s*(?:except|raise|#|//|assert|return|from|import|def|if|with)\b|Exception ignored"
)
"""Words of lines in which an exception is mentioned and nothing failed, or of source code."""

_QUOTES = re.compile(rf"(?:.{{0,60}}raised:\s*)?({_NAME}): (.*)", re.DOTALL)
"""A message that begins with another exception, as those of compilers and data sets do."""

_CONDITION = re.compile(r"(?:[Ii]f|[Ww]hen|[Rr]aised|Occurs)\b|$")
"""How the description of an exception in a docstring begins."""

_TO_THE_USER = re.compile(r"[`'\"\d]|\b(?:your?|please|must)\b|\w=\w")
"""What a message that begins like a description has, and a line of documentation seldom."""

_FRAME = re.compile(
    r'(?m)^(?:.{0,200}?\bFile "?(?P<file>[^"\n,]{1,1000}?)'
    r'(?:", line \d+(?:, in (?P<function>[^\n]{1,200}))?|:\d+, in (?P<cell>[^\n(]{1,200}))'
    r"|\[?(?P<other><\w+>|/\S{1,1000}?)(?:\]\([^\s()]{1,300}\))?(?::\d+)? in (?P<called>[\w<][^\n(]{0,200}))"
)
"""A frame of a traceback, as Python and as a notebook print it, in Colab as a link."""

_MAX_MESSAGE = 2000
_LONGEST_LINE = 3000


class Statement(NamedTuple):
    """A failure that one line states: an exception or how a process ended, the rank, and the form."""

    form: FailureForm
    exceptions: tuple[Raised, ...] = ()
    code: int | None = None
    rank: str = ""

    @property
    def ended(self) -> bool:
        """Return whether it reports the end of a process."""
        return self.code is not None


class _Ending(NamedTuple):
    """What a signal or an exit code means; `signal` is the signal that an exit code stands for."""

    signal: int
    form: FailureForm


class _Meaning(NamedTuple):
    """State what a message means, and what else the log has to show for it; empty patterns ask for nothing.

    `source` is searched in the line that raised it, and `none` is matched with the expression that is None
    there, unless the line does not tell. `file` is searched in the files of the traceback. So is `through`,
    in `file in function`, but a log that shows no frames does not speak against it. `below` is searched in
    the whole text, for a message whose further lines tell causes apart.
    """

    exception: str
    pattern: re.Pattern[str]
    source: re.Pattern[str]
    none: re.Pattern[str]
    file: re.Pattern[str]
    through: re.Pattern[str]
    below: re.Pattern[str]
    form: FailureForm

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Meaning:
        """Return the meaning that a row of the table states."""

        def compiled(key: str) -> re.Pattern[str]:
            return patterns.pattern(row.get(key, ""))

        return cls(
            row.get("exception", ""),
            compiled("pattern"),
            compiled("source"),
            compiled("none"),
            compiled("file"),
            compiled("through"),
            compiled("below"),
            _form(row),
        )

    def may_be_of(self, raised: Raised, text: str) -> bool:
        """Return whether nothing that the log shows of an exception, in this text, speaks against it."""
        if not (self.source.search(raised.source) and self.below.search(text)):
            return False
        if self.none.pattern and (none := none_in(raised)) and not self.none.fullmatch(none):
            return False
        files = [file for file, _ in _frames_in(text)]
        if self.file.pattern and not any(map(self.file.search, (_file_of(raised), *files))):
            return False
        if not self.through.pattern:
            return True
        frames = [f"{file} in {function}".rstrip() for file, function in _frames_in(text)]
        if raised.place is not None:
            frames.append(f"{_file_of(raised)} in {raised.place.name}")
        return not frames or any(map(self.through.search, frames))


class StatementPatterns:
    """Forms of the tables, compiled."""

    def __init__(
        self, tables: Mapping[str, Sequence[Mapping[str, Any]]], needed: NeededOfPatterns = EMPTY_MAPPING
    ) -> None:
        """Read the tables of failures: lines, messages, meanings of exceptions, and ends of processes."""
        self._needed = needed
        lines = tables.get("failure_line", ())
        self._forms = [(patterns.pattern(row["pattern"]), _form(row)) for row in lines]
        plain = [re.sub(r"\(\?P<\w+>", "(?:", row["pattern"]) for row in lines]
        self._any = re.compile("|".join(f"(?:{pattern})" for pattern in plain) or r"\b\B")
        messages = tables.get("failure_message", ())
        self._messages = [(patterns.pattern(row["pattern"]), row["name"]) for row in messages]
        caught = "|".join(f"(?:{row['pattern']})" for row in tables.get("caught", ()))
        self._caught = re.compile(caught or r"\b\B")
        self._meanings = [_Meaning.of(row) for row in tables.get("exception_meaning", ())]
        self._general = [
            (row.get("exception", ""), patterns.pattern(row["pattern"]), _form(row))
            for row in tables.get("general_meaning", ())
        ]
        self._model_types = {
            row["model_type"]: row["transformers"] for row in tables.get("model", ()) if not row.get("before")
        }
        self._every_model_type = {row["model_type"] for row in tables.get("model", ())}
        self._signals: dict[int, FailureForm] = {}
        self._numbers: dict[str, int] = {}
        self._codes: dict[int, _Ending] = {}
        for row in tables.get("ending", ()):
            if "signal" in row:
                self._signals[row["signal"]] = _form(row)
                self._numbers |= {name.lower(): row["signal"] for name in row.get("names", ())}
            else:
                self._codes[row["code"]] = _Ending(row.get("signal_of", 0), _form(row))

    def ending(self, code: int) -> FailureForm:
        """Return the meaning of an exit code, which is negative for a signal."""
        return self._of_code(code)[1]

    def meaning(self, raised: Raised, text: str = "") -> FailureForm | None:
        """Return what the message of an exception means, whoever raises it; None if it is not known.

        Some meanings hold only for exceptions that went through certain files, which `text` shows.
        If the message quotes another exception, that one counts.
        """
        inner = without_wrapper(raised.message)
        quoted = _QUOTES.match(inner)
        for name, message in ((raised.name, inner), *([quoted.groups()] if quoted else ())):
            folded = message.casefold()
            for meaning in self._meanings:
                said = name.endswith(meaning.exception) and self._match(meaning.pattern, message, folded)
                if said and meaning.may_be_of(raised, text):
                    return meaning.form
        return self._of_process(raised) or self._unknown_model_type(raised)

    def _of_process(self, raised: Raised) -> FailureForm | None:
        """Return what the exit code of a process means that an exception reports; None if nothing."""
        found = _EXIT_STATUS.search(raised.message[-_TAIL:]) if raised.name.endswith(_OF_PROCESS) else None
        form = self.ending(int(found[1])) if found is not None else None
        return form if form is not None and form.means else None

    def general_meaning(self, raised: Raised) -> FailureForm | None:
        """Return what failures of this class usually mean, the likeliest cause first; None without a row."""
        message = without_wrapper(raised.message)
        folded = message.casefold()
        for exception, pattern, form in self._general:
            if raised.name.endswith(exception) and self._match(pattern, message, folded):
                return form
        return None

    def _match(self, pattern: re.Pattern[str], message: str, folded: str) -> re.Match[str] | None:
        """Match a pattern, which is compiled only if the message has the texts that it needs."""
        return pattern.match(message) if may_match(self._needed.get(pattern.pattern, ()), folded) else None

    def _unknown_model_type(self, raised: Raised) -> FailureForm | None:
        """Return what it means that a mapping of transformers lacks a type of model."""
        refused = refused_model_type(raised.message)
        if refused and refused not in self._every_model_type:
            means = f"no release of transformers that was read has the model type {refused}"
            advice = (
                "Other code defines it: load the model with the loader of its own project, or pass "
                "trust_remote_code=True if its folder holds that code (auto_map in config.json). If the "
                "model is newer than this envcheck, a newer transformers, or its main branch, may know it."
            )
            return FailureForm("setting", means, advice)
        name = raised.message.strip("'")
        since = self._model_types.get(name) if raised.name == "KeyError" else None
        asked_there = raised.place is None or "/models/auto/" in raised.place.file.replace("\\", "/")
        if since is None or not asked_there:
            return None
        means = f"this transformers does not know the model type {name}, which it has from {since} on"
        return FailureForm("version", means, f"Install transformers {since} or newer.")

    def statement(self, text: str) -> Statement | None:
        """Return the failure that a line states, or None."""
        text = text[:_LONGEST_LINE]
        bare = text[_MARKUP.match(text).end() :]  # type: ignore[union-attr] # it matches the empty text
        if found := _exception_in(bare):
            return Statement(FailureForm(), (found,))
        described = _EXCEPTION.match(text)
        if described and described[2] != "%s" and _TO_THE_USER.search(described[2]):
            return Statement(
                FailureForm(aside=True), (Raised(described[1], described[2][:_MAX_MESSAGE], None),)
            )
        for candidate in (bare, text.lstrip()):
            if self._any.match(candidate):
                stated = self._of_form(candidate)
                bare_form = stated.form._replace(last=False) if stated is not None else None
                only_an_error = bare_form == FailureForm(aside=True)
                return (self._mentioned(text) if only_an_error else None) or stated
        return self._mentioned(text)

    def _of_form(self, text: str) -> Statement | None:
        for pattern, form in self._forms:
            if found := pattern.match(text):
                return self._of_match(found, form)
        return None

    def _of_match(self, found: re.Match[str], form: FailureForm) -> Statement | None:
        groups = {name: value for name, value in found.groupdict().items() if value}
        rank = groups.get("rank", "")
        if "signal" in groups:
            number = groups["signal"]
            code = -(int(number) if number.isdecimal() else self._numbers.get(number.lower(), 0))
        elif "code" in groups:
            code = int(groups["code"])
        else:
            return Statement(form, rank=rank)
        if code == 0:
            return Statement(form, rank=rank) if "signal" in groups else None
        code, meaning = self._of_code(code)
        return Statement(meaning if form == FailureForm() else form, code=code, rank=rank)

    def _of_code(self, code: int) -> tuple[int, FailureForm]:
        """Return the exit code, negative if it stands for a signal, and its meaning."""
        ending = self._codes.get(code)
        if ending is not None and not ending.signal:
            return code, ending.form
        code = -ending.signal if ending else code
        return code, self._signals.get(-code, FailureForm())

    def _mentioned(self, text: str) -> Statement | None:
        """Return the exception that a sentence mentions, or whose message it quotes."""
        if _NO_FAILURE.search(text) and not self._caught.search(text):
            return None
        aside = FailureForm(aside=True)
        if (found := _MENTIONED.search(text)) and not _CONDITION.match(found[2]):
            return Statement(aside, (Raised(found[1], _quoted(text, found), None),))
        if (found := _SHOWN.search(text)) and _SAYS_IT_FAILED.search(text, 0, found.start()):
            quote = found["quote"] if found[1].endswith("KeyError") else ""  # its message is a repr as well
            message = f"{quote}{found['message'][:_MAX_MESSAGE]}{quote}"
            return Statement(aside, (Raised(found[1], message, None),))
        for pattern, name in self._messages:
            if quoted := pattern.search(text):
                return Statement(aside, (Raised(name, quoted[0], None),))
        return None


_OF_PROCESS = "CalledProcessError"
_EXIT_STATUS = re.compile(r"returned non-zero exit status (-?\d{1,10})\.?$")
_TAIL = 60  # characters of the end of such a message: the command before it may be long

_REFUSED_TYPE = re.compile(
    r".{0,80}you are trying to load has model type `([\w.-]+)` but Transformers does not recognize"
)


def refused_model_type(message: str) -> str:
    """Return the type of model that transformers says it does not recognise, or an empty text."""
    found = _REFUSED_TYPE.match(message)
    return found[1] if found else ""


def _file_of(raised: Raised) -> str:
    """Return the file of the innermost frame, with slashes; empty if it is not known."""
    return raised.place.file.replace("\\", "/") if raised.place else ""


def _frames_in(text: str) -> list[tuple[str, str]]:
    """Return the file, with slashes, and the function of each frame that a text shows."""
    return [
        (
            (found["file"] or found["other"]).replace("\\", "/"),
            (found["function"] or found["cell"] or found["called"] or "").strip(),
        )
        for found in _FRAME.finditer(text)
    ]


def _quoted(text: str, mentioned: re.Match[str]) -> str:
    """Return the message of an exception in a sentence; if it stands between backticks, up to the second."""
    message = mentioned[2]
    if "`" in text[: mentioned.start()]:
        message = message.partition("`")[0]
    return _unquoted(message)[:_MAX_MESSAGE]


def _unquoted(message: str) -> str:
    """Return a message without the marks around it; a backtick stays where the message holds others."""
    bare = message.strip('*" ')
    return message.strip('`*" ') if "`" not in bare.strip("`") else bare


def _exception_in(text: str) -> Raised | None:
    """Return the exception with which a line begins."""
    whole = text
    text = text[_LABEL.match(text).end() :]  # type: ignore[union-attr] # it matches the empty text
    found = _EXCEPTION.match(text)
    if found and not _CONDITION.match(found[2]) and found[2] != "%s":
        return Raised(found[1], _unquoted(found[2])[:_MAX_MESSAGE], None)
    if found := _ASSERTION.match(text):
        return Raised(found[1], found[2].strip()[:_MAX_MESSAGE], None)
    if alone := _EXCEPTION_ALONE.match(text):
        return Raised(alone[1], "", None)
    bare = _BARE_EXCEPTION.match(whole)
    return Raised("Exception", _unquoted(bare[1])[:_MAX_MESSAGE], None) if bare else None


def _form(row: Mapping[str, Any]) -> FailureForm:
    return FailureForm(
        row.get("kind", "unknown"),
        row.get("means", ""),
        row.get("advice", ""),
        aside=row.get("aside", False),
        closing=row.get("closing", False),
        telling=row.get("telling", False),
        last=row.get("last", False),
        heading=row.get("heading", False),
        remark=row.get("remark", False),
    )
