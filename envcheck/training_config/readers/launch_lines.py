"""Launch scripts: the settings of each launch line, those of its launcher, and the program it starts.

What the names mean stands in the dialects; here stands only where a launcher's own arguments end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Severity
from envcheck.training_config.document import Document, Setting
from envcheck.training_config.readers import Lines, json_text
from envcheck.training_config.readers import arguments as plain
from envcheck.training_config.readers.script import Argument, Command, Followed, TooLongError, base, follow
from envcheck.training_config.readers.shell import NotAScriptError

LAUNCHER = "launcher"
"""The dialect of what a launcher is told: `processes`."""

# Arguments of launchers that stand alone; every other one takes a value. From torch/distributed/run.py of
# torch 2.9, deepspeed/launcher/runner.py of 0.19 and accelerate/commands/launch.py of 1.12.
_ALONE: Mapping[str, frozenset[str]] = {
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
}  # fmt: skip
_MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "deepspeed.launcher.runner": "deepspeed", "accelerate.commands.launch": "accelerate",
}  # fmt: skip
_TRAINS = {
    "llamafactory-cli": ("train",), "lmf": ("train",), "axolotl": ("train",), "swift": ("sft", "pt", "rlhf"),
    "trl": ("sft", "dpo", "kto", "grpo", "reward", "rloo", "orpo", "cpo"),
}  # fmt: skip
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_OTHER_WORK = re.compile(
    r"merge|eval|infer|test|prepare|preproc|process_|convert|export|demo|serve|server|download|generat|tokeniz"
    r"|api|chat|web|bench|deploy|rollout|setup|upload|plot|export|fetch_data|zero_to_fp32"
)
_EXPORTED = frozenset({"CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN"})
_FILES = (".yaml", ".yml", ".json")


class _Line(NamedTuple):
    """A launch line taken apart: the launcher's name and arguments, the program's words and arguments."""

    launcher: str
    told: tuple[Argument, ...]
    program: tuple[str, ...]
    given: tuple[Argument, ...]


def read(text: str, file: str) -> tuple[Document, ...]:
    """The documents of each launch line that trains.

    Raises:
        InputError: the text is no shell script, or nothing in it starts a training.
    """
    lines = Lines(text, file)
    try:
        followed = follow(text, _starts, _EXPORTED)
    except NotAScriptError as error:
        raise InputError(lines.place(error.at, error.at + 1), error.problem) from None
    except TooLongError:
        raise InputError(file, "its variables, functions or loops grow without end") from None
    taken = [(command, line) for command in followed.commands if (line := taken_apart(command.words))]
    training = [each for each in taken if not _OTHER_WORK.search(_name(each[1]))] or taken
    if not training:
        raise InputError(file, "a shell script in which nothing starts a training that can be read")
    documents: list[Document] = []
    for number, (command, line) in enumerate(training, 1):
        documents += _Launch(command, line, lines, followed, number).documents()
    remarks = (*_assumed(followed, lines, training[0][0]), *_several(training, lines))
    remarks += tuple(
        Diagnostic(Severity.WARNING, "broken-command", said, (lines.place(at, at + 1),))
        for at, said in followed.notes
    )
    documents[-1] = documents[-1]._replace(remarks=remarks)
    return tuple(documents)


def _name(line: _Line) -> str:
    return " ".join(line.program).lower().rpartition("/")[2]


def _assumed(followed: Followed, lines: Lines, command: Command) -> Iterator[Diagnostic]:
    names = sorted(followed.assumed - {"@"})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    parts = ["without its arguments"] if "@" in followed.assumed else []
    if names:
        be = "is" if len(names) == 1 else "are"
        parts.append(f"as where {', '.join(names[:_NAMED])}{more} {be} not set outside")
    if parts:
        text = f"read {' and '.join(parts)}"
        yield Diagnostic(Severity.NOTE, "read-as-if", text, (lines.place(command.at, command.at + 1),))


_NAMED = 6


def _several(training: Sequence[tuple[Command, _Line]], lines: Lines) -> Iterator[Diagnostic]:
    if len(training) > 1:
        places = tuple(
            lines.place(each.at, each.at + len(each.words[0].text)) for each, _ in training[:_NAMED]
        )
        text = f"{len(training)} launch lines: what differs between them is not known"
        yield Diagnostic(Severity.NOTE, "several-launches", text, places)


# --- which program ----------------------------------------------------------------------------------


def _starts(words: tuple[Argument, ...]) -> bool:
    """Whether a command may start a training."""
    first = words[0]
    if first.why:
        return any(word.text.endswith(".py") for word in words[1:6])
    name = base(first.text)
    if name == "ray":
        return len(words) > 3 and words[1].text == "job" and words[2].text == "submit"  # noqa: PLR2004
    if name == "accelerate":
        return len(words) > 1 and words[1].text == "launch"
    if name in _TRAINS:
        return len(words) > 1 and words[1].text in _TRAINS[name]
    return name in _ALONE or _PYTHON.fullmatch(name) is not None or (name.endswith(".py") and len(words) > 1)


def taken_apart(words: tuple[Argument, ...]) -> _Line | None:
    """Launcher, its arguments, program, its arguments; None for a line that starts nothing with arguments."""
    name = base(words[0].text) if not words[0].why else "python"
    if name == "ray":
        return _behind_ray(words)
    if name.endswith(".py"):
        return _Line("", (), (words[0].text,), words[1:])
    if name in _TRAINS:
        return _Line("", (), (name, words[1].text), words[2:])
    if name in _ALONE:
        return _launched(name, words[2:] if name == "accelerate" else words[1:])
    return _interpreted(words[1:])


def _behind_ray(words: tuple[Argument, ...]) -> _Line | None:
    ends = next((number for number, word in enumerate(words) if word.text == "--"), 0)
    inner = words[ends + 1 :] if ends else ()
    return taken_apart(inner) if inner and _starts(inner) else None


def _interpreted(words: tuple[Argument, ...]) -> _Line | None:
    """`python [-u] script.py …` or `python -m module …`."""
    i = 0
    while i < len(words) and words[i].text.startswith("-") and words[i].text != "-m":
        if words[i].text.startswith("-c"):
            return None
        i += 2 if words[i].text in ("-W", "-X") else 1
    module = i < len(words) and words[i].text == "-m"
    i += module
    if i >= len(words) or (words[i].why and not words[i].text.endswith(".py")):
        return None
    if module and words[i].text in _MODULES:
        return _launched(_MODULES[words[i].text], words[i + 1 :])
    if (
        module
        and words[i].text == "accelerate"
        and [word.text for word in words[i + 1 : i + 2]] == ["launch"]
    ):
        return _launched("accelerate", words[i + 2 :])
    return _Line("", (), (words[i].text,), words[i + 1 :])


def _launched(launcher: str, words: tuple[Argument, ...]) -> _Line | None:
    """Past a launcher's own arguments: the first word that belongs to none of them is the program."""
    alone = _ALONE[launcher]
    i = 0
    while i < len(words):
        word = words[i]
        if not word.text.startswith("-"):
            if word.many:  # arguments of the launcher that nobody can read, or the program itself
                i += 1
                continue
            break
        name = word.text.lstrip("-").replace("-", "_")
        i += 1
        if "=" not in word.text and name not in alone:
            i += 1
    if i >= len(words):
        return None
    program = words[i].text
    rest = words[i + 1 :]
    if program in _TRAINS and rest and rest[0].text in _TRAINS[program]:
        return _Line(launcher, words[:i], (program, rest[0].text), rest[1:])
    return _Line(launcher, words[:i], (program,), rest)


