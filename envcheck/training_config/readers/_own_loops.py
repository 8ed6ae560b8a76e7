"""Read the batches of a training loop that a program has itself, as its loader makes them. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.values import MISSING, Value

BATCH = "loader.batch_size"
"""The setting with the number of examples for which a loop of the program's own calls backward once."""

WORKERS = "loader.num_workers"

_LOADER = "DataLoader"
_ITERATES = re.compile(r"load|\bdl\b|_dl\b")
"""Names of loaders, of which the loop around `backward` takes one batch after another."""

_SPLIT_BATCHES = frozenset({
    "DataParallel", "split_batches", "generate", "rollout", "rollouts", "advantages",
    "PipelineStage", "GradCache",
})  # fmt: skip
"""Names in code that may split or enlarge a batch before the gradients are computed."""

_WHY = "the batches that the program trains on are made in a way that is not read"


def workers(followed: FollowedProgram) -> tuple[Value, FollowedCall] | None:
    """Return the number of processes that load examples for a loop of the program's own, and the loader."""
    trained = _for_training([each for each in followed.calls if each.name == _LOADER and _is_of_torch(each)])
    found = {_workers(call) for call in trained}
    value = found.pop() if len(found) == 1 and not followed.incomplete else MISSING
    return (value, trained[0]) if isinstance(value, int) else None


def _workers(call: FollowedCall) -> Value:
    given = call.arguments.get("num_workers", 5)
    value = 0 if given is MISSING and not call.arguments.rest else given
    return value if type(value) is int else MISSING


def batch_size(followed: FollowedProgram, tree: ast.Module) -> tuple[Value, FollowedCall] | None:
    """Return the size of the batches that a program with its own loop trains on, and the loader; or None.

    It is not known if the code may split the batches, or if the loaders for training have several sizes.
    `tree` is the program's own file.
    """
    loaders = [each for each in followed.calls if each.name == _LOADER and _is_of_torch(each)]
    trained = _for_training(loaders)
    if not trained or any(_makes_an_engine(call) for call in followed.calls):
        return None
    sizes = set(map(_size, trained))
    known = len(sizes) == 1 and not followed.incomplete and not _SPLIT_BATCHES & followed.names
    known = known and _computes_gradients_of_each_batch(followed, tree)
    value = sizes.pop() if known else MISSING
    return (value if isinstance(value, int) else Unknown(_WHY)), trained[0]


def _computes_gradients_of_each_batch(followed: FollowedProgram, tree: ast.Module) -> bool:
    """Return whether each call of `backward` stands in a loop over a loader, and in no loop inside it."""
    reached = {call.node for call in followed.calls if call.name == "backward"}
    code = (tree, *followed.followed)
    around = dict(_innermost_loops(code))
    named = {
        target.id: ast.unparse(node.value).lower()
        for each in code
        for node in ast.walk(each)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    iterated = [ast.unparse(loop.iter).lower() if (loop := around.get(node)) else "" for node in reached]
    return all(_ITERATES.search(named.get(text, text)) or _ITERATES.search(text) for text in iterated)


def _innermost_loops(code: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, ast.For]]:
    """Yield each call of `backward` inside a `for` of the same function, with that loop."""
    stack: list[tuple[ast.AST, ast.For | None]] = [(node, None) for node in code]
    while stack:
        node, loop = stack.pop()
        match node:
            case ast.Call(func=ast.Attribute(attr="backward")) if loop is not None:
                yield node, loop
            case ast.For():
                loop = node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.While():
                loop = None
            case _:
                pass
        stack += [(child, loop) for child in ast.iter_child_nodes(node)]


def _makes_an_engine(call: FollowedCall) -> bool:
    """Return whether a call makes DeepSpeed's engine, whose own file says the size of the batches."""
    return call.name == "initialize" and call.owner.rpartition(".")[2] == "deepspeed"


def _is_of_torch(call: FollowedCall) -> bool:
    return call.owner.partition(".")[0] == "torch"


def _for_training(loaders: Sequence[FollowedCall]) -> Sequence[FollowedCall]:
    """Return the loaders that shuffle or have a sampler, as those for training do; else the only loader."""
    shuffled = [call for call in loaders if any(_draws(call))]
    return shuffled or (loaders if len(loaders) == 1 else ())


def _draws(call: FollowedCall) -> Iterator[bool]:
    given = call.arguments
    yield bool(given.rest)
    yield given.get("shuffle", 2) not in (MISSING, False, None)
    yield given.get("sampler", 3) not in (MISSING, None)
    yield given.get("batch_sampler", 4) not in (MISSING, None)


def _size(call: FollowedCall) -> Value:
    """Return the size of a loader's batches, which is 1 by default; MISSING if it is not known."""
    given = call.arguments
    if given.rest or given.get("batch_sampler", 4) not in (MISSING, None):
        return MISSING
    size = given.get("batch_size", 1)
    return 1 if size is MISSING else size if type(size) is int else MISSING
