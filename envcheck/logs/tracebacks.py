"""Tracebacks: which lines belong to one, and the exceptions that it reports.

It accepts those of Python, of rich and of notebooks, and interleaved tracebacks of several ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envcheck.logs.events import Frame, Raised

MAX_TEXT = 64 << 10
"""Characters of one event."""

PATIENCE = 2000
"""Lines of other ranks that may lie inside one traceback."""

MAX_LINES = 60
"""Lines of an exception's message, and of a passage."""

_MAX_MESSAGE = 2000  # characters of a message
_SHOWN = 4  # lines in which the source of an assertion stands: itself, a mark below it, and the exception

_HEADER = re.compile(r"Traceback \(most recent call last\):?(?:$| *\|)")  # or the rest of a bar it cut off
_DRAWN_HEADER = re.compile(r"(?:([A-Z]\w*[a-z]\w*) {2,}|╭─+ )Traceback \(most recent call last\)(?: ─+╮)?$")
_BOX = ("│", "╰")
_UNREADABLE_SCRIPT = re.compile(r"((?:Syntax|Indentation|Tab)Error): (.*)")  # printed without a header
QUOTES_FRAMES = ("RayTaskError", "ActorDiedError", "RayActorError")
"""Exceptions that repeat the traceback of a task, or of an actor's creation, without a header."""

_QUOTES_BELOW = "terminated with the following error:"
"""How torch's spawn introduces the traceback of a process that it started."""

_FRAME = re.compile(r'(\s*)File "([^"]{1,1000})", line (\d+)(?:, in (.{1,300}))?$')
_GROUP_BARS = re.compile(r"\s*(?:\| ?|\+-[-+ \d.]*$|\+ (?=Exception Group))")
_EXCEPTION_LINE = re.compile(
    r"(\s*)((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\(\w+\))?(?::(?: (.*))?)?[ \t]*$", re.DOTALL
)
_EXCEPTION_NAME = re.compile(
    r"(?i)(error|exception|exit|interrupt|warning|group|iteration|timeout|expired|abort|fault|refused|failure"
    r"|traceback|empty|full|cancelled|killed)$"
)
_COUNTS_ERRORS = re.compile(r"^\d+ validation errors? for \S+(?: [\w.]+)?$")
_PRINTED_STACK = re.compile(
    r"(?i)stack \(most recent call|most recent call first|traceback of forward|user code"
    r"|most recent call last\): +file"
)
"""Lines above a stack that is printed by a warning."""

_HOOKS = ("__getattr__", "__getattribute__", "__delattr__")
"""Functions that Python calls for a missing attribute; the line that asked for it is in the frame before."""

_CARETS = re.compile(r"\s*[~^][~^ ]*$")
_ARROW = re.compile(r"\s*-+> ?(?:\[(?P<linked>\d+)\]\([^)\n]{1,400}\)|(?P<line>\d+)) (?P<source>.*)$")
_SHOWN_IN_NOTEBOOK = 8  # lines above an exception in which a notebook's arrow stands
_NOTEBOOK_FRAMES = (
    re.compile(
        r"File \[?(?P<file>[^\s\[].{0,400}?):(?P<line>\d+)(?:\]\([^)\n]{1,400}\))?"
        r"(?:, in (?P<name>[\w.]+|<[\w ]{1,40}>)|$)"
    ),
    re.compile(r"(?P<file>Cell In ?\[\d+\]), \[?line (?P<line>\d+)(?:.{0,300}?, in (?P<name>[\w.]+))?"),
    re.compile(
        r"\[?(?P<file>(?:[/~]|[A-Za-z]:[\\/])[^\]\n]{1,400}?\.py|<ipython-input-[^>\n]{1,80}>)\]?"
        r"(?:\(https?://[^)\s]{1,200}\))? in (?P<name>[\w.]+|<[^>\n]{1,40}>)"
    ),
)
"""The frames of a notebook's traceback; in the last form, an arrow below shows the number of the line."""