# --- documents --------------------------------------------------------------------------------------


class _Launch:
    """One launch line as documents: what the script wrote for it, its launcher's, and the program's."""

    def __init__(self, command: Command, line: _Line, lines: Lines, followed: Followed, number: int) -> None:
        self.command, self.line, self.lines, self.followed, self.number = (
            command,
            line,
            lines,
            followed,
            number,
        )

    def documents(self) -> list[Document]:
        settings, open_end = _settings(self.line.given, self.lines)
        told, _ = _settings(self.line.told, self.lines)
        documents, written = self._written((*settings, *told))
        processes = self._processes({setting.name: setting for setting in told})
        if processes:
            documents.append(self._document((processes,), (), LAUNCHER))
        if self.line.launcher == "accelerate":
            documents.append(self._document(tuple(told), ("accelerate",), "accelerate", written))
        program = (*((self.line.launcher,) if self.line.launcher else ()), *self.line.program)
        last = self._document(tuple(settings), program, "", written)
        return [*documents, last._replace(open_end=open_end)]

    def _document(
        self,
        settings: tuple[Setting, ...],
        program: tuple[str, ...],
        dialect: str,
        written: tuple[str, ...] = (),
    ) -> Document:
        return Document(
            self.lines.file, "arguments", settings, program, self.number, dialect, written=written
        )

    def _written(self, settings: Sequence[Setting]) -> tuple[list[Document], tuple[str, ...]]:
        """Configurations that the script itself writes and this line names."""
        documents, names = [], []
        files = {_relative(name): text for name, text in self.followed.files.items()}
        for setting in settings:
            text = files.get(_relative(setting.value)) if isinstance(setting.value, str) else None
            if text is None or text.why or not text.text.lstrip().startswith("{"):
                continue
            line = self.lines.place(text.at, text.at + 1).line
            read = json_text.read("\n" * (line - 1) + text.text, self.lines.file)
            documents += [document._replace(launch=self.number) for document in read]
            names.append(str(setting.value))
        return documents, tuple(names)

    def _processes(self, told: Mapping[str, Setting]) -> Setting | None:
        """How many processes the launcher starts in all, or why nobody can say."""
        place = self.lines.place(self.command.at, self.command.at + len(self.command.words[0].text))
        unread = next((word.why for word in self.line.told if word.many and word.why), "")
        if self.line.launcher and unread and not {"nproc_per_node", "num_gpus", "include"} & told.keys():
            return Setting("processes", Unknown(unread), place, place)
        if self.line.launcher == "torchrun":
            return _torchrun(told, place)
        if self.line.launcher == "deepspeed":
            return _deepspeed(told, place, self.command.environment.get("CUDA_VISIBLE_DEVICES"))
        each = self.command.environment.get("NPROC_PER_NODE")
        if each is None or self.line.program[0] not in ("swift", "llamafactory-cli"):
            return None
        nodes = self.command.environment.get("NNODES")
        named = (("NPROC_PER_NODE", each), ("NNODES", nodes))
        return _product([_number(word.text, word.why, name) for name, word in named if word], place)


