"""Calls in a Python file that configure a training: their literal arguments as settings.

The dialect `python` defines what a call means; the dialect of a trainer defines that trainer's arguments. The
file is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, Section, Setting, SettingValue
from envcheck.training_config.programs.expressions import computed
from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.modules import never_read, parse
from envcheck.training_config.programs.names import is_beside, names
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall, KeywordGiven
from envcheck.training_config.programs.values import Record, Thing, quoted
from envcheck.training_config.readers import INSTEAD_OF_PROGRAM
from envcheck.training_config.readers._python_literals import AssignedNames, Literals, plain

DIALECT = "python"
"""The dialect of calls; its settings have names such as `LoraConfig.r`."""

UNREAD = "unread"
"""The setting of a call that may have other arguments than those that can be read."""

_TRL = frozenset({
    "SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "RewardConfig",
    "PPOConfig", "RLOOConfig", "OnlineDPOConfig", "GKDConfig", "PRMConfig", "BCOConfig",
})  # fmt: skip
_CALLS = frozenset({
    "get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training",
    "gradient_checkpointing_enable", "enable_gradient_checkpointing", "Accelerator", "autocast",
    "BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig", "Trainer", "Seq2SeqTrainer",
    "SFTTrainer", "DPOTrainer", "GRPOTrainer", "KTOTrainer", "ORPOTrainer", "CPOTrainer",
    "RewardTrainer", "PPOTrainer", "RLOOTrainer", "SentenceTransformerTrainer", "FullyShardedDataParallel",
    "FSDP", "fully_shard", "DistributedDataParallel", "DDP", "from_pretrained", "ScalingConfig",
    "MixedPrecision", "MixedPrecisionPolicy", "LoRAAttnProcessor", "LoRAAttnProcessor2_0", "LoRALinearLayer",
    "SupervisedFinetune", "notebook_launcher", "DeepSpeedStrategy", "FSDPStrategy", "DDPStrategy",
    "ModelParallelStrategy", "set_activation_checkpointing", "apply_activation_checkpointing",
})  # fmt: skip
_TRAINERS = sorted((name for name in _CALLS if name.endswith("Trainer")), key=len, reverse=True)
_ADAPTER_CONFIGS = frozenset({
    "LoraConfig", "AdaLoraConfig", "IA3Config", "LoHaConfig", "LoKrConfig", "OFTConfig", "BOFTConfig",
    "VeraConfig", "HRAConfig", "CPTConfig", "PrefixTuningConfig", "PromptTuningConfig",
    "PromptEncoderConfig", "LNTuningConfig", "FourierFTConfig", "VBLoRAConfig", "BoneConfig",
    "MissConfig", "RandLoraConfig", "ShiraConfig", "C3AConfig", "RoadConfig", "WaveFTConfig",
    "XLoraConfig", "PolyConfig", "DeloraConfig",
})  # fmt: skip
_NOT_MODELS = (
    "Tokenizer",
    "Processor",
    "Config",
    "Extractor",
    "Scheduler",
    "AutoencoderKL",
    "ImageProcessor",
)
_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric", "L", "pl")
"""Packages of Lightning, and the names that they are imported as."""

_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastTextModel", "FastSentenceTransformer")
_MODEL = "from_pretrained"
_NO_BASES: Mapping[str, str] = {}
_NAMED: Mapping[str, re.Pattern[str]] = {
    "names_freezing": re.compile(r"requires_grad|freeze|frozen|no_grad_params|set_trainable"),
    "names_an_adapter": re.compile(r"lora|dora|adapter|peft|ia3|prompt_tun|prefix_tun"),
    "names_a_precision": re.compile(r"autocast|amp\b|scaler|half|b?float16|bf16|fp16|precision|dtype"),
    "names_checkpointing": re.compile(r"checkpointing|checkpoint_wrapper|checkpoint_seq|recompute|remat"),
}
"""Settings that say whether the code contains names of a kind, which may have an effect that is not read."""

_MODEL_CLASS = pattern(r"For[A-Z]\w+$|LMHeadModel$")
_NAMES = (ast.Name, ast.Attribute)
_LIBRARIES = ("transformers", "trl", "sentence_transformers", "unsloth", "accelerate")
"""Packages that define the known trainers; a class of the same name from elsewhere is a different one."""

_ENCODERS = frozenset({
    "SentenceTransformerTrainingArguments", "SparseEncoderTrainingArguments", "CrossEncoderTrainingArguments",
})  # fmt: skip
_PLAIN_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
"""Classes whose defaults are those of TrainingArguments in every release."""

_OF_DEFAULTS = ("bf16", "fp16", "gradient_checkpointing")
"""Arguments on which defaults depend."""

_ENCODER_MODELS = ("SentenceTransformer", "CrossEncoder", "SparseEncoder")
_QUANTISERS = ("BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig")


class _Call(NamedTuple):
    """A call, the name that prefixes its settings, and its arguments if they were followed."""

    name: str
    node: ast.Call
    followed: FollowedCall | None = None


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


class _Contents:
    """Content of one file that no argument of the program changes, each part found when it is used."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))

    @cached_property
    def assigned(self) -> AssignedNames:
        return AssignedNames(self.nodes)

    @cached_property
    def classes(self) -> Mapping[str, str]:
        return dict(own_classes(self.nodes))

    @cached_property
    def foreign(self) -> set[str]:
        return _imported_elsewhere(self.nodes)

    @cached_property
    def never_used(self) -> set[ast.AST]:
        return _never_used(self.nodes)

    @cached_property
    def imported(self) -> set[str]:
        return _imported(self.nodes)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(names(self.nodes))

    @cached_property
    def makes_a_trainer(self) -> bool:
        called = (node.func for node in self.nodes if isinstance(node, ast.Call))
        return any(ast.unparse(each).endswith("Trainer") for each in called if isinstance(each, _NAMES))


