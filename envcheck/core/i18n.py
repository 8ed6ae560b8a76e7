"""What envcheck says, in another language than English: doctor's own words, and the texts of rules.

English stands in the code and in compat/rules; a language is a file in compat/lang that maps it, and what
it lacks is said in English. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

# What Chinese does not begin a line with, and what it does not end one with.
_CLOSING = "，。；：、）》”」！？"  # noqa: RUF001 - those marks
_OPENING = "（《“「"  # noqa: RUF001
_WIDE = r"\u2e80-\uffef"

_LONGEST = 2000  # characters of a sentence that is worth recognising by its form


class RuleText(NamedTuple):
    """A rule's texts; `cost` has one for each fix in the rule's order, empty where the rule has none.

    `no_fix` has one for each change that does not help.
    """

    title: str = ""
    why: str = ""
    cost: tuple[str, ...] = ()
    no_fix: tuple[str, ...] = ()


class Language:
    """The words of one language; English, which has none, is the identity.

    `words` maps what a report says itself, `sentences` what reaches it ready-made (why a fact could not be
    read, where it came from, what the judge notes). Both are templates: `{}` holds a place.
    """

    def __init__(
        self,
        name: str = "en",
        words: Mapping[str, str] | None = None,
        sentences: Mapping[str, str] | None = None,
        rules: Mapping[str, RuleText] | None = None,
    ) -> None:
        """Take the words, none for English."""
        self.name = name
        self.words = words or {}
        self.sentences = sentences or {}
        self.rules = rules or {}

    def say(self, template: str, *args: object) -> str:
        """A template of ours with its places filled in."""
        return self.words.get(template, template).format(*args)

    def word(self, text: str) -> str:
        """A word or phrase that is a value: the one for it, if there is one. It is no template."""
        return self.words.get(text, text) if self.words else text

    def told(self, sentence: str) -> str:
        """A sentence made elsewhere, recognised by its form; as it is where none fits."""
        if not self.sentences or len(sentence) > _LONGEST:
            return sentence
        if sentence in self.sentences:
            return self.sentences[sentence]
        for form, template in self._forms:
            if found := form.fullmatch(sentence):
                return template.format(*(self.told(part) for part in found.groups()))
        return sentence

    @cached_property
    def _forms(self) -> list[tuple[Any, str]]:
        import re  # English needs none

        return [
            (re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), template)
            for english, template in self.sentences.items()
            if "{}" in english
        ]

    def without(self, rule_ids: Collection[str]) -> Language:
        """The same, knowing nothing of these rules."""
        if self.rules.keys().isdisjoint(rule_ids):
            return self
        rules = {rule_id: text for rule_id, text in self.rules.items() if rule_id not in rule_ids}
        return Language(self.name, self.words, self.sentences, rules)

    def title(self, rule_id: str, english: str) -> str:
        """A rule's title; generated rules have theirs among the sentences."""
        return self.rules[rule_id].title or english if rule_id in self.rules else self.told(english)

    def why(self, rule_id: str, english: str) -> str:
        """A rule's explanation."""
        return (self.rules[rule_id].why if rule_id in self.rules and english else "") or english

    def cost(self, rule_id: str, costs: Sequence[str], english: str) -> str:
        """What a way out of a rule costs; `costs` are those of all its ways out, in their order."""
        known = self.rules.get(rule_id)
        return _same_place(known.cost, costs, english) if known else english

    def no_fix(self, rule_id: str, reasons: Sequence[str], english: str) -> str:
        """Why a change does not mend a rule; `reasons` are those of all such changes, in their order."""
        known = self.rules.get(rule_id)
        return _same_place(known.no_fix, reasons, english) if known else english


def _same_place(ours: Sequence[str], theirs: Sequence[str], english: str) -> str:
    """The text of ours that stands where an English one does among theirs; the English one if none fits."""
    if not english or len(ours) != len(theirs) or english not in theirs:
        return english
    return ours[theirs.index(english)] or english


ENGLISH = Language()


def parse_language(name: str, tree: Mapping[str, Any]) -> Language:
    """The language of a parsed file: `[words]`, `[sentences]`, and `[rule.ID]` with its texts."""
    rules = {
        rule_id: RuleText(
            row.get("title", ""), row.get("why", ""), tuple(row.get("cost", ())), tuple(row.get("no_fix", ()))
        )
        for rule_id, row in tree.get("rule", {}).items()
    }
    return Language(name, tree.get("words", {}), tree.get("sentences", {}), rules)


# --- which one --------------------------------------------------------------------------------------


def choose_language(option: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """The name of the language wanted, and what asked for it: empty for the locale, which only suggests.

    `--lang`, else ENVCHECK_LANG, else the first of LC_ALL, LC_MESSAGES and LANG that is set.
    """
    if option is not None:
        return _name(option), f"--lang {option!r}"
    if wanted := environ.get("ENVCHECK_LANG"):
        return _name(wanted), f"ENVCHECK_LANG={wanted!r}"
    locale = next((environ[each] for each in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(each)), "C")
    return _name(locale), ""


def _name(locale: str) -> str:
    """`zh` of `zh_CN.UTF-8` and of `zh-Hans`; `en` of `C` and `POSIX`."""
    for mark in "@._-":
        locale = locale.partition(mark)[0]
    name = locale.lower()
    return ENGLISH.name if name in ("c", "posix") else name


# --- columns ----------------------------------------------------------------------------------------


def pad(text: str, columns: int) -> str:
    """The text with spaces up to so many columns of a terminal, where a Chinese character takes two."""
    return text + " " * (columns - width(text))


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return len(text) + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`: for a noun that takes an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wrap(text: str, columns: int) -> list[str]:
    """The text over lines of so many columns; Chinese breaks anywhere but before a closing mark.

    Words are never broken: a URL or a path that is too long for the terminal is still one to click.
    """
    import re

    if width(text) == len(text):
        import textwrap

        return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [""]
    # A unit is a word or one wide character, with the opening marks before it and the closing ones behind.
    for unit in re.findall(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*|\s+", text):
        if width(lines[-1] + unit.rstrip()) > columns and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += unit if lines[-1] else unit.lstrip()
    return lines
