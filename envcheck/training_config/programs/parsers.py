"""Parsers of argparse: what they declare, and which words of a command line are whose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.builtin_functions import converted
from envcheck.training_config.programs.recorded_calls import Arguments
from envcheck.training_config.programs.values import (
    MISSING,
    Further,
    LibraryName,
    PartialText,
    Value,
    either,
    is_list,
)
from envcheck.training_config.values import compact

_WITHOUT_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "version", "help")
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-[0-9.]+(?:e-?[0-9]+)?")
_MOST_COMMANDS = 40  # of one program
_ANY, _AT_MOST_ONE = -1, -2  # words after a flag


class GivenArguments(NamedTuple):
    """Arguments of a program on its command line.

    `named` are the values of options, by name, `more` the words after the value of an option, which belong to
    it if it takes a list, and `rest` is the reason why there may be other arguments, or "". `words` are all
    words in their order; None if they are not known, as of a program that no launch line starts.
    """

    named: Mapping[str, Value]
    rest: str = ""
    more: Mapping[str, tuple[Value, ...]] = {}
    words: tuple[Value, ...] | None = None


class Positional(NamedTuple):
    """Argument that is given by its position; `many` if it takes all words that are left."""

    name: str
    many: bool


@dataclass(eq=False)
class Commands:
    """Subcommands of a parser; their names are stored in the option `dest`, or "" for none."""

    dest: str = ""
    parsers: dict[str, Parser] = field(default_factory=dict)


@dataclass(eq=False)
class Parser:
    """Parser of argparse: the default of each option, and the value that each flag stores in which option.

    A flag without a constant of its own stores what the command line gives it. `lists` are the options that
    take several values, `counts` says how many words follow a flag: a number, `_ANY`, or `_AT_MOST_ONE`.
    """

    options: dict[str, Value] = field(default_factory=dict)
    flags: dict[str, tuple[str, Value]] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    positionals: list[Positional] = field(default_factory=list)
    commands: Commands | None = None

    def declare(self, given: Arguments) -> None:
        """Add the option that `add_argument` is given."""
        flags = [each for each in given.positional if isinstance(each, str)]
        if not flags:
            return
        spelled = [flag.lstrip("-").replace("-", "_") for flag in flags]
        long = next(
            (name for flag, name in zip(flags, spelled, strict=True) if flag.startswith("--")), spelled[0]
        )
        given_name = given.keyword("dest")
        name = given_name if isinstance(given_name, str) else long
        action = given.keyword("action")
        default = given.keyword("default")
        constant: Value = MISSING
        if action in ("store_true", "store_false"):
            constant = action == "store_true"
            default = (not constant) if default is MISSING else default
        elif action == "store_const":
            constant = given.keyword("const")
        if isinstance(default, str) and isinstance(given.keyword("type"), LibraryName):
            number = _converted_option(default, given.keyword("type"))
            default = default if number is MISSING else number
        if default is MISSING and given.keyword("required") is True:
            default = Unknown(f"{flags[-1]} has to be given")
        # Two options may share a variable; the first one that declares it gives the default.
        self.options.setdefault(name, None if default is MISSING else default)
        count = given.keyword("nargs")
        several = count not in (MISSING, None, "?")
        if not flags[0].startswith("-"):
            self.positionals.append(Positional(name, several))
            return
        words = _ANY if several else _AT_MOST_ONE if count == "?" else 1
        words = 0 if action in _WITHOUT_VALUE else count if type(count) is int else words
        for each in spelled:
            self.flags[each] = (name, constant)
            self.counts[each] = words
        if several:
            self.lists.add(name)

    def inherit(self, other: Parser) -> None:
        """Add all that another parser declares."""
        self.options.update(other.options)
        self.flags.update(other.flags)
        self.lists |= other.lists
        self.counts.update(other.counts)
        self.positionals += other.positionals
        self.commands = self.commands or other.commands


class ReadWords(NamedTuple):
    """Words of a command line as a parser reads them.

    `items` are the values of positional arguments by name, `parsers` the parser and the ones of the
    subcommands that are named, from the outside, and `left` the words that are none of their arguments. It
    is not `certain` if the word of a subcommand is not known.
    """

    items: dict[str, Value]
    parsers: tuple[Parser, ...]
    left: tuple[Value, ...]
    certain: bool = True


def read_words(parser: Parser, words: Sequence[Value]) -> ReadWords:
    """Return which words are positional arguments and subcommands of a parser, and which are none."""
    items: dict[str, Value] = {}
    left: list[Value] = []
    waiting = [*parser.positionals]
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        known = _beginning(word)
        if known.startswith("-") and not _NUMBER.fullmatch(known):
            name, equals, _ = known.partition("=")
            name = name.lstrip("-").replace("-", "_")
            if name not in parser.counts:
                left.append(word)
            elif not equals:
                i += _taken(words[i:], parser.counts[name])
        elif isinstance(word, Further):
            left.append(word)
            waiting.clear()
        elif waiting:
            first = waiting.pop(0)
            count = _taken(words[i:], _ANY) if first.many else 0
            items[first.name] = tuple(words[i - 1 : i + count]) if first.many else word
            i += count
        elif parser.commands is not None and not isinstance(word, str):
            return ReadWords(items, (parser,), tuple(left), certain=False)
        elif parser.commands is not None and word in parser.commands.parsers:
            inner = read_words(parser.commands.parsers[word], words[i:])
            if parser.commands.dest:
                items[parser.commands.dest] = word
            return inner._replace(
                items={**items, **inner.items},
                parsers=(parser, *inner.parsers),
                left=(*left, *inner.left),
            )
        else:
            left.append(word)
    return ReadWords(items, (parser,), tuple(left))


def given_in(words: Sequence[Value]) -> GivenArguments:
    """Return the arguments in a list of words, as where a program makes the list itself."""
    named: dict[str, Value] = {}
    more: dict[str, tuple[Value, ...]] = {}
    rest = ""
    for i, word in enumerate(words):
        if isinstance(word, Further):
            rest = rest or word.why
        if isinstance(word, PartialText):
            spelled, equals, _ = _beginning(word).partition("=")
            name = spelled.lstrip("-").replace("-", "_")
            named |= {name: Unknown("a part of it is not known")} if equals and name else {}
        if isinstance(word, str) and (setting := _SETTING.fullmatch(word)):  # an override of Hydra
            named[setting[1]] = typed(setting[2])
        if not isinstance(word, str) or not word.startswith("-") or _NUMBER.fullmatch(word):
            continue
        spelled, equals, value = word.partition("=")
        name = spelled.lstrip("-").replace("-", "_")
        following = words[i + 1 : i + 1 + _taken(words[i + 1 :], _ANY)]
        named[name] = typed(value) if equals else typed(following[0]) if following else True
        if len(following) > 1 and not equals:
            more[name] = tuple(map(typed, following[1:]))
    return GivenArguments(named, rest, more, tuple(words))


def typed(value: Value) -> Value:
    """Return the value that a parser makes of a word: a number, a truth value, or the text."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    number = converted("float", value) if _NUMBER.fullmatch(f"-{value.lstrip('-')}") else MISSING
    return compact(number) if isinstance(number, float) else value


