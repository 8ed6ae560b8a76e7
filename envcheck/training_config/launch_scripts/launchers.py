"""Launchers: which commands may start a training, and where the program begins after a launcher."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts.values import Argument, base_name

# Arguments of launchers that take no value; every other argument takes one. From torch/distributed/run.py of
# torch 2.9, deepspeed/launcher/runner.py of 0.19 and accelerate/commands/launch.py of 1.12.
_FLAGS: Mapping[str, frozenset[str]] = {
    "torchrun": frozenset({
        "standalone", "no_python", "module", "m", "run_path", "use_env", "virtual_local_rank",
    }),
    "deepspeed": frozenset({
        "no_python", "module", "no_local_rank", "no_ssh_check", "no_ssh", "force_multi", "save_pid",
        "elastic_training", "enable_each_rank_log", "bind_cores_to_rank",
    }),
    "accelerate": frozenset({
        "cpu", "multi_gpu", "tpu", "ipex", "use_mps_device", "mps", "quiet", "q", "use_deepspeed", "use_fsdp",
        "use_megatron_lm", "use_xpu", "m", "module", "no_python", "debug", "tpu_cluster", "no_tpu_cluster",
        "tpu_use_sudo", "same_network", "use_parallelism_config", "enable_cpu_affinity", "downcast_bf16",
    }),
    # colossalai/cli/launcher of 0.4
    "colossalai": frozenset({"m"}),
    # composer/cli/launcher.py of 0.32
    "composer": frozenset({"v", "verbose", "m", "module_mode", "c", "command_mode"}),
}  # fmt: skip
_TORCHRUN_SUBCOMMANDS = {"tune": "run"}
"""Programs with a subcommand that takes torchrun's arguments and then the name of a recipe."""

_LAUNCHES = {"accelerate": "launch", "colossalai": "run"}
"""Launchers with a subcommand that starts a program."""

_LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "deepspeed.launcher.runner": "deepspeed", "accelerate.commands.launch": "accelerate",
}  # fmt: skip
_TRAINING_SUBCOMMANDS = {
    "llamafactory-cli": ("train", "sft", "dpo", "rm"), "lmf": ("train", "sft", "dpo", "rm"),
    "axolotl": ("train",), "xtuner": ("train",), "swift": ("sft", "pt", "rlhf"),
    "megatron": ("sft", "pt", "rlhf"), "autotrain": ("llm", "--config"),
    "litgpt": (
        "finetune", "finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2", "pretrain",
    ),
    "trl": ("sft", "dpo", "kto", "grpo", "reward", "rloo", "orpo", "cpo"),
}  # fmt: skip
_PYTHON = pattern(r"(?:python|pypy)[0-9.]*")
_OTHER_WORK = pattern(
    r"merg(?:e|ing)|eval|infer|test|prepare|preproc|process_|convert|export|demo|serve|server|download|generat|tokeniz"
    r"|^(?:pip|venv|ensurepip|wheel|ipykernel|jupyter|wandb|spacy|nltk[.]downloader)$"
    r"|check|dataset|valid|analy|filter|split|collect|annotat|sampl|scor(?:e|ing)"
    r"|verif|remote_rm|reward_server|api|chat|web|bench|deploy|rollout|setup|upload|plot|export|fetch_data|zero_to_fp32|\bquantize(?:[.]py)?$"
)
_ONLY = pattern(
    r"(?:eval|evaluate|test|inference|infer|predict|generate|export|merge)_only|only_(?:eval|test|predict)"
)
_MODES = frozenset({"mode", "run_mode", "phase", "action"})
_OTHER_MODES = frozenset({
    "eval", "evaluate", "evaluation", "test", "testing", "infer", "inference", "predict", "merge", "export",
})  # fmt: skip
_OF_TRAINERS = frozenset({
    "gradient_accumulation_steps", "learning_rate", "model_name_or_path", "num_train_epochs",
    "per_device_train_batch_size",
})  # fmt: skip
_OF_TRAININGS = (_OF_TRAINERS - {"model_name_or_path"}) | {
    "lr", "epochs", "num_epochs", "max_steps", "do_train", "deepspeed_config", "zero_stage",
    "deepspeed", "fsdp", "gradient_checkpointing", "optim",
}  # fmt: skip
"""Options that only a training has: `bf16` and `fp16` are those of an evaluation or a server, too."""

_ENOUGH = 3  # of these arguments show that a command trains
_SUBCOMMANDS = frozenset({
    "train", "sft", "dpo", "grpo", "rl", "finetune", "fine-tune", "pretrain", "fit", "tune",
})  # fmt: skip
_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_OWN_COMMANDS = pattern(r"[a-z][\w-]*")
_SHELLS = frozenset({"bash", "sh", "source", ".", "echo", "printf", "export", "sbatch", "eval", "exec"})
_SCRIPT_WITHIN = 6  # words in which the script of an unknown interpreter is looked for


