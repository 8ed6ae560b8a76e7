"""Shell arithmetic, `$(( … ))`, in whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.values import NAME

ASSIGNMENT = pattern(r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")
"""A variable that an arithmetic expression changes; its name is in group 1 or 2."""


def assigned_names(text: str) -> list[str]:
    """Return the variables that an arithmetic expression changes."""
    return [found.group(1) or found.group(2) for found in ASSIGNMENT.finditer(text)]


def _quotient(dividend: int, divisor: int) -> int:
    """Return a quotient rounded towards zero, as C and shells round it."""
    return abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)


OPERATORS: Mapping[str, Callable[[int, int], int | bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "+": lambda a, b: a + b, "-": lambda a, b: a - b,
    "*": lambda a, b: a * b, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip
_PRECEDENCE = ({"==", "!="}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"})
_TOKEN = pattern(r"\s*(?:(\d{1,18})|\$?\{?([A-Za-z_]\w*)\}?|\$\{?(#)\}?|([=!<>]=|[-+*/%<>()]))\s*")
_MAX_LENGTH = 200


def evaluate(text: str, value_of: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression, or None if it cannot be computed.

    `value_of` returns the numeric value of a variable, or None; "#" is the number of arguments.
    """
    try:
        return _Expression(text, value_of).value()
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


class _Expression:
    """A recursive-descent parser that computes as it reads; a malformed expression raises ValueError."""

    def __init__(self, text: str, value_of: Callable[[str], int | None]) -> None:
        if len(text) > _MAX_LENGTH:
            raise ValueError(text)
        text = text.replace('"', "")  # a shell removes quotes before it computes
        self.value_of = value_of
        self.tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise ValueError(text)
            self.tokens.append(next(group for group in found.groups() if group))
            at = found.end()
        self.i = 0

    def value(self) -> int:
        result = self._level(0)
        if self.i < len(self.tokens):
            raise ValueError(self.tokens[self.i])
        return int(result)

    def _level(self, level: int) -> int:
        """Read operations that bind as tightly as this level of `_PRECEDENCE`, or more tightly."""
        if level == len(_PRECEDENCE):
            return self._operand()
        result = self._level(level + 1)
        while self.i < len(self.tokens) and self.tokens[self.i] in _PRECEDENCE[level]:
            operator = self.tokens[self.i]
            self.i += 1
            result = int(OPERATORS[operator](result, self._level(level + 1)))
        return result

    def _operand(self) -> int:
        if self.i >= len(self.tokens):
            raise ValueError("end")
        sign = self.tokens[self.i]
        self.i += 1
        if sign == "(":
            result = self._level(0)
            if self.tokens[self.i : self.i + 1] != [")"]:
                raise ValueError(sign)
            self.i += 1
            return result
        if sign == "-":
            return -self._operand()
        if sign.isdigit():
            return int(sign)
        value = self.value_of(sign) if sign == "#" or NAME.fullmatch(sign) else None
        if value is None:
            raise ValueError(sign)
        return value