def _beginning(word: Value) -> str:
    """Return the text that a word begins with, as far as it is known."""
    first = word.parts[0] if isinstance(word, PartialText) else word
    return first if isinstance(first, str) else ""


def all_parsers(parser: Parser) -> Iterator[Parser]:
    """Yield a parser and those of all its subcommands, each once."""
    waiting, seen = [parser], 0
    while waiting and seen < _MOST_COMMANDS:
        each = waiting.pop(0)
        seen += 1
        yield each
        if each.commands is not None:
            waiting += dict.fromkeys(each.commands.parsers.values())


def joined_defaults(parsers: Sequence[Parser], why: str) -> dict[str, Value]:
    """Return the defaults of options of which one of several parsers counts; Unknown where they differ."""
    found: dict[str, Value] = {}
    for parser in parsers:
        for name, value in parser.options.items():
            one = either(found.get(name, value), value)
            found[name] = Unknown(why) if one is MISSING else one
    return found


def _taken(words: Sequence[Value], count: int) -> int:
    """Return how many of the next words an option takes; any number of them ends at the next option."""
    if count >= 0:
        return count
    found = 0
    while found < len(words) and not (isinstance(words[found], str) and words[found].startswith("-")):
        found += 1
    return min(found, 1) if count == _AT_MOST_ONE else found


def option_of(given: GivenArguments, name: str, *, takes_list: bool) -> Value:
    """Return the value of an option that was given; of a list, all its words."""
    first = given.named[name]
    if not takes_list:
        return first
    return (*(first if is_list(first) else (first,)), *given.more.get(name, ()))


def _converted_option(default: str, kind: LibraryName) -> Value:
    name = kind.name.removeprefix("builtins.")
    return converted(name, default) if name in ("int", "float") else MISSING