class LaunchLine(NamedTuple):
    """A launch line in parts: the launcher and its arguments, the program's words and its arguments."""

    launcher: str
    launcher_arguments: tuple[Argument, ...]
    program: tuple[str, ...]
    arguments: tuple[Argument, ...]
    own_command: bool = False  # a command that no trainer ships, which may start processes itself

    @property
    def trains(self) -> bool:
        """Return whether the program's name suggests no other work, such as merging or evaluating.

        Nor may an argument say that this run does only such work.
        """
        named = _OTHER_WORK.search(" ".join(self.program).lower().rpartition("/")[2])
        return not named and not self.only_evaluates

    @property
    def only_evaluates(self) -> bool:
        """Return whether an argument says that this run does other work, whatever the program can do."""
        return any(map(_says_other_work, self.arguments, (*self.arguments[1:], None)))


def _says_other_work(word: Argument, following: Argument | None) -> bool:
    """Return whether an argument says that a run only evaluates, as `--eval_only` and `--mode test` do."""
    name, equals, value = word.text.partition("=")
    option = name.lstrip("-+").replace("-", "_").lower()
    if not equals and following is not None and not following.text.startswith("-"):
        value = following.text
    if not name.startswith("-") and not equals:
        return False
    if _ONLY.fullmatch(option):
        return value.lower() not in ("false", "0", "no", "none")
    return option in _MODES and value.lower() in _OTHER_MODES


def may_train(words: tuple[Argument, ...]) -> bool:
    """Return whether a command may start a training."""
    first = words[0]
    if first.why:
        return any(word.text.endswith(".py") for word in words[1:_SCRIPT_WITHIN])
    name = base_name(first.text)
    if name in _BEHIND:
        texts = [word.text for word in words]
        return texts[1:3] == ["job", "submit"] or _TORCHX_COMPONENT in texts
    if name in _LAUNCHES:
        return len(words) > 1 and words[1].text == _LAUNCHES[name]
    if name in _TORCHRUN_SUBCOMMANDS:
        return len(words) > 2 and words[1].text == _TORCHRUN_SUBCOMMANDS[name]  # noqa: PLR2004
    if name in _TRAINING_SUBCOMMANDS:
        return len(words) > 1 and words[1].text in _TRAINING_SUBCOMMANDS[name]
    known = (
        _names_configuration(words)
        or name in _FLAGS
        or _PYTHON.fullmatch(name) is not None
        or (name.endswith(".py") and len(words) > 1)
    )
    return known or _has_training_arguments(words)


def is_known_trainer(command: str) -> bool:
    """Return whether a command is a known trainer's own, whose subcommands that train are known."""
    return command in _TRAINING_SUBCOMMANDS


def _names_configuration(words: tuple[Argument, ...]) -> bool:
    """Return whether the subcommand of an unknown command trains with a file: `oumi train -c a.yaml`."""
    own = _OWN_COMMANDS.fullmatch(words[0].text) is not None and words[0].text not in _SHELLS | _FLAGS.keys()
    return (
        own
        and len(words) > 2  # noqa: PLR2004
        and words[1].text in _SUBCOMMANDS
        and any(word.text.endswith(_CONFIGURATIONS) for word in words[2:])
    )


def _has_training_arguments(words: tuple[Argument, ...]) -> bool:
    """Return whether an unknown command, such as a project's own, takes arguments of a trainer."""
    names = [base_name(word.text) for word in words]
    starts_another = any(map(starts_program, names))
    starts_another = starts_another or names[0].startswith("-") or names[0] in _SHELLS
    return not starts_another and has_training_arguments(words[1:])


def starts_program(name: str) -> bool:
    """Return whether a word of a command is a launcher, Python, or a program of Python."""
    return name in _FLAGS or name.endswith(".py") or _PYTHON.fullmatch(name) is not None


def has_training_arguments(words: tuple[Argument, ...]) -> bool:
    """Return whether enough of a program's arguments are those of trainers."""
    given = {word.text.partition("=")[0].lstrip("-").replace("-", "_") for word in words}
    return len(given & _OF_TRAINERS) >= _ENOUGH


def names_a_training(words: tuple[Argument, ...]) -> bool:
    """Return whether one of a program's arguments is of a training, such as its learning rate."""
    given = {word.text.partition("=")[0].lstrip("-").replace("-", "_") for word in words}
    return not given.isdisjoint(_OF_TRAININGS)


