"""Configurations that a script writes, copies or edits before a launch line names them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.printing import text_of
from envcheck.training_config.launch_scripts.structure_edits import HOLE, Edit, edits
from envcheck.training_config.launch_scripts.syntax import Node, Redirect, SimpleCommand
from envcheck.training_config.launch_scripts.values import (
    Fragment,
    Scope,
    Value,
    argument,
    first_value,
    known_text,
    spelled,
    unknown,
)

_MAX_TEXT = 10_000  # characters of a file that is copied or edited
_FIRST_HOLE, _MOST_HOLES = 0xE001, 1_000
"""The first of the characters that stand for unknown parts of a text that `sed` edits, and their number."""

_CHARACTERS_OF_A_STEP = 64  # of a text that is searched, as part of the budget of the script
_EDITORS = ("jq", "yq")
_COPIES = ("cp", "mv")
WRITERS = frozenset({"cat", "tee", "echo", "printf", "envsubst", "sed", "jq", "yq", "sponge", *_COPIES})
"""Programs that print the text of a configuration, which a script keeps in a file."""

_KEEP_INPUT = ("tee", "sponge")
"""Those of them that write their standard input into the files that they are given."""

_STRUCTURED = (".json", ".yaml", ".yml", ".toml")
"""Endings of the files that are not known after a command whose text is not known has written them."""

_NAMED_VARIABLE = re.compile(r"\$\{(\w+)\}|\$([A-Za-z_]\w*)")
_CONFIGURATIONS = (
    ".json", ".yaml", ".yml", ".toml", ".py", ".sh", ".tpl", ".template", ".tmpl", ".in", ".j2", ".txt",
    ".envsubst",
)  # fmt: skip
"""Endings of the files that are copied or edited."""


class WrittenFiles:
    """Remembers the files that a script writes, with every text that each is given, by name."""

    def __init__(self, expander: Expander) -> None:
        """Begin without files."""
        self.files: dict[str, list[Value]] = {}
        self._expander, self._session = expander, expander.session
        self._printed: tuple[Node | None, Value | None] = (None, None)  # the last command, and its text
        self._piped: tuple[Node | None, Value | None] = (None, None)  # the command that reads a text

    def connect(self, before: Node | None, behind: Node) -> None:
        """Note that a command reads what the one before it prints."""
        printer, text = self._printed
        self._piped = (behind, text if printer is before else None)

    def remember(self, program: str, fields: list[Value], command: SimpleCommand, scope: Scope) -> None:
        """Remember a file that a command writes: `cat > FILE <<EOF`, `envsubst < A > FILE`, `sed -i … FILE`.

        One that it fills with a text which is not known is a file with an unknown text.

        A part of its name that is not known stays as the script spells it: a launch line that names the file
        in the same way means the same file.
        """
        names = self._files(command.redirects, (">", ">|"), scope)
        added = self._files(command.redirects, (">>", "&>>"), scope)
        if program == "tee":
            appends = any(known_text(field) in ("-a", "--append") for field in fields[1:])
            (added if appends else names).extend(
                spelled(field) for field in fields[1:] if not (known_text(field) or "").startswith("-")
            )
        edited = _replaced(program, fields)
        text = self._printed_text(program, fields, command, scope) if program in WRITERS else None
        self._printed = (command, text)
        if text is None:
            names = [name for name in names if name.endswith(_STRUCTURED)]
            added = [name for name in added if name.endswith(_STRUCTURED)]
            edited = edited if program == "sponge" and edited.endswith(_STRUCTURED) else ""
            reason = f"line {self._session.line(command.at)} writes it, and its text is not known"
            text = unknown(command.at, "?", reason)
        outer = scope.outer if scope.outer is not None and self._piped[0] is command else scope
        if edited:  # nothing else is left of the file, if the command certainly runs
            before = None if outer.certain else self._text_of(edited, command.at)
            self.files[edited] = [text if before is None else self._perhaps(before, text)]
        for name in filter(None, names):
            self.files.setdefault(name, []).append(text or (Fragment("", command.at),))
        for name in filter(None, added):
            self._append(name, text, command.at, certain=outer.certain)

    def print_into(self, redirects: Sequence[Redirect], printed: object, at: int, scope: Scope) -> None:
        """Remember the files into which `{ … } > FILE` writes what its commands print."""
        known = isinstance(printed, tuple) and not any(each.many for each in map(argument, [printed]))
        reason = f"line {self._session.line(at)} writes it, and its text is not known"
        text: Value = printed if isinstance(printed, tuple) and known else unknown(at, "?", reason)
        for name in filter(None, self._files(redirects, (">", ">|"), scope)):
            if known or name.endswith(_STRUCTURED):
                self.files.setdefault(name, []).append(text or (Fragment("", at),))
        for name in filter(None, self._files(redirects, (">>",), scope)):
            if known or name.endswith(_STRUCTURED):
                self._append(name, text, at, certain=scope.certain)

    def text_beside(self, name: str) -> str | None:
        """Return the known text of a file that the script has written, or of one beside it."""
        path = name.removeprefix("./")
        written = self.files.get(path, self.files.get(f"./{path}"))
        if written is None:
            return self._session.beside(name)
        return known_text(written[0]) if len(written) == 1 else None

    def replace(self, name: str, text: Value, at: int, *, certain: bool) -> None:
        """Remember the text of a file after a program has written it, which may not have run."""
        before = self._text_of(name, at)
        kept = [] if certain or before is None else [before]
        self.files[name] = [*kept, text]

    def _files(self, redirects: Sequence[Redirect], operators: Sequence[str], scope: Scope) -> list[str]:
        """Return the names of the files that some redirects write into."""
        return [
            spelled(self._expander.joined(redirect.word, scope))
            for redirect in redirects
            if redirect.operator in operators
        ]

    def _append(self, name: str, text: Value, at: int, *, certain: bool) -> None:
        """Remember a text at the end of a file; a command that may not run makes what it adds uncertain."""
        before = self.files.get(name)
        if before is None:
            beside = self._text_of(name, at)
            before = [beside] if beside is not None else [()]
        longer = [(*each, *text) for each in before]
        self._session.spend(sum(map(len, longer)))
        self.files[name] = longer if certain else [*before, *longer]

    def _printed_text(
        self, program: str, fields: list[Value], command: SimpleCommand, scope: Scope
    ) -> Value | None:
        """Return the text that a command prints or copies; None if that of its source is not known."""
        if program in ("echo", "printf"):
            return text_of(program, fields, command.at)
        given = self._expander.standard_input(command, scope) if program in ("cat", *_KEEP_INPUT) else None
        if given is not None:
            return given
        words = [known_text(field) for field in fields[1:]]
        if program in _COPIES:
            words = [word for word in words if not (word or "").startswith("-")]
            return self._text_of(words[0] or "", command.at) if len(words) == 2 else None  # noqa: PLR2004
        if program in _KEEP_INPUT:
            other = any((word or "").startswith("-") and word not in ("-a", "--append") for word in words)
            unread = other or (program == "sponge" and "-a" in words) or self._piped[0] is not command
            return None if unread else self._piped[1]
        return self._filtered(program, fields, command, scope)

    def _filtered(
        self, program: str, fields: list[Value], command: SimpleCommand, scope: Scope
    ) -> Value | None:
        """Return what a filter makes of the text that it reads."""
        words = [known_text(field) for field in fields[1:]]
        given, is_named = self._source(words, command, scope)
        if program in _EDITORS and given is not None:
            return self._edited(given, fields[1:-1] if is_named else fields[1:])
        if program == "sed" and given:
            changed = self._substituted(given, fields[1:-1] if is_named else fields[1:])
            return self._uncertain(given) if changed is None else changed
        options = words[:-1] if is_named else words
        if given is None or program == "cat":
            return None if options else given
        changed = self._changed(program, options, given, scope)
        return self._uncertain(given) if changed is None else changed

    def _source(
        self, words: list[str | None], command: SimpleCommand, scope: Scope
    ) -> tuple[Value | None, bool]:
        """Return the text that a filter reads, and whether its last word names the file with it."""
        sources = [redirect.word for redirect in command.redirects if redirect.operator == "<"]
        if sources:
            name = known_text(self._expander.joined(sources[0], scope))
            return self._text_of(name or "", command.at), False
        named = self._text_of((words or [None])[-1] or "", command.at)
        if named is None and self._piped[0] is command:
            return self._piped[1], False
        return named, True

    def _edited(self, given: Value, fields: list[Value]) -> Value:
        """Return a configuration after `jq` or `yq`."""
        at = fields[0][0].at if fields else given[0].at
        words = ["".join(HOLE if part.why else part.text for part in field) for field in fields]
        reason = f"line {self._session.line(at)} may change it"
        changes = edits(words, reason)
        self._session.spend(len(given) + len(changes))
        return (*given, *(Fragment("", at, edit=change) for change in changes))

    def _perhaps(self, before: Value, after: Value) -> Value:
        """Return a configuration that a command under a condition may have changed."""
        same = _unplaced(after[: len(before)]) == _unplaced(before)
        kept = before if same else self._uncertain(before)
        reason = f"line {self._session.line(before[0].at if before else 0)} may change it"
        added = (each for each in after if each.edit is not None and each not in before)
        return (*kept, *(each._replace(edit=_unknown_edit(each.edit, reason)) for each in added))

    def _uncertain(self, text: Value) -> Value:
        """Return the text of a configuration of which no value is known any more."""
        at = text[0].at if text else 0
        self._session.spend(len(text))
        change = Edit("", Unknown(f"line {self._session.line(at)} may change it"))
        return (*text, Fragment("", at, edit=change)) if text else ()

    def _text_of(self, name: str, at: int) -> Value | None:
        """Return the text of a file that the script has written, or of one beside it; else None."""
        written = self.files.get(name, self.files.get(f"./{name}"))
        if written is not None:
            return written[0] if len(written) == 1 else None
        text = self._session.beside(name) if name.endswith(_CONFIGURATIONS) else None
        return None if text is None or len(text) > _MAX_TEXT else (Fragment(text, at),)

    def contains(self, fields: list[Value], at: int) -> bool | None:
        """Return whether `grep -q PATTERN FILE` finds a line; None if that is not known."""
        from envcheck.training_config.launch_scripts.text_filters import contains

        words = [known_text(field) for field in fields[1:]]
        text = self._text_of(words[-1] or "", at) if len(words) > 1 else None
        if text is None or any(each.edit is not None for each in text):
            return None
        known, arguments = known_text(text), [word for word in words[:-1] if word is not None]
        self._session.spend(len(known or "") // _CHARACTERS_OF_A_STEP)
        return None if known is None or len(arguments) < len(words) - 1 else contains(known, arguments)

    def _substituted(self, given: Value, options: list[Value]) -> Value | None:
        """Return a text after `sed`; what is not known in it, or in what `sed` puts there, stays so.

        None if the pattern is not known.
        """
        from envcheck.training_config.launch_scripts.text_filters import filtered

        holes: list[Fragment] = []
        text, *words = (_with_holes(each, holes) for each in (given, *options))
        self._session.spend(len(text) // _CHARACTERS_OF_A_STEP + len(holes))
        if len(holes) > _MOST_HOLES or any(map(_is_hole, "".join(map(spelled, (given, *options))))):
            return None
        result = filtered(text, ["sed", *words])
        if result is None:
            return None
        replaced = any(map(_is_hole, set(text) - set(result)))
        if replaced and any(map(_SOME_CHARACTERS.search, words)):
            return None
        at = given[0].at
        parts = re.split(f"([{chr(_FIRST_HOLE)}-{chr(_FIRST_HOLE + _MOST_HOLES)}])", result)
        filled = (holes[ord(part) - _FIRST_HOLE] if _is_hole(part) else Fragment(part, at) for part in parts)
        return (*filled, *(each for each in given if each.edit is not None))

    def _changed(
        self, program: str, options: list[str | None], text: Value | None, scope: Scope
    ) -> Value | None:
        """Return what `envsubst` makes of a text; None if that is not known."""
        known = known_text(text) if text else None
        self._session.spend(len(known or "") // _CHARACTERS_OF_A_STEP)
        arguments = [option for option in options if option is not None]
        if text is None or known is None or len(arguments) < len(options):
            return None
        kept = tuple(each for each in text if each.edit is not None)
        if program == "envsubst":
            return (*self._with_variables(known, " ".join(arguments), text[0].at, scope), *kept)
        return None

    def _with_variables(self, text: str, only: str, start: int, scope: Scope) -> Value:
        """Return a text with the values of the variables that it names, or of those in `only`."""
        replaced = {found.group(1) or found.group(2) for found in _NAMED_VARIABLE.finditer(only)}
        parts: list[Fragment] = []
        at = 0
        for found in _NAMED_VARIABLE.finditer(text):
            name = found.group(1) or found.group(2)
            if only and name not in replaced:
                continue
            value = first_value(scope.get(name))
            reason = f"${name} is not set in the script"
            parts += [
                Fragment(text[at : found.start()], start),
                *(value or unknown(start, f"${name}", reason)),
            ]
            at = found.end()
        return (*parts, Fragment(text[at:], start))


_SOME_CHARACTERS = re.compile(r"(?<!\\)(?:\.(?!\*)|\[)")
"""A part of a pattern that a text of any length need not match: one character, or those of a class."""


def _with_holes(value: Value, holes: list[Fragment]) -> str:
    """Return a text with a character for each part that is not known, which is added to `holes`."""
    parts: list[str] = []
    for each in value:
        if each.why:
            holes.append(each)
        parts.append(chr(min(_FIRST_HOLE + len(holes) - 1, 0xF8FF)) if each.why else each.text)
    return "".join(parts)


def _is_hole(text: str) -> bool:
    return len(text) == 1 and _FIRST_HOLE <= ord(text) <= _FIRST_HOLE + _MOST_HOLES


def _unplaced(text: Value) -> Value:
    """Return a text without the offsets of the commands that read or changed it."""
    return tuple(part._replace(at=0) for part in text)


def _unknown_edit(edit: Edit | None, reason: str) -> Edit | None:
    """Return a change of the same setting to something that is not known."""
    return None if edit is None else Edit(edit.name, Unknown(reason))


def _replaced(program: str, fields: list[Value]) -> str:
    """Return the file that `sed -i`, `yq -i`, `cp`, `mv` or `sponge` replaces, or ""."""
    words = [known_text(field) or "" for field in fields[1:]]
    if program == "sponge":
        return spelled(fields[-1]) if words else ""
    edits = program in ("sed", "yq") and any(word.startswith(("-i", "--in-place")) for word in words[:-1])
    return words[-1] if words and (edits or program in _COPIES) else ""
