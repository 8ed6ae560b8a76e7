"""Control flow: which commands of a script run, as far as that can be decided.

If a condition cannot be decided, both branches are followed. A variable that differs between them is unknown
afterwards, and its reason names the line it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envcheck.core.facts import Tri
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts import conditions, printing
from envcheck.training_config.launch_scripts.arithmetic import assigned_names
from envcheck.training_config.launch_scripts.assignments import names_set_by
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.session import Session
from envcheck.training_config.launch_scripts.simple_commands import SimpleCommands
from envcheck.training_config.launch_scripts.syntax import (
    Arithmetic,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Sequence,
    SimpleCommand,
    Test,
    Word,
    nested_commands,
)
from envcheck.training_config.launch_scripts.values import (
    PRINTED,
    Argument,
    Fragment,
    Scope,
    Value,
    Variable,
    known_text,
    matches_pattern,
    same_variable,
    spelled,
    unknown,
    unknown_words,
)

_MOST_ITERATIONS = 16  # of nested loops together that are followed one by one
_LONGEST_CHOICES = 2_000  # characters of the texts that branches give a variable


class _Branch(NamedTuple):
    """A body that may run, with the variables that are set before it does."""

    node: Node
    preset: tuple[tuple[str, Variable], ...] = ()


class ControlFlow:
    """Follows commands in order. The status of a command is None if it is assumed to succeed."""

    def __init__(
        self, session: Session, is_launch: Callable[[tuple[Argument, ...]], bool], exported: frozenset[str]
    ) -> None:
        """Collect the commands for which `is_launch` is true, with their `exported` variables."""
        self.session = session
        self.iterations = 1  # in which the current command is followed, by the loops around it
        self.expander = Expander(session)
        self.simple_commands = SimpleCommands(self.expander, is_launch, exported, self)

    def run(self, sequence: Sequence, scope: Scope) -> Tri | None:
        """Follow a sequence and return the status of its last command."""
        status: Tri | None = Tri.YES
        skipped = uncertain = False
        before: Node | None = None
        for operator, node in sequence.items:
            if scope.ended_by:
                return status
            if operator != "|":  # one that does not run, or may not, stands for all of its pipeline
                passed_over = (Tri.YES, None) if operator == "||" else (Tri.NO,) if operator == "&&" else ()
                skipped = status in passed_over
                uncertain = operator in ("&&", "||") and status is Tri.MAYBE
            if skipped:
                continue
            if operator == "|":
                self.simple_commands.written.connect(before, node)
            before = node
            if operator != "|" and uncertain:
                at = 0 if isinstance(node, Sequence) else node.at
                self._follow_all([_Branch(node)], scope, at, complete=False)
                continue
            outer = Scope(scope) if uncertain else scope
            status = self.node(node, Scope(outer) if operator == "|" else scope)
            if operator == "|":
                printing.forget(scope, node)
        return status

    def node(self, node: Node, scope: Scope) -> Tri | None:
        """Follow one command and return its status."""
        self.session.spend(1)
        status: Tri | None = None
        match node:
            case SimpleCommand():
                status = self.simple_commands.follow(node, scope)
            case Sequence():
                status = self.run(node, scope)
            case Group():
                status = self._group(node, scope)
            case If():
                status = self._if(node, scope)
            case Loop():
                self._loop(node, scope)
            case Case():
                self._case(node, scope)
            case Test():
                status = conditions.evaluate(node.words, scope, self.expander)
            case Arithmetic():
                status = self._arithmetic(node, scope)
            case Function():
                self.session.define(node.name, node.body)
        return status

    def _group(self, node: Group, scope: Scope) -> Tri | None:
        """Follow `{ … }` or `( … )`, and remember the file that what it prints is written into."""
        inner = Scope(scope) if node.subshell else scope
        files = [each for each in node.redirects if each.operator in (">", ">|", ">>")]
        if not files:
            status = self.run(node.body, inner)
            printing.take_over(scope, inner)
            return status
        before = scope.variables.get(PRINTED)
        inner.variables[PRINTED] = ()
        status = self.run(node.body, inner)
        printed = inner.variables.pop(PRINTED, None)
        if before is not None:
            scope.variables[PRINTED] = before
        self.simple_commands.written.print_into(files, printed, node.at, scope)
        return status

    # --- branches -----------------------------------------------------------------------------------

    def _follow_all(self, branches: list[_Branch], scope: Scope, at: int, *, complete: bool) -> None:
        """Follow each branch separately and merge what they set; `at` is the offset at which they diverge.

        `complete` says that one of the branches certainly runs.
        """
        ends = []
        for branch in branches:
            end = Scope(scope)
            end.variables.update(branch.preset)
            self.node(branch.node, end)
            ends.append(end)
        if not complete:
            ends.append(Scope(scope))
        continuing = [end for end in ends if not end.ended_by]
        if not continuing:
            scope.ended_by = ends[0].ended_by
            return
        for name in dict.fromkeys(name for end in continuing for name in end.variables):
            values = [end.get(name) for end in continuing]
            self.session.spend(len(values))
            merged = values[0]
            if not all(same_variable(merged, value) for value in values[1:]):
                reason = f"${name} depends on line {self.session.line(at)}"
                rest = unknown_words(name, at, reason, _choices(scope.get(name), values))
                merged = _kept(scope.get(name), values, rest, at)
            scope.variables[name] = merged
        scope.may_set = next((end.may_set for end in continuing if end.may_set), "")

    def _follow_chosen(
        self, branches: list[_Branch], chosen: int, scope: Scope, at: int, *, complete: bool
    ) -> Tri | None:
        """Follow the branch that was chosen.

        If it exits without a launch, assume that the other branches are meant, and follow these instead. If
        the script starts nothing otherwise, this applies to a branch that returns too.
        """
        launched = len(self.simple_commands.launched)
        inner = Scope(scope, certain=scope.certain)
        status = self.node(branches[chosen].node, inner)
        if inner.ended_by in self.session.passed_over and len(self.simple_commands.launched) == launched:
            rest = branches[:chosen] + branches[chosen + 1 :]
            self._follow_all(rest, scope, at, complete=complete and bool(rest))
            return Tri.MAYBE
        scope.absorb(inner)
        return status

    def _if(self, node: If, scope: Scope) -> Tri | None:
        branches = [_Branch(body) for _, body in node.arms]
        complete = node.otherwise is not None
        if node.otherwise is not None:
            branches.append(_Branch(node.otherwise))
        possible: list[int] = []
        for number, (condition, _) in enumerate(node.arms):
            status = self.run(condition, scope)
            if status is Tri.YES and not possible:
                return self._follow_chosen(branches, number, scope, node.at, complete=complete)
            if status is not Tri.NO:
                possible.append(number)
            if status is Tri.YES:
                taken = [branches[index] for index in possible]
                self._follow_all(taken, scope, node.at, complete=True)
                return Tri.MAYBE
        if not possible:
            if not complete:
                return Tri.YES
            # If `else` only exits, one of the arms above is taken, so the rest is complete.
            return self._follow_chosen(branches, len(branches) - 1, scope, node.at, complete=True)
        last = [branches[-1]] if complete else []
        taken = [*(branches[index] for index in possible), *last]
        self._follow_all(taken, scope, node.at, complete=complete)
        return Tri.MAYBE

    def _case(self, node: Case, scope: Scope) -> None:
        branches = [_Branch(body) for _, body in node.arms]
        text = known_text(self.expander.joined(node.word, scope, in_condition=True))
        matches = [
            max((self._matches(text, pattern, scope) for pattern in patterns), default=Tri.NO)
            for patterns, _ in node.arms
        ]
        complete = any(pattern.bare == "*" for patterns, _ in node.arms for pattern in patterns)
        chosen = next((number for number, match in enumerate(matches) if match is not Tri.NO), -1)
        if text is None or (chosen >= 0 and matches[chosen] is Tri.MAYBE):
            self._follow_all(branches, scope, node.at, complete=complete)
        elif chosen >= 0:
            self._follow_chosen(branches, chosen, scope, node.at, complete=complete)

    def _matches(self, text: str | None, pattern: Word, scope: Scope) -> Tri:
        """Return whether a text matches a pattern of a `case`; None stands for an unknown text."""
        pattern_text = known_text(self.expander.joined(pattern, scope))
        if text is None or pattern_text is None:
            return Tri.YES if pattern.bare == "*" else Tri.MAYBE
        return Tri.of(matches_pattern(text, pattern_text, pattern))

    # --- loops --------------------------------------------------------------------------------------

    def _loop(self, node: Loop, scope: Scope) -> None:
        """Follow the body once; a variable that it changes is unknown within it and afterwards.

        A `for` over a few known words is followed exactly, once for each of them.
        """
        loop = f"the loop of line {self.session.line(node.at)}"
        runs = False  # whether the body certainly runs
        if node.condition is not None:
            status = self.run(node.condition, Scope(scope))
            if status is (Tri.YES if node.until else Tri.NO):
                return
        else:
            words = self._loop_words(node, scope)
            if not words:
                return
            if self._follow_each(node, words, scope):
                return
            runs = not any(word[0].splits for word in words)
            reason = f"${node.name} takes several values in {loop}"
            scope.variables[node.name] = unknown_words(node.name, node.at, reason)
        changed = {
            name: unknown_words(name, node.at, f"${name} changes in {loop}")
            for name in _with_elements(_names_set_in(node.body, self.session.functions), scope)
            if name != node.name and scope.get(name) is not None
        }
        printed = scope.get(PRINTED)
        self._follow_all([_Branch(node.body, tuple(changed.items()))], scope, node.at, complete=runs)
        if printed is not None and not same_variable(printed, scope.get(PRINTED)):
            printing.forget(scope, node)

    def _follow_each(self, node: Loop, words: list[Value], scope: Scope) -> bool:
        """Follow the body of a `for` with each word in turn; return whether that is possible."""
        known = all(known_text(word) is not None for word in words)
        if not (known and len(words) * self.iterations <= _MOST_ITERATIONS) and (
            len(words) > 1 or words[0][0].splits
        ):
            return False
        self.iterations *= len(words)
        for word in words:
            scope.variables[node.name] = word
            self.node(node.body, scope)
            if scope.ended_by:
                break
        self.iterations //= len(words)
        return True

    def _loop_words(self, node: Loop, scope: Scope) -> list[Value]:
        """Return the words of a `for`; without `in` these are the arguments."""
        if node.words is None:
            return self.expander.arguments(scope)
        return self.expander.fields(node.words, scope)

    def _arithmetic(self, node: Arithmetic, scope: Scope) -> Tri:
        """Follow `(( … ))`; a variable that it assigns is unknown afterwards."""
        names = assigned_names(node.text)
        for name in names:
            reason = f"${name} is counted in line {self.session.line(node.at)}"
            scope.variables[name] = unknown(node.at, f"${name}", reason)
        if names:
            return Tri.MAYBE
        value = self.expander.number(node.text, scope)
        return Tri.MAYBE if value is None else Tri.of(value != 0)


def _names_set_in(node: Node, functions: Mapping[str, Node]) -> set[str]:
    """Return the variables that a command may set, also in the functions that it calls."""
    found: set[str] = set()
    seen: set[str] = set()
    todo: list[Node] = [node]
    while todo:
        command = todo.pop()
        if isinstance(command, SimpleCommand):
            found |= names_set_by(command)
            name = command.words[0].bare if command.words else ""
            if name in functions and name not in seen:
                seen.add(name)
                todo.append(functions[name])
        elif isinstance(command, Arithmetic):
            found |= {*assigned_names(command.text)}
        elif isinstance(command, Loop):
            found.add(command.name)
        todo += nested_commands(command)
    return found


def _with_elements(names: set[str], scope: Scope) -> set[str]:
    """Return the names of variables with those of their elements."""
    return names | {name for name in scope.names() if name.partition("[")[0] in names}


def _choices(before: Variable, values: list[Variable]) -> tuple[str, ...]:
    """Return the texts that branches give a variable, or add to it; () if one of them is not known."""
    found: list[str] = []
    text = known_text(before) if isinstance(before, tuple) and before else None
    start = len(text) if text and all(_adds_words(text, value) for value in values) else 0
    for value in values:
        parts = value if isinstance(value, list) else [value] if value else []
        if isinstance(before, list) and isinstance(value, list):
            parts = value[len(before) :] if same_variable(before, value[: len(before)]) else value
        if any(fragment.splits for part in parts for fragment in part):
            return ()
        found.append(" ".join(spelled(part) for part in parts)[start:])
    return tuple(found) if sum(map(len, found)) < _LONGEST_CHOICES else ()


def _kept(before: Variable, values: list[Variable], rest: Value, at: int) -> Variable:
    """Return `before` followed by `rest` if every branch only adds words to a variable; else only `rest`."""
    if isinstance(before, list):
        size = len(before)
        kept = all(isinstance(value, list) and same_variable(before, value[:size]) for value in values)
        return [*before, rest] if kept else rest
    text = known_text(before) if before else None
    if not before or not text or not all(_adds_words(text, value) for value in values):
        return rest
    return (*before, Fragment(" ", at), *rest)


def _adds_words(text: str, value: Variable) -> bool:
    """Return whether a value is the text, possibly followed by more words."""
    if not isinstance(value, tuple):
        return False
    whole = "".join(fragment.text for fragment in value)
    added = whole[len(text) :]
    return whole.startswith(text) and (not added or added[0].isspace() or text[-1].isspace())