def _relative(path: str) -> str:
    return path.removeprefix("./")


def _torchrun(told: Mapping[str, Setting], place: Place) -> Setting:
    found = [told[name] for name in ("nproc_per_node", "nnodes") if name in told]
    return _product([_count(setting) for setting in found], found[0].place if found else place)


def _deepspeed(told: Mapping[str, Setting], place: Place, visible: Argument | None) -> Setting:
    include = told.get("include") or told.get("i")
    if include is not None and isinstance(include.value, str):
        hosts = [host.partition(":")[2] for host in include.value.split("@")]
        if all(hosts):
            return Setting(
                "processes", str(sum(len(host.split(",")) for host in hosts)), include.named, include.place
            )
    for name in ("hostfile", "H", "include", "i", "exclude", "e"):
        if name in told:
            why = Unknown(f"--{name} of the deepspeed launcher says where the processes run")
            return Setting("processes", why, told[name].named, told[name].place)
    gpus = told.get("num_gpus")
    factors = [_count(told[name]) for name in ("num_gpus", "num_nodes") if name in told]
    if gpus is None and visible is not None and not visible.why and visible.text:
        factors.append(len(visible.text.split(",")))
    elif gpus is None:
        factors.append(Unknown("the deepspeed launcher starts a process for every GPU it finds"))
    return _product(factors, gpus.place if gpus else place)


def _count(setting: Setting) -> int | Unknown:
    why = setting.value.why if isinstance(setting.value, Unknown) else ""
    return _number(str(setting.value), why, f"--{setting.name}")


def _number(text: str, why: str, name: str) -> int | Unknown:
    if why:
        return Unknown(why)
    return (
        int(text)
        if text.isdecimal() and len(text) < _DIGITS
        else Unknown(f"{name} {text} is no fixed number")
    )


_DIGITS = 7


def _product(factors: Sequence[int | Unknown], place: Place) -> Setting:
    product = 1
    for each in factors:
        if isinstance(each, Unknown):
            return Setting("processes", each, place, place)
        product *= each
    return Setting("processes", str(product), place, place)


def _settings(words: Sequence[Argument], lines: Lines) -> tuple[list[Setting], str]:
    """Words as settings, a later one in place of an earlier; and why there may be more than these."""
    found: dict[str, Setting] = {}
    open_end = ""
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        named = lines.place(word.at, word.at + len(word.text))
        spelled, equals, value = word.text.partition("=")
        if word.many:
            open_end = open_end or word.why
            continue
        if not spelled.startswith("-") and not (equals and _KEY.fullmatch(spelled)):
            if word.text.endswith(_FILES) or word.why:
                said = Unknown(word.why) if word.why else word.text
                found.setdefault("config", Setting("config", said, named, named))
            continue
        why, place = word.why, named
        if equals:
            place = lines.place(word.at + len(spelled) + 1, word.at + len(word.text))
        elif i < len(words) and not words[i].text.startswith("--"):
            value, why = words[i].text, words[i].why
            place = lines.place(words[i].at, words[i].at + len(value))
            i += 1
        name = spelled.lstrip("-").replace("-", "_")
        for setting in plain.nested(Setting(name, Unknown(why) if why else value, named, place)):
            found.pop(setting.name, None)
            found[setting.name] = setting
    return list(found.values()), open_end


_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.]*")