_CELL = re.compile(r"<ipython-input-|[/\\](?:ipykernel_\d+[/\\]\d+|ipython-input-[\w-]+)\.py$")
_IN_CELL = "the notebook's cell"
_CHAIN = re.compile(
    r"\s*(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)"
)
_OTHER_OUTPUT = re.compile(
    r"\[?\d{4}-\d\d-\d\d|\[?[EWIF]\d{4} \d\d:|\[?(?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\b|\s*\d+%\|"
    r"|(?:srun|slurmstepd|wandb|bash|make|sh): |\S+: line \d+: "
    r"|Killed|Aborted|Segmentation|Bus error|Terminated|\{'|(?i:step|epoch|iter(?:ation)?|loss)\b"
)
"""Lines that cannot continue the message of an exception."""


def continues_no_message(text: str) -> bool:
    """Return whether a line cannot be a part of an exception's message: a frame, or other output."""
    return bool(_FRAME.match(text) or _OTHER_OUTPUT.match(text) or _CHAIN.match(text))


def begins_traceback(text: str) -> bool:
    """Return whether a line is the header of a traceback."""
    return "Traceback" in text and bool(_DRAWN_HEADER.match(text) or _HEADER.search(text))


def without_group_bars(text: str) -> str:
    """Return a line of an exception group without the bars drawn before it."""
    return _GROUP_BARS.sub("", text, count=1)


