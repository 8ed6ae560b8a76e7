"""Translate reports: the phrases of reports for people, and the texts of rules; lay out wide characters.

English texts are in the code and in compat/rules. A language is a file in compat/lang that maps English
texts to its own; a text that it lacks stays English. This module opens no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from envcheck.core.records import NamedTuple

# Marks that may not begin a line in Chinese, and marks that may not end one.
_CLOSING = "，。；：、）》”」！？"  # noqa: RUF001 - those marks
_OPENING = "（《“「"  # noqa: RUF001
_WIDE = r"\u2e80-\uffef"

_LONGEST = 2000  # characters of a sentence that is matched against templates


class RuleText(NamedTuple):
    """A rule's texts in one language.

    `cost` has one text for each fix, in the rule's order, which is empty where the English rule has none.
    `no_fix` has one for each change that does not help.
    """

    title: str = ""
    why: str = ""
    cost: tuple[str, ...] = ()
    no_fix: tuple[str, ...] = ()


class Language:
    """Translations of one language; for English there are none, and every text stays as it is.

    `words` maps the phrases of reports. `sentences` maps texts that reach a report complete: why a fact could
    not be read, where it was read, notes of the judge. Both map templates, in which `{}` is a placeholder.
    """

    def __init__(
        self,
        name: str = "en",
        words: Mapping[str, str] | None = None,
        sentences: Mapping[str, str] | None = None,
        rules: Mapping[str, RuleText] | None = None,
    ) -> None:
        """Take the translations; none for English."""
        self.name = name
        self.words = words or {}
        self.sentences = sentences or {}
        self.rules = rules or {}

    def say(self, template: str, *args: object) -> str:
        """Translate a template of the report and fill in its placeholders."""
        return self.words.get(template, template).format(*args)

    def word(self, text: str) -> str:
        """Translate a word or phrase that is a value, not a template."""
        return self.words.get(text, text) if self.words else text

    def alternatives(self, raw: str) -> str:
        """Translate a clause as a rule file spells it: `absent or true`; values stay as they are."""
        if not self.words:
            return raw
        said = (self.word(each) if each in ("absent", "present") else each for each in raw.split(" or "))
        return self.word(" or ").join(said)

    def translate(self, sentence: str) -> str:
        """Translate a complete sentence by the template that it matches; without one, return it unchanged.

        A sentence that ends with the id of a rule in parentheses begins with the rule's title. An exception
        and its message are quoted from a log, and stay as they are.
        """
        if not self.sentences or len(sentence) > _LONGEST:
            return sentence
        if sentence in self.sentences:
            return self.sentences[sentence]
        text, _, rule_id = sentence.removesuffix(")").rpartition(" (")
        if rule_id in self.rules and sentence.endswith(")"):
            return f"{self.title(rule_id, text)} ({rule_id})"
        if self._quotation.match(sentence):
            return sentence
        for form, template in self._forms:
            if found := form.fullmatch(sentence):
                return template.format(*(self.translate(part) for part in found.groups()))
        return sentence

    @cached_property
    def _quotation(self) -> Any:
        import re  # English does not need it

        return re.compile(r"[\w.]{0,200}(?:Error|Exception|Warning|Interrupt|Failure): ")

    @cached_property
    def _forms(self) -> list[tuple[Any, str]]:
        import re  # English does not need it

        return [
            (re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), template)
            for english, template in self.sentences.items()
            if "{}" in english
        ]

    def without(self, rule_ids: Collection[str]) -> Language:
        """Return this language without the texts of these rules."""
        if self.rules.keys().isdisjoint(rule_ids):
            return self
        rules = {rule_id: text for rule_id, text in self.rules.items() if rule_id not in rule_ids}
        return Language(self.name, self.words, self.sentences, rules)

    def title(self, rule_id: str, english: str) -> str:
        """Translate a rule's title; titles of generated rules are among the sentences."""
        return self.rules[rule_id].title or english if rule_id in self.rules else self.translate(english)

    def why(self, rule_id: str, english: str) -> str:
        """Translate a rule's explanation."""
        return (self.rules[rule_id].why if rule_id in self.rules and english else "") or english

    def cost(self, rule_id: str, costs: Sequence[str], english: str) -> str:
        """Translate the cost of a fix; `costs` are the English costs of all fixes of the rule, in order."""
        known = self.rules.get(rule_id)
        return _translate_by_position(known.cost, costs, english) if known else english

    def no_fix(self, rule_id: str, reasons: Sequence[str], english: str) -> str:
        """Translate why a change does not fix a rule; `reasons` are those of all such changes, in order."""
        known = self.rules.get(rule_id)
        return _translate_by_position(known.no_fix, reasons, english) if known else english


def _translate_by_position(translated: Sequence[str], originals: Sequence[str], english: str) -> str:
    """Return the translation at the position of an English text, or the text if the lists do not match."""
    if not english or len(translated) != len(originals) or english not in originals:
        return english
    return translated[originals.index(english)] or english


ENGLISH = Language()


def parse_language(name: str, tree: Mapping[str, Any]) -> Language:
    """Return the language in a parsed file: `[words]`, `[sentences]`, and the texts of each `[rule.ID]`."""
    rules = {
        rule_id: RuleText(
            row.get("title", ""), row.get("why", ""), tuple(row.get("cost", ())), tuple(row.get("no_fix", ()))
        )
        for rule_id, row in tree.get("rule", {}).items()
    }
    return Language(name, tree.get("words", {}), tree.get("sentences", {}), rules)


# --- choosing the language --------------------------------------------------------------------------


def choose_language(option: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the language to use, and the option or variable that requests it.

    The order is `--lang`, ENVCHECK_LANG, then the first of LC_ALL, LC_MESSAGES and LANG that is set. The
    request is empty for the locale: if there is no such language, that is not an error.
    """
    if option is not None:
        return _name(option), f"--lang {option!r}"
    if variable := environ.get("ENVCHECK_LANG"):
        return _name(variable), f"ENVCHECK_LANG={variable!r}"
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "C")
    return _name(locale), ""


def _name(locale: str) -> str:
    """Return `zh` for `zh_CN.UTF-8` and `zh-Hans`, and `en` for `C` and `POSIX`."""
    for mark in "@._-":
        locale = locale.partition(mark)[0]
    name = locale.lower()
    return ENGLISH.name if name in ("c", "posix") else name


# --- columns ----------------------------------------------------------------------------------------


def pad(text: str, columns: int) -> str:
    """Pad a text with spaces to a number of terminal columns; a Chinese character takes two."""
    return text + " " * (columns - width(text))


def width(text: str) -> int:
    """Return the number of terminal columns a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)


def counted(number: int, noun: str) -> str:
    """Return `1 file` or `2 files`; the noun must form its plural with s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wrap(text: str, columns: int) -> list[str]:
    """Wrap a text to a number of columns; Chinese breaks anywhere except before a closing mark.

    Words are never broken, so that a URL or a path too long for the terminal can still be clicked.
    """
    import re

    if width(text) == len(text):
        import textwrap

        return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    lines, used = [""], 0  # `used` is the width of the last line
    # A unit is a word or one wide character, with the opening marks before it and the closing marks after it.
    for unit in re.findall(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*|\s+", text):
        if used + width(unit.rstrip()) > columns and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append("")
            used = 0
        added = unit if lines[-1] or len(lines) == 1 else unit.lstrip()  # an indentation stays
        lines[-1] += added
        used += width(added)
    return lines
