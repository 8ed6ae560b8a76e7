"""Calls in a Python file that configure a training: their literal arguments as settings.

The dialect `python` defines what a call means; the dialect of a trainer defines that trainer's arguments. The
file is parsed, never run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document, Section, Setting, SettingValue
from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.modules import parse
from envcheck.training_config.programs.names import is_beside
from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.trainable import leaves_frozen
from envcheck.training_config.programs.values import MISSING, Record, Thing, quoted
from envcheck.training_config.readers import (
    INSTEAD_OF_PROGRAM,
    _adapter_layers,
    _encoder_calls,
    _own_loops,
)
from envcheck.training_config.readers._call_arguments import CallArguments
from envcheck.training_config.readers._file_contents import (
    contents_of,
)
from envcheck.training_config.readers._inference_blocks import autocasts_of_inference
from envcheck.training_config.readers._known_calls import (
    ADAPTER_CONFIGS,
    KNOWN_CALLS,
    MODEL,
    QUANTISERS,
    TRAINERS,
    ConfiguringCall,
    is_given_options,
    is_of_another_package,
    load_by_trainer,
    loads_by_name,
    named_call,
    only_evaluates,
    recognised_name,
    trainer_of,
)
from envcheck.training_config.readers._models_beside import loading_code
from envcheck.training_config.readers._python_literals import Literals

DIALECT = "python"
"""The dialect of calls; its settings have names such as `LoraConfig.r`."""

UNREAD = "unread"
"""The setting of a call that may have other arguments than those that can be read."""

_RESUMES = "resume_from_checkpoint"
_GIVEN_LENGTH, _LENGTH_OF_MODEL = "SFTTrainer.max_seq_length", "unsloth.from_pretrained.max_seq_length"
_NO_BASES: Mapping[str, str] = {}

_NAMED: Mapping[str, re.Pattern[str]] = {
    "names_freezing": re.compile(r"requires_grad|freeze|frozen|no_grad_params|set_trainable"),
    "names_an_adapter": re.compile(r"lora|dora|adapter|peft|ia3|prompt_tun|prefix_tun"),
    "names_a_precision": re.compile(r"autocast|amp\b|scaler|half|b?float16|bf16|fp16|precision|dtype"),
    "names_checkpointing": re.compile(
        r"(?<!supports_gradient_)(?<!_set_gradient_)checkpointing|checkpoint_wrapper|checkpoint_seq|recompute|remat"
    ),
}
"""Settings that say whether the code contains names of a kind, which may have an effect that is not read."""

_MODEL_CLASS = pattern(r"For[A-Z]\w+$|LMHeadModel$")

_PLAIN_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
"""Classes whose defaults are those of TrainingArguments in every release."""

_PASSED_ON_BY_CODE = ("transformers", "trl", "sentence_transformers")
"""Trainers to which a program gives its adapter as an object; other trainers make it from their arguments."""

_WITH_ARGUMENTS = ("transformers", "trl", "sentence_transformers")
"""Packages whose trainers take an object with their arguments, `args`."""

_OF_DEFAULTS = ("bf16", "fp16", "gradient_checkpointing")
"""Arguments on which defaults depend."""


def documents(
    text: str, file: str, lines: Sequence[int] = (), followed: FollowedProgram | None = None
) -> tuple[Document, ...]:
    """Return a document for each call that makes a trainer's arguments, then one for all other calls.

    If the lines of the text and of the file differ, `lines` has the line in the file of each line of the
    text. `followed` is what following the program found.

    Raises:
        InputError: no call configures a training.
    """
    tree = parse(text)
    found = _PythonFile(tree, file, lines, followed=followed).documents() if tree is not None else ()
    if not found:
        raise InputError(file, INSTEAD_OF_PROGRAM)
    return found


def program_documents(
    tree: ast.Module,
    file: str,
    options: Mapping[str, Any],
    bases: Mapping[str, str],
    followed: FollowedProgram | None = None,
) -> tuple[Document, ...]:
    """Return what the calls of a launched program state if its own options have the values `options`.

    `bases` has the base of each class that the modules of its project define.
    """
    documents = _PythonFile(tree, file, (), options, bases, followed).documents()
    whole = followed is not None and not followed.incomplete
    return tuple(each._replace(partial=True, whole=whole and not each.incomplete) for each in documents)


class _PythonFile:
    """One parsed file, with the names that are assigned literals."""

    def __init__(
        self,
        tree: ast.Module,
        file: str,
        lines: Sequence[int],
        options: Mapping[str, Any] | None = None,
        bases: Mapping[str, str] = _NO_BASES,
        followed: FollowedProgram | None = None,
    ) -> None:
        self.followed = followed
        self.path = followed.files[0] if followed is not None and followed.files else file
        self.tree, self.file, self.lines = tree, file, lines
        self._contents = contents_of(tree)
        self.nodes = self._contents.nodes
        self._options = options or {}
        self._partial = options is not None
        known = (*KNOWN_CALLS, *ADAPTER_CONFIGS)
        inherited = {name: base for name, base in bases.items() if name not in known}
        self._bases = {**inherited, **self._contents.classes}
        self._foreign = self._contents.foreign
        self._unused = self._contents.never_used if self._starts_a_trainer() else set()

    @cached_property
    def _literals(self) -> Literals:
        return Literals(self._contents.assigned, self._options)

    @cached_property
    def _arguments(self) -> CallArguments:
        return CallArguments(self.file, self.path, self.lines, self._literals)

    def documents(self) -> tuple[Document, ...]:
        code = (self.tree, *(self.followed.followed if self.followed is not None else ()))
        beside = loading_code(self.nodes) | autocasts_of_inference(code)
        found_calls = (*self._followed_calls(), *self._unfollowed_calls())
        reached = [(call, condition) for call, condition in found_calls if call.node not in beside]
        given = self._given_quantisations([call for call, _ in reached])
        if given and all(value is None for value in given):
            reached = [each for each in reached if each[0].name not in QUANTISERS]
        elif None in given:
            why = "only one of several models is quantised"
            reached = [(call, why if call.name in QUANTISERS else condition) for call, condition in reached]
        arguments = self._given_to_trainers([call for call, _ in reached if trainer_of(call.name)])
        others = [(call, condition) for call, condition in reached if not trainer_of(call.name)]
        if not reached:
            return ()
        found = []
        for number, call in enumerate(arguments, 1):
            dialect = trainer_of(call.name)
            settings = tuple(
                each
                for each in self._arguments.settings(call, "")
                if dialect not in _PASSED_ON_BY_CODE or not _sizes_an_adapter(each)
            )
            launch = number if len(arguments) > 1 else 0
            document = Document(self.file, "json", settings, (call.name,), launch, dialect)
            found.append(document._replace(incomplete=self._arguments.unread(call)))
        if not arguments:
            found += self._unread_arguments()
        # The class of the trainer counts, not that of its arguments: SFTTrainer takes TrainingArguments.
        return (
            *found,
            self._other_calls(others, arguments),
        )

    def _given_to_trainers(self, arguments: Sequence[ConfiguringCall]) -> Sequence[ConfiguringCall]:
        """Return the calls whose object a trainer is given; all of them if that is not known of each trainer.

        A program may make arguments of a trainer for something else, such as a model of its own.
        """
        calls = self.followed.calls if self.followed is not None else ()
        trainers = [call for call in calls if call.name.endswith("Trainer")]
        given = [call.arguments.get("args", 1) for call in trainers]
        if not all(isinstance(each, Thing) for each in given):
            return arguments
        used = [call for call in arguments if call.followed is not None and call.followed.made in given]
        return used or arguments

    def _unread_arguments(self) -> Iterator[Document]:
        """Yield a document without settings if a trainer is given an object that nothing known makes.

        What the object says is unknown then, and not the default of the trainer's own arguments.
        """
        for call in self.followed.calls if self.followed is not None else ():
            given = call.arguments.get("args", 1)
            maker = given.maker.rpartition(".")[2] if isinstance(given, Thing) else ""
            # One of a class that is known was made of the command line, which says what it holds.
            made = bool(maker) and not maker.startswith("parse") and not trainer_of(maker)
            made = made or (isinstance(given, Record) and given.role == "object")
            dialect = call.owner.partition(".")[0]
            if made and call.name in TRAINERS and dialect in _WITH_ARGUMENTS:
                why = f"the arguments of {call.name} are not made by a class that can be read"
                yield Document(self.file, "json", (), (call.name,), dialect=dialect, incomplete=why)
                return

    def _followed_calls(self) -> Iterator[tuple[ConfiguringCall, str]]:
        """Yield the calls that configure a training and that following the program reached."""
        calls = self.followed.calls if self.followed is not None else ()
        trains_otherwise = any(call.name == "Accelerator" or _makes_a_trainer(call) for call in calls)
        trains_encoder = _encoder_calls.trains(calls)
        for call in calls:
            name = recognised_name(call.name, call.owner) if call.node not in self._unused else ""
            if encoder := _encoder_calls.name_of(call.name, call.owner, trains=trains_encoder):
                given = _encoder_calls.with_batch_size(call) if encoder == _encoder_calls.FIT else call
                yield ConfiguringCall(encoder, call.node, given), next(iter(call.conditions), "")
                continue
            if (trains_otherwise and only_evaluates(name, call)) or not is_given_options(name, call):
                continue
            if name and not is_of_another_package(name, call.owner):
                condition = next(iter(call.conditions), "")
                if name in _adapter_layers.LAYERS_OF_DIFFUSERS and self.followed is not None:
                    condition = _adapter_layers.open_condition(call, self.followed.about_names)
                yield ConfiguringCall(name, call.node, call), condition
                if (load := load_by_trainer(call)) is not None:
                    yield load, condition
            elif call.name == "train" and call.arguments.keyword(_RESUMES) not in (MISSING, None, False):
                yield ConfiguringCall(call.name, call.node, call), next(iter(call.conditions), "")
        for call in _adapter_layers.layers(self.followed):
            about_names = self.followed.about_names if self.followed is not None else frozenset()
            yield (
                ConfiguringCall(_adapter_layers.LAYER, call.node, _adapter_layers.of_layer(call)),
                _adapter_layers.open_condition(call, about_names),
            )

    def _unfollowed_calls(self) -> Iterator[tuple[ConfiguringCall, str]]:
        """Yield the calls in code of the file that was not followed; none if that code is never reached."""
        unfollowed = self._unfollowed()
        if unfollowed is not None and not unfollowed:
            return
        for node, condition in self._reached():
            if not isinstance(node, ast.Call) or node in self._unused:
                continue
            if unfollowed is not None and node not in unfollowed:
                continue
            call = named_call(node, self._bases)
            if call and not self._is_foreign(call.name):
                yield call, condition

    def _unfollowed(self) -> set[ast.AST] | None:
        """Return the code of functions that were not followed; None for all of the file."""
        followed = self.followed
        if followed is None:
            return None
        trains = any(
            trainer_of(name) or name in TRAINERS or name == MODEL
            for call in followed.calls
            if (name := recognised_name(call.name, call.owner))
        )
        if trains and not followed.incomplete:
            return set()
        found: set[ast.AST] = set()
        for node in self.nodes:  # the outer ones first
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node not in followed.followed and node not in found:
                found.update(ast.walk(node))
        return found

    def _is_foreign(self, name: str) -> bool:
        """Return whether a known name of a trainer, or of a program's arguments, is that of another class."""
        return name in self._foreign and (name in TRAINERS or (self._partial and bool(trainer_of(name))))

    def _given_quantisations(self, calls: Sequence[ConfiguringCall]) -> list[Any]:
        """Return what the calls that load a model give as `quantization_config`."""
        return [
            value
            for call in calls
            if call.name == MODEL
            for name, value, _ in self._arguments.keywords(call)
            if name == "quantization_config"
        ]

    def _reached(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield each node with the text of the outermost computed condition around it, or "".

        A branch that the literal value of a condition excludes is left out.
        """
        stack: list[tuple[ast.AST, str]] = [(self.tree, "")]
        while stack:
            node, condition = stack.pop()
            yield node, condition
            if not isinstance(node, ast.If | ast.IfExp):
                stack += [(child, condition) for child in reversed(list(ast.iter_child_nodes(node)))]
                continue
            value = True if _is_main_guard(node.test) else self._literals.of(node.test)
            why = condition or (quoted(node.test) if isinstance(value, Unknown) else "")
            branches = {True: _listed(node.body), False: _listed(node.orelse)}
            for holds, branch in reversed(branches.items()):
                if isinstance(value, Unknown) or bool(value) is holds:
                    stack += [(child, why) for child in reversed(branch)]
            stack.append((node.test, condition))

    def _other_calls(
        self, calls: Sequence[tuple[ConfiguringCall, str]], arguments: Sequence[ConfiguringCall]
    ) -> Document:
        """Return one document with the settings of all calls that do not make a trainer's arguments.

        Of `arguments`, which make a trainer's arguments, it has what TrainingArguments says of precision, for
        the defaults.

        A setting is Unknown if calls give it different values, or if its call runs only under a condition; a
        call that also runs under none is made in any case, and a setting of it is known if all its calls
        agree. So is one of the calls that load a model, because one of them runs.
        """
        settings: dict[str, Setting] = {}
        called = _in_each_branch(calls) | {call.name for call, condition in calls if not condition}
        stated = self._stated(calls, {*called, MODEL})
        for call, condition in calls:
            names = tuple(name for name, _, _ in self._arguments.keywords(call) if name)
            place = self._arguments.place(call.node, self._arguments.file_of(call))
            # An empty section would count as absent.
            inner = [Setting(call.name, Section(names or ("",)), place, place)]
            inner += self._arguments.settings(call, f"{call.name}.")
            if why_more := self._arguments.unread(call):
                inner.append(Setting(f"{call.name}.{UNREAD}", Unknown(why_more), place, place))
            if condition:
                why = Unknown(f"{call.name} is called only where {condition}")
                inner = [
                    setting
                    if _agreed(setting, stated.get(call.name, ())) or setting.name in called
                    else setting._replace(value=why)
                    for setting in inner
                ]
            for setting in inner:
                before = settings.get(setting.name)
                differs = before is not None and before.value != setting.value and setting.name != call.name
                several = Unknown(f"several calls of {call.name} differ in it")
                settings[setting.name] = setting._replace(value=several) if differs else setting
        _leave_out_replaced(settings)
        plain_ones = [call for call in arguments if call.name in _PLAIN_ARGUMENTS]
        settings.update(self._of_plain_arguments(plain_ones))
        modules = self._contents.imported
        if self._complete is not None:
            modules = {*self._complete.unread}
        place = Place(self.file)
        used = Setting("uses_peft", "peft" in modules or "unsloth" in modules, place, place)
        trains = Setting("starts_a_trainer", self._starts_a_trainer(), place, place)
        frozen = next(iter(self._frozen_parameters()), None) if self._complete is None else None
        if frozen is not None:
            freeze = self._arguments.place(frozen)
            settings["freezes_parameters"] = Setting("freezes_parameters", Section(), freeze, freeze)
        named = [Setting(name, self._names(words), place, place) for name, words in _NAMED.items()]
        named.append(Setting("asks_for_an_adapter", self._asks_for_an_adapter(), place, place))
        own_layers = bool(_adapter_layers.own_classes(self.followed))
        named.append(Setting(_adapter_layers.MAY_MAKE, own_layers, place, place))
        if any(trainer_of(call.name) == "trl" for call in arguments):  # their defaults depend on the release
            settings["trl_arguments"] = Setting("trl_arguments", Section(("",)), place, place)
        if any(call.name == MODEL for call, _ in calls) or self._builds_a_model():
            settings["makes_a_model"] = Setting("makes_a_model", Section(("",)), place, place)
        for name in self._of_whole_program():
            settings[name] = Setting(name, Section(("",)), place, place)
        settings.update(self._of_training())
        return Document(self.file, "json", (*settings.values(), used, trains, *named), dialect=DIALECT)

    def _stated(
        self, calls: Sequence[tuple[ConfiguringCall, str]], names: Collection[str]
    ) -> Mapping[str, Sequence[Mapping[str, SettingValue]]]:
        """Return the settings of each call of the functions `names`, by the function."""
        found: dict[str, list[Mapping[str, SettingValue]]] = {}
        for call, _ in calls:
            if call.name in names:
                given = self._arguments.settings(call, f"{call.name}.")
                found.setdefault(call.name, []).append({each.name: each.value for each in given})
        return found

    def _of_whole_program(self) -> Iterator[str]:
        """Yield the names of settings for what a program does that was followed to its end."""
        calls = self._complete.calls if self._complete is not None else ()
        if any(map(_makes_the_trainer, calls)):
            yield "transformers.Trainer"
        if any(map(loads_by_name, calls)):
            yield "trainer_loads_model"

    def _frozen_parameters(self) -> Iterator[ast.expr]:
        """Yield where the file, or a function of it named main or train, sets `requires_grad` to False.

        Only loops, and conditions on the name of a parameter, may surround the assignment.
        """
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(attr="requires_grad") as target], value=ast.Constant(value=False)
                ):
                    yield target
                case ast.If(test=test) if not (_is_main_guard(test) or _asks_for_a_name(test)):
                    continue
                case ast.FunctionDef(name=name) if name not in ("main", "train"):
                    continue
                case ast.For(iter=iterated) if is_beside(ast.unparse(iterated)):
                    continue
                case ast.ClassDef() | ast.Lambda() | ast.AsyncFunctionDef():
                    continue
                case _:
                    stack += reversed(list(ast.iter_child_nodes(node)))
            if isinstance(node, ast.If | ast.FunctionDef):
                stack += reversed(list(ast.iter_child_nodes(node)))

    @property
    def _complete(self) -> FollowedProgram | None:
        """Return what following the program found, if that is all of it."""
        return self.followed if self.followed is not None and not self.followed.incomplete else None

    def _of_plain_arguments(self, calls: Sequence[ConfiguringCall]) -> Iterator[tuple[str, Setting]]:
        """Yield what the only call of TrainingArguments says of precision and checkpointing, by name."""
        if len({call.node for call in calls}) != 1 or self._arguments.unread(calls[0]):
            return
        first = [(each.name, each.value) for each in self._arguments.settings(calls[0], "")]
        for call in calls[1:]:  # a loop may make them several times
            others = [(each.name, each.value) for each in self._arguments.settings(call, "")]
            if [each for each in first if each[0] in _OF_DEFAULTS] != [
                each for each in others if each[0] in _OF_DEFAULTS
            ]:
                return
        at = self._arguments.place(calls[0].node, self._arguments.file_of(calls[0]))
        yield "TrainingArguments", Setting("TrainingArguments", Section(("",)), at, at)
        for setting in self._arguments.settings(calls[0], "TrainingArguments."):
            if setting.name.rpartition(".")[2] in _OF_DEFAULTS:
                yield setting.name, setting

    def _of_training(self) -> dict[str, Setting]:
        """Return what the followed program does on its way to the training, and the batches of its loop."""
        found = dict(self._done_to_model())
        if _OF_OWN_LOOPS & found.keys() and not self._starts_a_trainer():
            found.update(self._of_loader())
        return found

    def _done_to_model(self) -> Iterator[tuple[str, Setting]]:
        """Yield what the followed program does to the model on its way to the training, by name."""
        calls = self.followed.calls if self.followed is not None else ()
        frozen = None
        if self.followed is not None:
            code = (self.tree, *self.followed.followed)
            frozen = leaves_frozen(calls, self.followed.about_names, code)
        only_loops = not self._starts_a_trainer()  # then one of them runs, whatever the conditions are
        for call in calls:
            name = ""
            if frozen is not None and call is frozen.call:
                name = "freezes_parameters"
            elif call.name == "backward" and "accelerator" in call.owner.lower():
                name = "accelerator.backward"
            elif _computes_gradients(call):
                name = "loss.backward"
            elif call.name == "compile" and call.owner not in _COMPILE_TEXTS:
                name = "compiles_a_model"
            elif only_loops and _clips_gradients(call):
                name = "clips_gradients"
            in_a_loop = only_loops and name in ("accelerator.backward", "loss.backward")
            if name and (
                name == "freezes_parameters"
                or not call.conditions
                or in_a_loop
                or name in _UNDER_ANY_CONDITION
            ):
                at = self._arguments.place(call.node, call.path if call.path != self.path else self.file)
                yield name, Setting(name, Section(("",)), at, at)
                if name == "freezes_parameters" and frozen is not None and frozen.parts:
                    yield "frozen_parts", Setting("frozen_parts", ",".join(frozen.parts), at, at)

    def _of_loader(self) -> Iterator[tuple[str, Setting]]:
        """Yield what the loader of a loop of the program's own says."""
        if self.followed is None:
            return
        found = {
            _own_loops.BATCH: _own_loops.batch_size(self.followed, self.tree),
            _own_loops.WORKERS: _own_loops.workers(self.followed),
        }
        for name, stated in found.items():
            if stated is not None:
                value, call = stated
                at = self._arguments.place(call.node, call.path if call.path != self.path else self.file)
                yield name, Setting(name, value, at, at)

    def _builds_a_model(self) -> bool:
        """Return whether the program makes a model of a configuration alone, or lets a trainer load it."""
        return self.followed is not None and any(
            call.name == "from_config"
            or (call.name in _encoder_calls.MODELS and call.owner.startswith("sentence_transformers"))
            or (_MODEL_CLASS.search(call.name) and call.owner.startswith("transformers"))
            or (not self.followed.incomplete and loads_by_name(call))
            for call in self.followed.calls
        )

    def _names(self, words: re.Pattern[str]) -> bool:
        """Return whether a name in the code that is reached, else in the file, contains one of the words."""
        found = self._complete.names if self._complete is not None else self._contents.names
        if self._complete is not None and words is _NAMED["names_freezing"]:
            found -= self._complete.bodies
        return any(words.search(name.lower()) for name in found)

    def _asks_for_an_adapter(self) -> bool:
        """Return whether a condition asks for parameters of an adapter, as in `"lora" in name`."""
        conditions = self.followed.about_names if self.followed is not None else ()
        return any(_NAMED["names_an_adapter"].search(each.lower()) for each in conditions)

    def _starts_a_trainer(self) -> bool:
        """Return whether the program makes an object of a class named `…Trainer`, or fits an encoder."""
        calls = self.followed.calls if self.followed is not None else ()
        if any(call.name.endswith("Trainer") for call in calls) or _encoder_calls.trains(calls):
            return True
        # The class of the name may be one of the project without a trainer as its base, which was followed.
        return self._complete is None and self._contents.makes_a_trainer


_OF_OWN_LOOPS = frozenset({"accelerator.backward", "loss.backward"})

_COMPILE_TEXTS = ("re", "regex", "builtins")
"""Modules whose function `compile` is about texts."""

_UNDER_ANY_CONDITION = ("compiles_a_model", "clips_gradients")
"""What a program may do under a condition, or what was found to happen at some of its steps."""

_OF_SOME_STEPS = ("%", "sync_gradients", "accumulat")
"""Parts of conditions that hold at each step that changes the weights: its number, a flag for it."""


def _leave_out_replaced(settings: dict[str, Setting]) -> None:
    """Leave out the length that a model is loaded for where its trainer cuts the examples to another one."""
    if _GIVEN_LENGTH in settings:
        settings.pop(_LENGTH_OF_MODEL, None)


def _makes_the_trainer(call: FollowedCall) -> bool:
    """Return whether a call makes an object of transformers' Trainer, or of a class derived from it."""
    return call.name in ("Trainer", "Seq2SeqTrainer") and call.owner.partition(".")[0] == "transformers"


def _makes_a_trainer(call: FollowedCall) -> bool:
    """Return whether a call makes an object of a library's trainer, which prepares its model itself."""
    return call.name.endswith("Trainer") and call.owner.partition(".")[0] in ("transformers", "trl")


def _computes_gradients(call: FollowedCall) -> bool:
    """Return whether a call computes the gradients of a loss, itself or by Lightning's Fabric."""
    alone = not call.arguments.positional and not call.arguments.rest
    return call.name == "backward" and (alone or "fabric" in call.owner.lower())


def _clips_gradients(call: FollowedCall) -> bool:
    """Return whether a call clips gradients to a finite size, at each step that changes the weights."""
    if call.name not in ("clip_grad_norm_", "clip_grad_value_"):
        return False
    size = call.arguments.get("max_norm" if call.name == "clip_grad_norm_" else "clip_value", 1)
    measures = isinstance(size, float) and math.isinf(size)
    return not measures and all(
        any(part in condition for part in _OF_SOME_STEPS) for condition in call.conditions
    )


def _sizes_an_adapter(setting: Setting) -> bool:
    """Return whether an argument is a project's own field such as `lora_r`, which only its code can apply.

    The arguments of these trainers have none. A flag such as `lora_enable` says at least what is off.
    """
    names_one = _NAMED["names_an_adapter"].search(setting.name.lower()) is not None
    return names_one and not isinstance(setting.value, bool)


def _is_main_guard(test: ast.expr) -> bool:
    """Return whether a condition is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _asks_for_a_name(test: ast.expr) -> bool:
    """Return whether a condition asks if a name contains a text, as loops over parameters do."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asks_for_a_name(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(map(_asks_for_a_name, test.values))
    match test:
        case ast.Compare(
            left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name()]
        ):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="startswith" | "endswith")):
            return True
        case _:
            return False


def _listed(branch: ast.expr | list[ast.stmt]) -> Sequence[ast.AST]:
    """Return the nodes of a branch of a statement or of an expression."""
    return branch if isinstance(branch, list) else [branch]


def _in_each_branch(calls: Sequence[tuple[ConfiguringCall, str]]) -> set[str]:
    """Return the names of calls that both branches of one condition make, such as of two trainers."""
    found = {
        (call.name, call.followed.conditions[0])
        for call, _ in calls
        if call.followed is not None and len(call.followed.conditions) == 1
    }
    return {name for name, condition in found if (name, f"not {condition}") in found}


def _agreed(setting: Setting, stated: Sequence[Mapping[str, SettingValue]]) -> bool:
    """Return whether all calls of a function, of which these are the settings, agree on a known value."""
    known = "." in setting.name and not isinstance(setting.value, Unknown)
    agree = all(setting.name in each and each[setting.name] == setting.value for each in stated)
    return known and bool(stated) and agree