@lru_cache(maxsize=16)
def _contents(tree: ast.Module) -> _Contents:
    """Return the content of a file; the launches of one script share their programs."""
    return _Contents(tree)


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
        self._contents = _contents(tree)
        self.nodes = self._contents.nodes
        self._options = options or {}
        self._partial = options is not None
        known = (*_CALLS, *_ADAPTER_CONFIGS)
        inherited = {name: base for name, base in bases.items() if name not in known}
        self._bases = {**inherited, **self._contents.classes}
        self._foreign = self._contents.foreign
        self._unused = self._contents.never_used if self._starts_a_trainer() else set()

    @cached_property
    def _literals(self) -> Literals:
        return Literals(self._contents.assigned, self._options)

    def documents(self) -> tuple[Document, ...]:
        reached = [*self._followed_calls(), *self._unfollowed_calls()]
        given = self._given_quantisations([call for call, _ in reached])
        if given and all(value is None for value in given):
            reached = [each for each in reached if each[0].name not in _QUANTISERS]
        elif None in given:
            why = "only one of several models is quantised"
            reached = [(call, why if call.name in _QUANTISERS else condition) for call, condition in reached]
        arguments = [call for call, _ in reached if _trainer_of(call.name)]
        others = [(call, condition) for call, condition in reached if not _trainer_of(call.name)]
        if not reached:
            return ()
        found = []
        for number, call in enumerate(arguments, 1):
            settings = tuple(each for each in self._settings(call, "") if not _sizes_an_adapter(each))
            launch = number if len(arguments) > 1 else 0
            dialect = _trainer_of(call.name)
            document = Document(self.file, "json", settings, (call.name,), launch, dialect)
            found.append(document._replace(incomplete=self._unread_keywords(call)))
        # The class of the trainer counts, not that of its arguments: SFTTrainer takes TrainingArguments.
        return (
            *found,
            self._other_calls(others, arguments),
        )

    def _followed_calls(self) -> Iterator[tuple[_Call, str]]:
        """Yield the calls that configure a training and that following the program reached."""
        calls = self.followed.calls if self.followed is not None else ()
        trains_otherwise = any(call.name == "Accelerator" for call in calls)
        for call in calls:
            name = _recognised(call.name, call.owner) if call.node not in self._unused else ""
            if trains_otherwise and _only_evaluates(name, call):
                continue
            if name and not _of_another_package(name, call.owner):
                condition = next(iter(call.conditions), "")
                yield _Call(name, call.node, call), condition
                if (load := _load_by_trainer(call)) is not None:
                    yield load, condition

    def _unfollowed_calls(self) -> Iterator[tuple[_Call, str]]:
        """Yield the calls in code of the file that was not followed; none if that code is never reached."""
        unfollowed = self._unfollowed()
        if unfollowed is not None and not unfollowed:
            return
        for node, condition in self._reached():
            if not isinstance(node, ast.Call) or node in self._unused:
                continue
            if unfollowed is not None and node not in unfollowed:
                continue
            call = _named(node, self._bases)
            if call and not self._is_foreign(call.name):
                yield call, condition

    def _unfollowed(self) -> set[ast.AST] | None:
        """Return the code of functions that were not followed; None for all of the file."""
        followed = self.followed
        if followed is None:
            return None
        trains = any(
            _trainer_of(name) or name in _TRAINERS or name == _MODEL
            for call in followed.calls
            if (name := _recognised(call.name, call.owner))
        )
        if trains and not followed.incomplete:
            return set()
        return {
            inner
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node not in followed.followed
            for inner in ast.walk(node)
        }

    def _is_foreign(self, name: str) -> bool:
        """Return whether a known name of a trainer, or of a program's arguments, is that of another class."""
        return name in self._foreign and (name in _TRAINERS or (self._partial and bool(_trainer_of(name))))

    def _given_quantisations(self, calls: Sequence[_Call]) -> list[Any]:
        """Return what the calls that load a model give as `quantization_config`."""
        return [
            value
            for call in calls
            if call.name == _MODEL
            for name, value, _ in self._keywords(call)
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

    def _other_calls(self, calls: Sequence[tuple[_Call, str]], arguments: Sequence[_Call]) -> Document:
        """Return one document with the settings of all calls that do not make a trainer's arguments.

        Of `arguments`, which make a trainer's arguments, it has what TrainingArguments says of precision, for
        the defaults.

        A setting is Unknown if calls give it different values, or if its call runs only under a condition. As
        an exception, a setting of a call that loads a model is known if all such calls agree on it, because
        one runs.
        """
        settings: dict[str, Setting] = {}
        loads = [self._settings(call, f"{_MODEL}.") for call, _ in calls if call.name == _MODEL]
        loaded = [{setting.name: setting.value for setting in each} for each in loads]
        for call, condition in calls:
            names = tuple(name for name, _, _ in self._keywords(call) if name)
            place = self._place(call.node, self._file_of(call))
            # An empty section would count as absent.
            inner = [Setting(call.name, Section(names or ("",)), place, place)]
            inner += self._settings(call, f"{call.name}.")
            if why_more := self._unread_keywords(call):
                inner.append(Setting(f"{call.name}.{UNREAD}", Unknown(why_more), place, place))
            if condition:
                why = Unknown(f"{call.name} is called only where {condition}")
                inner = [
                    setting if _agreed(setting, loaded) else setting._replace(value=why) for setting in inner
                ]
            for setting in inner:
                before = settings.get(setting.name)
                differs = before is not None and before.value != setting.value and setting.name != call.name
                several = Unknown(f"several calls of {call.name} differ in it")
                settings[setting.name] = setting._replace(value=several) if differs else setting
        plain_ones = [call for call in arguments if call.name in _PLAIN_ARGUMENTS]
        settings.update(self._of_plain_arguments(plain_ones))
        modules = self._contents.imported
        if self._complete is not None:
            modules = {*self._complete.unread}
        place = Place(self.file)
        used = Setting("uses_peft", "peft" in modules or "unsloth" in modules, place, place)
        trains = Setting("starts_a_trainer", self._starts_a_trainer(), place, place)
        frozen = next(iter(self._frozen_parameters()), None)
        if frozen is not None:
            freeze = self._place(frozen)
            settings["freezes_parameters"] = Setting("freezes_parameters", Section(), freeze, freeze)
        named = (Setting(name, self._names(words), place, place) for name, words in _NAMED.items())
        if any(_trainer_of(call.name) == "trl" for call in arguments):  # their defaults depend on the release
            settings["trl_arguments"] = Setting("trl_arguments", Section(("",)), place, place)
        if any(call.name == _MODEL for call, _ in calls) or self._builds_a_model():
            settings["makes_a_model"] = Setting("makes_a_model", Section(("",)), place, place)
        settings.update(self._of_training())
        return Document(self.file, "json", (*settings.values(), used, trains, *named), dialect=DIALECT)

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

    def _of_plain_arguments(self, calls: Sequence[_Call]) -> Iterator[tuple[str, Setting]]:
        """Yield what the only call of TrainingArguments says of precision and checkpointing, by name."""
        if len({call.node for call in calls}) != 1 or self._unread_keywords(calls[0]):
            return
        first = [(each.name, each.value) for each in self._settings(calls[0], "")]
        for call in calls[1:]:  # a loop may make them several times
            others = [(each.name, each.value) for each in self._settings(call, "")]
            if [each for each in first if each[0] in _OF_DEFAULTS] != [
                each for each in others if each[0] in _OF_DEFAULTS
            ]:
                return
        at = self._place(calls[0].node, self._file_of(calls[0]))
        yield "TrainingArguments", Setting("TrainingArguments", Section(("",)), at, at)
        for setting in self._settings(calls[0], "TrainingArguments."):
            if setting.name.rpartition(".")[2] in _OF_DEFAULTS:
                yield setting.name, setting

    def _of_training(self) -> Iterator[tuple[str, Setting]]:
        """Yield what the followed program does to the model on its way to the training, by name."""
        calls = self.followed.calls if self.followed is not None else ()
        only_loops = not self._starts_a_trainer()  # then one of them runs, whatever the conditions are
        for call in calls:
            name = ""
            if call.name == "requires_grad_" and _freezes(call) and not self._unfreezes():
                name = "freezes_parameters"
            elif call.name == "backward" and "accelerator" in call.owner.lower():
                name = "accelerator.backward"
            elif call.name == "backward" and not call.arguments.positional and not call.arguments.rest:
                name = "loss.backward"
            if name and (not call.conditions or (only_loops and name.endswith(".backward"))):
                at = self._place(call.node, call.path if call.path != self.path else self.file)
                yield name, Setting(name, Section(("",)), at, at)

    def _unfreezes(self) -> bool:
        """Return whether the program may make all that it froze trainable again."""
        return self.followed is None or self.followed.unfreezes

    def _builds_a_model(self) -> bool:
        """Return whether the program makes a model of transformers from a configuration alone."""
        return self.followed is not None and any(
            call.name == "from_config"
            or (call.name in _ENCODER_MODELS and call.owner.startswith("sentence_transformers"))
            or (_MODEL_CLASS.search(call.name) and call.owner.startswith("transformers"))
            for call in self.followed.calls
        )

    def _names(self, words: re.Pattern[str]) -> bool:
        """Return whether a name in the code that is reached, else in the file, contains one of the words."""
        found = self._complete.names if self._complete is not None else self._contents.names
        return any(words.search(name.lower()) for name in found)

    def _starts_a_trainer(self) -> bool:
        """Return whether the file creates an object of a class whose name ends in `Trainer`."""
        if self.followed is not None and any(call.name.endswith("Trainer") for call in self.followed.calls):
            return True
        return self._contents.makes_a_trainer

    def _keywords(self, call: _Call) -> Iterator[tuple[str, Any, ast.expr]]:
        """Yield the keyword arguments of a call with their values; "" is the name of `**`."""
        if call.followed is not None:
            for each in call.followed.arguments.keywords:
                yield each.name, plain(each.value, each.node), each.node
            return
        for keyword in call.node.keywords:
            yield keyword.arg or "", self._literals.of(keyword.value), keyword.value

    def _unread_keywords(self, call: _Call) -> str:
        """Return why a call may have more arguments than can be read, or ""."""
        if call.followed is not None:
            return call.followed.arguments.rest
        for name, value, _ in self._keywords(call):
            if not name and isinstance(value, Unknown):
                return value.why
        return ""

    def _file_of(self, call: _Call) -> str:
        """Return the file of a call."""
        return (
            call.followed.path if call.followed is not None and call.followed.path != self.path else self.file
        )

    def _settings(self, call: _Call, prefix: str) -> Iterator[Setting]:
        """Yield the arguments of a call; the first one of `from_pretrained` names the model."""
        file = self._file_of(call)
        node = call.node
        if node.args and prefix.endswith("from_pretrained.") and not isinstance(node.args[0], ast.Starred):
            first = call.followed.arguments.positional[:1] if call.followed is not None else ()
            value = plain(first[0], node.args[0]) if first else self._literals.of(node.args[0])
            place = self._place(node.args[0], file)
            yield Setting(f"{prefix}model_name", _flat(value, node.args[0]), place, place)
        for name, value, expression in self._keywords(call):
            if name == "strategy" and prefix == "lightning.":
                value = _strategy(call, value, expression)  # noqa: PLW2901 - its class says enough
            if name:
                yield from self._nested(f"{prefix}{name}", value, expression, file)
            elif isinstance(value, dict):  # **dict(…)
                for inner_name, inner in value.items():
                    yield from self._nested(f"{prefix}{inner_name}", inner, expression, file)

    def _nested(self, name: str, value: Any, node: ast.expr, file: str) -> Iterator[Setting]:
        """Yield a setting, and those inside a dictionary."""
        place = self._place(node, file)
        if isinstance(value, dict):
            yield Setting(name, Section(tuple(map(str, value))), place, place)
            for key, inner in value.items():
                yield from self._nested(f"{name}.{key}", inner, node, file)
        else:
            yield Setting(name, _flat(value, node), place, place)

    def _place(self, node: ast.expr, file: str = "") -> Place:
        own = not file or file == self.file
        line = self.lines[node.lineno - 1] if own and node.lineno <= len(self.lines) else node.lineno
        length = (node.end_col_offset or 0) - node.col_offset if node.end_lineno == node.lineno else 1
        return Place(file or self.file, line, node.col_offset + 1, max(1, length))


def _sizes_an_adapter(setting: Setting) -> bool:
    """Return whether an argument is a project's own field such as `lora_r`, which only its code can apply.

    No trainer's arguments have one. A flag such as `lora_enable` says at least what is off.
    """
    names_one = _NAMED["names_an_adapter"].search(setting.name.lower()) is not None
    return names_one and not isinstance(setting.value, bool)


def _strategy(call: _Call, value: Any, node: ast.expr) -> Any:
    """Return the name of the class of an object that Lightning is given as its strategy; else the value."""
    made = call.followed.arguments.keyword("strategy") if call.followed is not None else None
    name = (
        made.maker
        if isinstance(made, Thing)
        else ast.unparse(node.func)
        if isinstance(node, ast.Call)
        else ""
    )
    name = name.rpartition(".")[2]
    return name if name.endswith("Strategy") else value


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


def _agreed(setting: Setting, loaded: Sequence[Mapping[str, SettingValue]]) -> bool:
    """Return whether this is a setting of a call that loads a model, and all such calls agree on it."""
    of_a_load = setting.name.startswith(f"{_MODEL}.") and not isinstance(setting.value, Unknown)
    return of_a_load and all(setting.name in each and each[setting.name] == setting.value for each in loaded)


def own_classes(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each class of the file with its first base, and each import alias with its original name."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        if isinstance(node, ast.ClassDef) and node.bases:
            base = node.bases[0]
            yield node.name, base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _imported_elsewhere(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that a file imports from packages that do not define the known trainers."""
    return {
        name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").partition(".")[0] not in _LIBRARIES)
        for alias in node.names
        for name in (alias.name, alias.asname or alias.name)
    }


def _base_of(name: str, bases: Mapping[str, str]) -> str:
    """Return the outermost base of a class of the file; return any other name unchanged."""
    found, seen = name, {""}
    while found in bases and found not in seen:
        seen.add(found)
        found = bases[found]
    return found


def _never_used(nodes: Sequence[ast.AST]) -> set[ast.AST]:
    """Return the calls whose result the file never uses, of those that make a configuration."""
    return {node for node in never_read(nodes) if _makes_configuration(getattr(node.func, "id", ""))}


def _makes_configuration(name: str) -> bool:
    """Return whether a class holds the settings of an adapter, of quantisation or of a trainer."""
    return name in _ADAPTER_CONFIGS or name in _QUANTISERS or bool(_trainer_of(name))


def _named(node: ast.Call, bases: Mapping[str, str]) -> _Call | None:
    """Return a call that configures a training, or None; `bases` maps the file's classes to their bases."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    found = _recognised(_base_of(name, bases), owner)
    return _Call(found, node) if found else None


def _recognised(name: str, owner: str) -> str:
    """Return the name that prefixes the settings of a call that configures a training, or ""."""
    if owner.rpartition(".")[2] in _UNSLOTH:
        return f"unsloth.{name}" if name in ("from_pretrained", "get_peft_model") else ""
    if name in ("Trainer", "Fabric") and owner.partition(".")[0] in _LIGHTNING:
        return "lightning"
    if name == _MODEL and (not owner or any(word in owner for word in _NOT_MODELS)):
        return ""
    if name == "initialize" and owner.rpartition(".")[2] == "deepspeed":
        return "deepspeed.initialize"
    if (owner, name) in (("torch", "compile"), ("ray", "init")):
        return f"{owner}.{name}"
    return name if name in _CALLS or name in _ADAPTER_CONFIGS or _trainer_of(name) else ""


def _of_another_package(name: str, owner: str) -> bool:
    """Return whether a known name of a trainer or of its arguments is that of another package's class."""
    package = owner.partition(".")[0]
    return bool(package) and package not in _LIBRARIES and (name in _TRAINERS or bool(_trainer_of(name)))


def _load_by_trainer(call: FollowedCall) -> _Call | None:
    """Return the call of `from_pretrained` that a trainer makes with `model_init_kwargs`, or None."""
    given = next((each for each in call.arguments.keywords if each.name == "model_init_kwargs"), None)
    if given is None or not isinstance(given.value, Record) or given.value.role != "dict":
        return None
    keywords = tuple(KeywordGiven(name, value, given.node) for name, value in given.value.items.items())
    arguments = Arguments(call.arguments.positional[:1], keywords, given.value.rest)
    return _Call(_MODEL, call.node, call._replace(name=_MODEL, arguments=arguments))


def _freezes(call: FollowedCall) -> bool:
    """Return whether `requires_grad_` freezes a part of what is trained, and not a model beside it."""
    first = call.arguments.get("requires_grad", 0)
    return first is False and not is_beside(call.owner)


def _only_evaluates(name: str, call: FollowedCall) -> bool:
    """Return whether a call makes a DeepSpeed engine that cannot train, as for a reference model."""
    if name != "deepspeed.initialize" or call.arguments.rest or len(call.arguments.positional) > 1:
        return False
    given = {each.name: each.value for each in call.arguments.keywords}
    config = given.get("config", given.get("config_params"))
    trains = {"optimizer", "model_parameters", "args", "config_params"} & given.keys()
    return not trains and isinstance(config, Record) and "optimizer" not in config.items


def _trainer_of(name: str) -> str:
    """Return the dialect of a class of trainer arguments, or "" for any other class."""
    if name in _ENCODERS:
        return "sentence_transformers"
    if name.endswith("TrainingArguments"):
        return "transformers"
    return "trl" if name in _TRL else ""


def _imported(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the top-level packages that a file imports."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _flat(value: Any, node: ast.expr) -> SettingValue:
    """Return a value as a setting stores it; a dictionary, or a list with nested values, is Unknown."""
    if isinstance(value, tuple):
        simple = all(item is None or isinstance(item, bool | int | float | str) for item in value)
        return value if simple else computed(node)
    return (
        value
        if value is None or isinstance(value, bool | int | float | str | Unknown)
        else Unknown("a dictionary")
    )