def launch_line(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the parts of a command, or None if the program that it starts has no known name."""
    name = base_name(words[0].text) if not words[0].why else "python"
    if name in _BEHIND:
        return _BEHIND[name](words)
    if name.endswith(".py"):
        return LaunchLine("", (), (words[0].text,), words[1:])
    if name in _TRAINING_SUBCOMMANDS or _names_configuration(words):
        named = not words[1].text.startswith("-")
        program = (name, words[1].text) if named else (name,)
        own = name not in _TRAINING_SUBCOMMANDS
        return LaunchLine("", (), program, words[2 if named else 1 :], own_command=own)
    if name in _TORCHRUN_SUBCOMMANDS:
        return _behind_tune(name, words[2:])
    if name in _FLAGS:
        return _behind_launcher(name, words[2:] if name in _LAUNCHES else words[1:])
    own = name != "python" and _has_training_arguments(words)
    return LaunchLine("", (), (name,), words[1:], own_command=True) if own else _behind_python(words[1:])


def _behind_ray(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the parts of the command after `--` of `ray job submit`."""
    end = next((number for number, word in enumerate(words) if word.text == "--"), 0)
    inner = words[end + 1 :] if end else ()
    return launch_line(inner) if inner and may_train(inner) else None


def _behind_torchx(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the parts of `torchx run dist.ddp -j NODESxPROCESSES --script PROGRAM -- ARGUMENTS`."""
    texts = [word.text for word in words]
    start = texts.index(_TORCHX_COMPONENT)
    end = texts.index("--") if "--" in texts[start:] else len(texts)
    options = {texts[i].lstrip("-"): words[i + 1] for i in range(start + 1, end - 1) if texts[i][:1] == "-"}
    program = options.get("script") or options.get("m")
    if program is None or program.why:
        return None
    size = options.get("j")
    counts: tuple[Argument, ...] = ()
    if size is not None and not size.why:
        nodes, _, processes = size.text.rpartition("x")
        counts = (
            size._replace(text=f"--nnodes={nodes or 1}"),
            size._replace(text=f"--nproc_per_node={processes}"),
        )
    return LaunchLine("torchrun", counts, (program.text,), words[end + 1 :])


_TORCHX_COMPONENT = "dist.ddp"
"""The component of TorchX that starts a program as torchrun does."""

_BEHIND = {"ray": _behind_ray, "torchx": _behind_torchx}


def _behind_tune(name: str, words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return a recipe and its arguments; torchrun starts it if one of its arguments is given."""
    line = _behind_launcher("torchrun", words)
    if line is None:
        return None
    return line._replace(
        launcher="torchrun" if line.launcher_arguments else "", program=(name, *line.program)
    )


_RUNS_A_FILE = pattern(
    r"\bexec\(\s*(?:compile\(\s*)?open\(\s*['\"]([^'\"{}]+\.py)['\"]|\brun_path\(\s*['\"]([^'\"{}]+\.py)['\"]"
)
"""How the text of `python -c` executes a whole file, which finds the arguments behind the text."""


def _behind_python(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the program of `python [-u] script.py …` or `python -m module …`; `words` follow `python`."""
    i = 0
    while i < len(words) and words[i].text.startswith("-") and words[i].text != "-m":
        if words[i].text == "-c" and i + 1 < len(words) and not words[i + 1].why:
            executed = _RUNS_A_FILE.findall(words[i + 1].text)
            files = {first or second for first, second in executed}
            return LaunchLine("", (), (files.pop(),), words[i + 2 :]) if len(files) == 1 else None
        if words[i].text.startswith("-c") or words[i].text == "-":  # the program is text of the script
            return None
        i += 2 if words[i].text in ("-W", "-X") else 1
    if i < len(words) and words[i].text == "-m":
        return _module(words[i + 1 :])
    return _script(words[i:])


def _module(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the program of `python -m`, which may be the module of a launcher."""
    name = words[0].text if words else ""
    if words and words[0].why:
        return _script(words)
    if name in _LAUNCHER_MODULES:
        return _behind_launcher(_LAUNCHER_MODULES[name], words[1:])
    if name == "accelerate" and len(words) > 1 and words[1].text == "launch":
        return _behind_launcher("accelerate", words[2:])
    return _script(words)


def _script(words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return a script or module and its arguments; None if there is none or its name is unknown."""
    if not words or (words[0].why and not words[0].text.endswith(".py")):
        return None
    return LaunchLine("", (), (words[0].text,), words[1:])


def _behind_launcher(launcher: str, words: tuple[Argument, ...]) -> LaunchLine | None:
    """Return the program after a launcher: the first word that is not one of the launcher's arguments."""
    flags = _FLAGS[launcher]
    i = 0
    unreadable: list[int] = []
    while i < len(words):
        word = words[i]
        if word.text == "--":  # ends the launcher's arguments
            i += 1
            break
        if word.text.startswith("-"):
            name = word.text.lstrip("-").replace("-", "_")
            i += 1 if "=" in word.text or name in flags else 2
        elif word.many:  # unknown arguments of the launcher, or the program itself
            unreadable.append(i)
            i += 1
        else:
            break
    if i >= len(words):
        return _behind_unknown_word(launcher, words, unreadable[-1]) if unreadable else None
    program, rest = words[i].text, words[i + 1 :]
    if program in _TRAINING_SUBCOMMANDS and rest and rest[0].text in _TRAINING_SUBCOMMANDS[program]:
        return LaunchLine(launcher, words[:i], (program, rest[0].text), rest[1:])
    return LaunchLine(launcher, words[:i], (program,), rest)


def _behind_unknown_word(launcher: str, words: tuple[Argument, ...], at: int) -> LaunchLine:
    """Return the launch line of a program that is named in the word `at`, which is known only at run time.

    A launcher's arguments come before the program, so what follows the last such word is the program's.
    """
    return LaunchLine(launcher, words[:at], (words[at].text,), words[at:])