def unreadable_script(number: int, text: str, recent: Iterable[tuple[int, str]]) -> Traceback | None:
    """Return the traceback that ends with this line if Python could not parse a script, else None.

    Python prints such an error without a header, so its frame is among the `recent` lines.
    """
    error = _UNREADABLE_SCRIPT.match(text)
    if error is None:
        return None
    lines = list(recent)
    frames = [index for index, (_, line) in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return None
    traceback = Traceback()
    first, *shown = lines[frames[-1] :]
    traceback.add_frame_line(*first)
    for line_number, line in shown:  # the source line and its mark, whatever they look like
        traceback.add(line_number, line)
    traceback.add(number, text)
    traceback.end_exception(error[1], error[2])
    return traceback


def headless(number: int, text: str, recent: Iterable[tuple[int, str]]) -> Traceback | None:
    """Return the traceback that a frame without a header begins, as in a log that was cut; else None.

    If the line above shows that a program only printed its stack, it is not a traceback.
    """
    frame = _FRAME.match(text)
    if frame is None or not frame[4]:
        return None
    above = next((line for _, line in reversed([*recent]) if line.strip()), "")
    if _PRINTED_STACK.search(above):
        return None
    traceback = Traceback()
    traceback.headless = True
    quoting = _EXCEPTION_LINE.match(above)
    if quoting and quoting[2].endswith(QUOTES_FRAMES):
        traceback.quoted_by(Raised(quoting[2], (quoting[3] or "")[:_MAX_MESSAGE], None))
    traceback.add_frame_line(number, text)
    return traceback


class Traceback:
    """One traceback with those chained to it, or several interleaved ones of unnamed ranks.

    `pending` counts the headers whose exception has not been read yet. `chained` says that the next traceback
    was announced as chained to this one. `grouped` marks an exception group, `headless` one whose
    header is not in the log, and `ignored` one of which Python says that it ignored the exception.
    """

    def __init__(self) -> None:
        """Begin behind the first header."""
        self.numbers: list[int] = []
        self.texts: list[str] = []
        self.pending = 1
        self.chained = False
        self.grouped = False
        self.headless = False
        self.ignored = False
        self.raised: list[Raised] = []
        self._size = 0
        self._mixed = False  # tracebacks of several ranks are interleaved
        self._message_follows = False  # the next line belongs to the last exception's message
        self._raised_before = False  # the next exception was raised before the last one
        self._before = 0  # the index in `raised` of the exception that it was raised before
        self._newest = -1  # the index of the exception that was read last
        self._drawn: str | None = None  # by rich ("") or a notebook (the exception's name), not by Python
        self._width = 0  # of the box that rich draws
        self._wrapped = 0  # the length of the last line, if it may have been broken at the box's width
        self._frames: list[Frame] = []
        self._indent = 2
        self._message: list[str] = []

    @property
    def cut_at(self) -> Frame | None:
        """Return the last frame, if the exception that it led to was not read."""
        told = self.raised and not (self.pending and self._raised_before)
        return None if told or not self._frames else self._frames[-1]

    def quoted_by(self, raised: Raised) -> None:
        """Note that the line above is an exception which quotes the frames that follow."""
        self.raised, self._newest = [raised], 0
        self._raised_before, self._before = True, 0

    def add(self, number: int, text: str) -> None:
        """Keep a line, as long as there is room."""
        if self._size < MAX_TEXT:
            self.numbers.append(number)
            self.texts.append(text)
            self._size += len(text) + 1

    # --- headers ------------------------------------------------------------------------------------

    def take_header(self, number: int, text: str) -> None:
        """Read the header of this traceback or of one inside it."""
        if not self.numbers:
            self.grouped = "Exception Group" in text
        else:
            self._nested_header(text)
        self.add(number, text)
        drawn = _DRAWN_HEADER.match(text)
        self._drawn = (drawn[1] or "") if drawn else None
        self._width = len(text) if self._drawn == "" else 0

    def continues_with(self, header: str) -> bool:
        """Return whether a header belongs to this traceback."""
        return self.pending != 0 or self.chained or self._quotes_traceback(header)

    def _nested_header(self, text: str) -> None:
        """Note another header: of a chained exception, of a quoted one, or of another rank."""
        self._mixed = self._mixed or self.pending > 0
        self._raised_before = not self.pending and self._quotes_traceback(text)
        self._before = len(self.raised) - 1
        self.pending += 1
        self.chained = False
        if not self._mixed:
            self._frames.clear()

    def _quotes_traceback(self, text: str) -> bool:
        """Return whether the last exception quotes the traceback that this header begins.

        The quoted traceback is a worker's, or that of a member of an exception group.
        """
        above = self._message[-1] if self._message else ""
        quoted = "Original Traceback" in text or above == '"""' or above.endswith(_QUOTES_BELOW)
        return bool(self.raised) and (quoted or (self.grouped and not self.chained))

    # --- other lines --------------------------------------------------------------------------------

    def take(self, number: int, text: str) -> bool:
        """Read a line if it belongs to this traceback; return whether it does."""
        if self._quotes_frames(text):
            self.pending, self._raised_before, self._before = 1, True, self._newest
            self._frames.clear()
        if self.pending:
            take = self.add_frame_line if self._drawn is None else self._add_drawn_line
            return take(number, text)
        return self._add_message_line(number, text)

    def _quotes_frames(self, text: str) -> bool:
        """Return whether a line begins the frames that the last exception quotes without a header."""
        quotes = not self.pending and self.raised and self.raised[self._newest].name.endswith(QUOTES_FRAMES)
        return bool(quotes and _FRAME.match(text))

    def _add_message_line(self, number: int, text: str) -> bool:
        """Read a line below an exception: the rest of its message, or the words that chain the next one."""
        if _CHAIN.match(text):
            self.chained = True
        elif _OTHER_OUTPUT.match(text) or len(self._message) >= MAX_LINES:
            return False
        elif self._join_wrapped(number, text):
            return True
        elif (self._message_follows or goes_on(self.raised[self._newest], text)) and text.strip():
            self.raised[self._newest] = with_next_line(self.raised[self._newest], text)
            self._message_follows = names_no_error_yet(self.raised[self._newest])
        self._message.append(text.strip())
        self.add(number, text)
        return True

    def _join_wrapped(self, number: int, text: str) -> bool:
        """Join a line to the message above, if rich broke that where the next word would leave its box.

        Return whether it did. The text of the event has the whole message in one line as well.
        """
        first, _, _ = text.partition(" ")
        if not (first and self._wrapped) or not self._wrapped <= self._width < self._wrapped + 1 + len(first):
            self._wrapped = 0
            return False
        above = next(index for index in range(len(self.texts) - 1, -1, -1) if self.texts[index])
        self.texts[above] = f"{self.texts[above].rstrip()} {text.strip()}"
        self.raised[self._newest] = with_next_line(self.raised[self._newest], text)
        self._wrapped = len(text)
        self.add(number, "")
        return True

    def add_frame_line(self, number: int, text: str) -> bool:
        """Read a line of Python's own traceback; return False if it is another rank's or thread's."""
        if found := _FRAME.match(text):
            self._indent = len(found[1])
            self._frames.append(Frame(found[2], int(found[3]), found[4] or ""))
        elif _CHAIN.match(text):
            self.chained = True
        else:
            ending = _EXCEPTION_LINE.match(text)
            if ending and self._frames and len(ending[1]) < self._indent and _is_exception(ending[2]):
                self._add_exception_line(number, text, ending)
                return True
            if self._indent == 0:
                return self._add_flat_line(number, text, ending)
            if text and not text[0].isspace() and not self._mixed:
                return False
        self.add(number, text)
        return True

    def _add_flat_line(self, number: int, text: str, ending: re.Match[str] | None) -> bool:
        """Read a line of a traceback that lost its indents: one line of source follows each frame."""
        below_source = bool(self.texts) and not _FRAME.match(self.texts[-1])
        if ending and _EXCEPTION_NAME.search(ending[2]) and (":" in text or below_source):
            self._add_exception_line(number, text, ending)
            return True
        if not text.strip() or not self.texts or not _FRAME.match(self.texts[-1]):
            return False
        self.add(number, text)
        return True

    def _add_drawn_line(self, number: int, text: str) -> bool:
        """Read a line of a traceback with code drawn around it; rich breaks paths, so it has no frames."""
        if self._drawn:
            self._note_notebook_frame(text)
        ending = _EXCEPTION_LINE.match(text)
        name = ending[2].rpartition(".")[2] if ending and not ending[1] else ""
        if ending and (self._ends_notebook(name, text) if self._drawn else _is_exception(name)):
            self._add_exception_line(number, text, ending)
            return True
        if not self._drawn and text and not text.lstrip().startswith(_BOX):
            return False
        if number - self.numbers[0] > PATIENCE:
            return False
        self.add(number, text)
        return True

    def _ends_notebook(self, name: str, text: str) -> bool:
        """Return whether a line of a notebook's traceback is its exception.

        It has the name in the header; of chained tracebacks whose middle was left out, that of the last one.
        """
        cut = bool(self._frames) and ":" in text and _EXCEPTION_NAME.search(name) is not None
        return name == self._drawn or cut

    def _note_notebook_frame(self, text: str) -> None:
        """Note the frame that a line of a notebook's traceback begins, or the number of its line."""
        if arrow := _ARROW.match(text):
            if self._frames and not self._frames[-1].line:
                self._frames[-1] = self._frames[-1]._replace(line=int(arrow["line"] or arrow["linked"]))
            return
        found = next(filter(None, (pattern.match(text) for pattern in _NOTEBOOK_FRAMES)), None)
        if found is not None:
            file = _IN_CELL if _CELL.search(found["file"]) else found["file"]
            line = found.groupdict().get("line") or 0
            self._frames.append(Frame(file, int(line), found["name"] or ""))

    # --- exceptions ---------------------------------------------------------------------------------

    def _add_exception_line(self, number: int, text: str, found: re.Match[str]) -> None:
        self.add(number, text)
        self.end_exception(found[2], (found[3] or "")[:_MAX_MESSAGE])

    def end_exception(self, name: str, message: str) -> None:
        """Record the exception that the frames so far lead to; the source of an assertion is its message."""
        if name == "AssertionError" and not message:
            message = self._source_of_assertion()
        index = self._before if self._raised_before else len(self.raised)
        source = source_above(self.texts[:-1])
        self.raised.insert(index, Raised(name, message, self._innermost_frame(), *source))
        self._newest = index
        goes_on = self.texts[-1].rstrip().endswith(":") or names_no_error_yet(self.raised[index])
        self._message_follows = goes_on and not self._raised_before
        self._wrapped = len(self.texts[-1]) if not self._raised_before else 0
        self._raised_before = False
        self.pending -= 1
        self._message = []
        if not self.pending:
            self._frames.clear()

    def _source_of_assertion(self) -> str:
        """Return the `assert` that was shown last, or an empty text if it was not shown."""
        shown = (text.strip() for text in reversed(self.texts[-_SHOWN:-1]))
        return next((text[:_MAX_MESSAGE] for text in shown if text.startswith("assert ")), "")

    def _innermost_frame(self) -> Frame | None:
        """Return the last frame, or None if interleaved ranks are not all at the same line."""
        if not self._frames:
            return None
        last = {(frame.file, frame.line) for frame in self._frames[-self.pending :]}
        if self._mixed:
            return self._frames[-1] if len(last) == 1 else None
        asking = (frame for frame in reversed(self._frames) if frame.name not in _HOOKS)
        return next(asking, self._frames[-1])


def source_above(texts: Sequence[str]) -> tuple[str, str]:
    """Return the line of code that is shown last, and the part of it that Python underlined with `~`.

    Both are empty if there is none. A notebook marks the line with an arrow.
    """
    for back, text in enumerate(reversed(texts[-_SHOWN_IN_NOTEBOOK:])):
        if arrow := _ARROW.match(text):
            return arrow["source"].strip(), ""
        if back >= _SHOWN:
            continue
        if _CARETS.match(text):
            source = texts[-back - 2] if back + 2 <= len(texts) else ""
            begin, end = text.find("~"), text.find("^")
            return source.strip(), source[begin:end].strip() if 0 <= begin < end else ""
    above = texts[-1] if texts else ""
    framed = len(texts) > 1 and _FRAME.match(texts[-2])
    return (above.strip(), "") if framed and not _FRAME.match(above) else ("", "")


_OF_MISSING_LIBRARY = re.compile(r"\w+ requires the .{1,60} library but it was not found")
_PLACE_IN_YAML = re.compile(r' *in "[^"\n]{1,400}", line \d+, column \d+')
_OF_NCCL = re.compile(r"NCCL [Ee]rror in: ")
_RESULT_OF_NCCL = re.compile(r"nccl[A-Z]\w+: |Last error:")
_OF_DEAD_ACTOR = re.compile(r"The actor died unexpectedly before finishing this task")
_ACTORS_FIELD = re.compile(r"\s+(?:class_name|actor_id|pid|name|namespace|ip): ")
_END_OF_ACTOR = re.compile(r"The actor (?:is dead because|never ran)")
"""How Ray says in the last line of a message why an actor died; the lines before name the actor."""


def goes_on(raised: Raised, text: str) -> bool:
    """Return whether the next line belongs to a message.

    A bracket is open, NCCL says what failed, YAML names a place, Ray says why an actor died, or transformers
    and diffusers name a library that is missing.
    """
    message = raised.message
    if raised.name.startswith("yaml."):
        return _PLACE_IN_YAML.match(text) is not None
    if not message:
        return _OF_MISSING_LIBRARY.match(text) is not None
    if _OF_MISSING_LIBRARY.match(message) and not message.endswith((".", "`")):
        return True
    if _OF_DEAD_ACTOR.match(message):
        return bool(_ACTORS_FIELD.match(text) or _END_OF_ACTOR.match(text))
    if message.count("(") > message.count(")"):
        return message.endswith("(") or text[:1] in (" ", ")", "\t")
    return bool(_OF_NCCL.match(message)) and bool(_RESULT_OF_NCCL.match(text) or message.endswith(":"))


def names_no_error_yet(raised: Raised) -> bool:
    """Return whether a message of pydantic has only the number of errors, and maybe the first field."""
    return bool(_COUNTS_ERRORS.search(raised.message))


def with_next_line(raised: Raised, text: str) -> Raised:
    """Return an exception whose message ends in a colon, or is empty, with the line that follows it.

    transformers and diffusers print "... because of the following error", and the error on the next line.
    What Ray says of a dead actor's name and place is left out.
    """
    if _OF_DEAD_ACTOR.match(raised.message) and _ACTORS_FIELD.match(text):
        return raised
    return raised._replace(message=f"{raised.message} {text.strip()}".strip()[:_MAX_MESSAGE])


def _is_exception(name: str) -> bool:
    """Return whether a name looks like that of an exception class."""
    last = name.rpartition(".")[2]
    return bool(_EXCEPTION_NAME.search(last)) or (last != name and last[:1].isupper())
