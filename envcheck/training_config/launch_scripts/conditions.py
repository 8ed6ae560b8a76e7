"""Conditions, `[ … ]` and `[[ … ]]`, in three-valued logic."""

from __future__ import annotations

from envcheck.core.facts import Tri
from envcheck.training_config.launch_scripts import arithmetic
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.syntax import Word
from envcheck.training_config.launch_scripts.values import (
    WHOLE_NUMBER,
    Scope,
    known_text,
    matches_pattern,
    spelled,
)

_TESTS_TEXT = frozenset({"-z", "-n"})
_TESTS_FILE = frozenset("-" + letter for letter in "abcdefghkoprstuvwxGLNORS")
_TESTS_TEXT_FILE = ("-e", "-f", "-r", "-s")
_COMPARES_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
_BINARY = frozenset({"=", "==", "!=", "=~", "<", ">", *_COMPARES_NUMBERS})


def evaluate(words: tuple[Word, ...], scope: Scope, expander: Expander) -> Tri:
    """Return whether the condition between the brackets is true."""
    return _Condition(words, scope, expander).disjunction()


class _Condition:
    """A recursive-descent parser that evaluates as it reads; a method moves `i` past what it read."""

    def __init__(self, words: tuple[Word, ...], scope: Scope, expander: Expander) -> None:
        self.words, self.scope, self.expander = words, scope, expander
        self.i = 0

    # --- grammar ------------------------------------------------------------------------------------

    def disjunction(self) -> Tri:
        result = self._conjunction()
        while self._peek() in ("||", "-o"):
            self.i += 1
            result = max(result, self._conjunction())
        return result

    def _conjunction(self) -> Tri:
        result = self._negation()
        while self._peek() in ("&&", "-a"):
            self.i += 1
            result = min(result, self._negation())
        return result

    def _negation(self) -> Tri:
        negated = False
        while self._peek() == "!" and self.i + 1 < len(self.words):
            self.i += 1
            negated = not negated
        result = self._primary()
        return result.negated() if negated else result

    def _primary(self) -> Tri:
        if self.i >= len(self.words):
            return Tri.NO
        word = self._take()
        operator, more = word.bare, self.i < len(self.words)
        if operator == "(":
            return self._parentheses()
        if self._peek() in _BINARY and self.i + 1 < len(self.words):
            return self._compare(word, self._take().bare, self._take())
        if operator in _TESTS_FILE and more:
            tested = self.expander.joined(self._take(), self.scope, in_condition=True)
            self.expander.session.tested.add(spelled(tested))
            name = known_text(tested) if operator in _TESTS_TEXT_FILE else ""
            return Tri.YES if name and self.expander.session.beside(name) is not None else Tri.MAYBE
        text = self._text(self._take() if operator in _TESTS_TEXT and more else word)
        return Tri.MAYBE if text is None else Tri.of((text == "") == (operator == "-z"))

    def _parentheses(self) -> Tri:
        """Step over parentheses, which are rare in conditions, and leave them undecided."""
        while self.i < len(self.words) and self._take().bare != ")":
            pass
        return Tri.MAYBE

    def _peek(self) -> str:
        return self.words[self.i].bare if self.i < len(self.words) else ""

    def _take(self) -> Word:
        self.i += 1
        return self.words[self.i - 1]

    # --- comparisons --------------------------------------------------------------------------------

    def _compare(self, left: Word, operator: str, right: Word) -> Tri:
        pattern = self._text(right)
        if operator in _COMPARES_NUMBERS:
            numbers = self._number(left), self._number(right)
            if numbers[0] is None or numbers[1] is None:
                return Tri.MAYBE
            return Tri.of(bool(arithmetic.OPERATORS[_COMPARES_NUMBERS[operator]](numbers[0], numbers[1])))
        if operator not in ("=", "==", "!=") or pattern is None:
            return Tri.MAYBE
        # An unset variable equals "". Compared with anything else it is unknown, because the author may
        # expect it to be set outside the script.
        text = self._text(left, unset_is_empty=pattern == "")
        if text is None:
            return Tri.MAYBE
        return Tri.of(matches_pattern(text, pattern, right) == (operator != "!="))

    def _number(self, word: Word) -> int | None:
        text = self._text(word, unset_is_empty=False)
        return int(text) if text and WHOLE_NUMBER.fullmatch(text) else None

    def _text(self, word: Word, *, unset_is_empty: bool = True) -> str | None:
        """Return the text of a word, or None if it is unknown.

        `$1` counts as empty, and with `unset_is_empty` so does a variable that the script does not set; both
        are recorded as assumptions.
        """
        known = []
        for fragment in self.expander.joined(word, self.scope, in_condition=True):
            if fragment.unset and (unset_is_empty or fragment.unset.isdigit()):
                self.expander.session.assumed.add("@" if fragment.unset.isdigit() else fragment.unset)
            else:
                known.append(fragment)
        return known_text(tuple(known))
