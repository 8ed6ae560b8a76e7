"""The entry: follow a program from its file and its arguments."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from envcheck.core.facts import Tri
from envcheck.training_config.programs.expressions import ProgramTooLongError
from envcheck.training_config.programs.given_options import given_dictionary
from envcheck.training_config.programs.hydra import ReadConfiguration
from envcheck.training_config.programs.later_settings import settings_replaced, with_later_settings
from envcheck.training_config.programs.libraries import Follower
from envcheck.training_config.programs.modules import Project
from envcheck.training_config.programs.parsers import GivenArguments
from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.values import MISSING, Record, Value

_PARTS_OF_A_LIMIT = 4
TOO_LONG = "the program is too long to be followed"
"""Why a program is incomplete of which following used up the limit of one."""


_RESUME = "resume_from_checkpoint"
_OF_MODEL = "model_init_kwargs"
_OF_LOADING = frozenset({"attn_implementation", "torch_dtype", "dtype"})


class FollowedProgram(NamedTuple):
    """Hold what following a program found.

    `names` are those in the code that it reaches, `bodies` those among them that only name functions of the
    project that were followed, so that their bodies say what they do. `unread` are the packages that this
    code calls, `packages` those that its modules import, `followed` the functions and classes that it
    reaches. `incomplete` is the reason why some of its code may not have been reached, or "". `about_names`
    are the conditions that ask for the name of a parameter, `trains` says whether it starts a training.
    `environment` has the variables that it sets or was given, `read_items` the names of the options and items
    that it reads, `written` the configurations that it writes, `replaced` the options of a trainer that it
    sets itself after it parsed them, each with the reason why it is not known afterwards, or "". `unused` are
    the options that decide nothing, `rewritten` the files that it writes with a content that is not known.
    """

    calls: tuple[FollowedCall, ...]
    names: frozenset[str]
    bodies: frozenset[str]
    unread: frozenset[str]
    packages: frozenset[str]
    incomplete: str
    files: tuple[str, ...]
    followed: frozenset[ast.AST]
    about_names: frozenset[str]
    trains: Tri
    configuration: tuple[str, Record] | None = None
    environment: Mapping[str, Value] = MappingProxyType({})
    read_items: frozenset[str] = frozenset()
    written: Mapping[str, Record | str] = MappingProxyType({})
    replaced: Mapping[str, str] = MappingProxyType({})
    unused: frozenset[str] = frozenset()
    rewritten: frozenset[str] = frozenset()


def follow(
    path: str,
    beside: Callable[[str], str | None],
    read_configuration: ReadConfiguration,
    arguments: GivenArguments,
    environment: Mapping[str, Value] = MappingProxyType({}),
    entry: str = "",
    *,
    of_launcher: Mapping[str, str | None] = MappingProxyType({}),
    briefly: bool = False,
) -> FollowedProgram | None:
    """Return what a program calls; None if its file cannot be read.

    A program that is known to be too long is followed `briefly`: a quarter as far.

    `entry` is the function that a console script calls; "" if the file itself is started.
    `environment` are the variables that a launch script sets; all others are assumed not to be set.
    `of_launcher` are those that its launcher sets, as far as they are known; None if it sets none.
    """
    project = Project(beside)
    module = project.read(path)
    if module is None:
        return None
    follower = Follower(project, read_configuration, arguments, environment, of_launcher)
    follower.program = module.path
    if briefly:
        follower.most_steps //= _PARTS_OF_A_LIMIT
        follower.free_steps //= _PARTS_OF_A_LIMIT
    if not entry:
        follower.programs.add(module.path)
    waiting_from = 0
    try:
        follower.run_module(module)
        if entry:
            follower.start_entry(module, entry)
        waiting_from = len(follower.calls)
        follower.run_waiting()
    except (ProgramTooLongError, RecursionError):
        follower.incomplete = TOO_LONG
    calls, trains = _of_training(with_later_settings(follower.calls, follower.set_later), waiting_from)
    incomplete = follower.incomplete or ("some of its modules are too large" if project.limited else "")
    return FollowedProgram(
        calls,
        frozenset(follower.names | follower.bodies),
        frozenset(follower.bodies - follower.names),
        frozenset(follower.unread - {*sys.stdlib_module_names, "builtins", "super", ""}),
        frozenset(follower.packages),
        incomplete or ("" if trains else "no training is reached"),
        tuple(each.path for each in project.modules()),
        frozenset(follower.followed),
        frozenset(follower.about_names),
        _trains(follower.calls, everything_followed=not incomplete),
        follower.configuration,
        follower.environment,
        frozenset(follower.read_items),
        {path: each for path, each in follower.written.items() if isinstance(each, Record | str)},
        {**settings_replaced(follower.calls, follower.set_later), **_perhaps_resumed(follower.calls)},
        frozenset() if incomplete else _unused_for_loading(calls),
        frozenset(path for path, each in follower.written.items() if not isinstance(each, Record | str)),
    )


def _perhaps_resumed(calls: Sequence[FollowedCall]) -> dict[str, str]:
    """Return why it is not known whether a program resumes from what it is given, by the option's name.

    A trainer resumes from what its method is given, not from its arguments.
    """
    trains = [call.arguments for call in calls if call.name == "train"]
    makes_one = any(call.name.endswith("Trainer") for call in calls)
    if not makes_one or not trains or any(each.positional or each.keywords or each.rest for each in trains):
        return {}
    return {_RESUME: "the program starts its training without a checkpoint"}


def _unused_for_loading(calls: Sequence[FollowedCall]) -> frozenset[str]:
    """Return the options of loading a model that reach nothing, in a program that was followed to its end.

    A trainer of TRL that is given a model by its name loads it with `model_init_kwargs` of its arguments
    alone (read in trl 0.14, 0.23.1 and 0.29). If nothing else loads a model, TRL's ModelConfig decides
    nothing then.
    """
    trainers = [call for call in calls if call.name.endswith("Trainer")]
    given = [call.arguments.get("args", 1) for call in trainers]
    alone = trainers and all(
        call.owner.partition(".")[0] == "trl"
        and isinstance(call.arguments.get("model", 0), str)
        and call.arguments.keyword(_OF_MODEL) is MISSING
        and not call.arguments.rest
        for call in trainers
    )
    loads = any(call.name == "from_pretrained" and _loads_a_model(call) for call in calls)
    if not alone or loads or not all(isinstance(each, Record) for each in given):
        return frozenset()
    named = any(_OF_MODEL in each.items for each in given if isinstance(each, Record))
    return frozenset() if named else _OF_LOADING


def _loads_a_model(call: FollowedCall) -> bool:
    return not any(word in call.owner for word in ("Tokenizer", "Processor", "Config", "Extractor"))


def _of_training(calls: Sequence[FollowedCall], waiting_from: int) -> tuple[tuple[FollowedCall, ...], bool]:
    """Return the calls without the conditions of the training itself, and whether a training is reached.

    Of the visits of one call, those under other conditions are left out if one is under none. What comes
    after a trainer's last training, up to the call `waiting_from`, does not configure it.
    """
    calls = _without_alternatives(calls)
    training: list[FollowedCall] = []
    for found in (_starts_training, _trains_a_step, _has_its_options, _makes_a_trainer):
        training = [call for call in calls if found(call)]
        if training:
            break
    starts = [index for index, call in enumerate(calls[:waiting_from]) if _starts_training(call)]
    if starts:
        calls = [*calls[: starts[-1] + 1], *calls[waiting_from:]]
    common = set(training[0].conditions) if training else set()
    for call in training[1:]:
        common &= set(call.conditions)
    own = [
        call._replace(conditions=tuple(each for each in call.conditions if each not in common))
        for call in calls
    ]
    certain = {call.node for call in own if not call.conditions}
    kept = (call for call in own if not call.conditions or call.node not in certain)
    return tuple(kept), bool(training)


def _without_alternatives(calls: Sequence[FollowedCall]) -> list[FollowedCall]:
    """Return the calls without conditions of which each alternative leads to the same call."""
    visits: dict[ast.AST, set[tuple[str, ...]]] = {}
    for call in calls:
        if call.conditions:
            visits.setdefault(call.node, set()).add(call.conditions)
    several = {node: found for node, found in visits.items() if len(found) > 1}
    return [
        call._replace(conditions=_decided(call.conditions, several[call.node]))
        if call.node in several and call.conditions
        else call
        for call in calls
    ]


def _decided(conditions: tuple[str, ...], visits: AbstractSet[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the conditions of a visit without the last one if another visit has its opposite."""
    for at in reversed(range(len(conditions))):
        opposite = conditions[at].removeprefix("not ") if conditions[at].startswith("not ") else ""
        opposite = opposite or f"not {conditions[at]}"
        if (*conditions[:at], opposite, *conditions[at + 1 :]) in visits:
            return (*conditions[:at], *conditions[at + 1 :])
    return conditions


def _trains(calls: Sequence[FollowedCall], *, everything_followed: bool) -> Tri:
    """Return whether a program trains; an object of a trainer may be made only to evaluate."""
    if any(_starts_training(call) or _trains_a_step(call) or _has_its_options(call) for call in calls):
        return Tri.YES
    if any(map(_makes_a_trainer, calls)):
        return Tri.MAYBE
    return Tri.NO if everything_followed else Tri.MAYBE


def _starts_training(call: FollowedCall) -> bool:
    return call.name in ("train", "fit", "learn") and "trainer" in call.owner.lower()


def _has_its_options(call: FollowedCall) -> bool:
    return given_dictionary(call) is not None


def _trains_a_step(call: FollowedCall) -> bool:
    if call.owner.partition(".")[0] in _FIT_OTHER_THINGS:
        return False
    return call.name in ("backward", "train_batch", "fit", "learn", "clip_grad_norm_", "manual_backward")


_FIT_OTHER_THINGS = ("sklearn", "cuml", "scipy", "xgboost", "lightgbm", "statsmodels")
"""Packages whose objects are fitted beside a training, or without one."""


def _makes_a_trainer(call: FollowedCall) -> bool:
    return call.name.endswith("Trainer")
