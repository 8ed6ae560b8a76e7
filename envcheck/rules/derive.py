"""Derive facts: add to an inventory what follows from its facts and the tables of the matrix.

This is a pure function, so it serves a probed machine, a facts file and a resolver's candidate alike. A
derived fact never replaces one that was read. It is Unknown, with the reason, if an input is Unknown, and
Absent if an input is Absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Reading,
    Tri,
    Unknown,
    is_package_key,
    package_of_key,
)
from envcheck.core.nvidia import cuda_of_libraries, has_code, has_ptx, is_capability
from envcheck.core.rules import Default, Matrix, When
from envcheck.core.tables import GpuModel, Tables, TorchBuild
from envcheck.rules.clauses import evaluate
from envcheck.rules.requirements import is_environment

_TRL_TRAINERS = {"dpo": "DPO", "grpo": "GRPO", "kto": "KTO", "ppo": "PPO", "reward": "Reward"}
"""TRL's trainers that only trainings by their method import, by `train.method`."""

COMPONENTS = {
    "train.runs_training_arguments": Key(
        Kind.FLAG,
        "whether the options pass through transformers' TrainingArguments",
        phrases={"true": "transformers' TrainingArguments"},
    ),
    "train.runs_trainer": Key(
        Kind.FLAG,
        "whether transformers' Trainer is constructed and trains: its accelerator, loop and checkpoints",
        phrases={"true": "transformers' Trainer"},
    ),
    "train.runs_trainer_import": Key(
        Kind.FLAG,
        "whether the training imports the module of transformers' Trainer",
        phrases={"true": "the module of transformers' Trainer"},
    ),
    "train.runs_trainer_optimizer": Key(
        Kind.FLAG,
        "whether transformers' Trainer makes the optimizer from its name",
        phrases={"true": "an optimizer of transformers' Trainer"},
    ),
    "train.runs_accelerate": Key(
        Kind.FLAG,
        "whether an Accelerator of accelerate prepares model and optimizer",
        phrases={"true": "accelerate"},
    ),
    "train.runs_own_deepspeed": Key(
        Kind.FLAG,
        "whether the trainer hands its configuration to deepspeed.initialize itself",
        phrases={"true": "DeepSpeed called by the trainer"},
    ),
    "train.runs_attention": Key(
        Kind.FLAG,
        "whether transformers is given the configured attention, and the trainer takes no other instead",
        phrases={"true": "attention of transformers"},
    ),
    "train.runs_quantization": Key(
        Kind.FLAG,
        "whether transformers quantises the base model while loading it",
        phrases={"true": "quantisation by transformers"},
    ),
    "train.runs_peft": Key(
        Kind.FLAG, "whether PEFT makes the adapter", phrases={"true": "an adapter of PEFT"}
    ),
    "train.runs_trl": Key(Kind.FLAG, "whether the training imports TRL", phrases={"true": "TRL imported"}),
    "train.runs_trl_trainers": Key(
        Kind.FLAG,
        "whether the training imports a trainer class of TRL",
        phrases={"true": "a trainer class of TRL"},
    ),
    **{
        f"train.runs_trl_{method}": Key(
            Kind.FLAG,
            f"whether the training imports TRL's {name}Trainer",
            phrases={"true": f"TRL's {name}Trainer"},
        )
        for method, name in _TRL_TRAINERS.items()
    },
    "train.runs_vllm": Key(Kind.FLAG, "whether the training imports vLLM", phrases={"true": "vLLM imported"}),
}
"""Pieces of library code, and whether the described training runs them (compat/tables/runs.toml).

A rule names the piece in which its failure happens. Which trainer, method and release runs it is stated once.
"""

IMPORTS = {
    "training.imports_deepspeed": Key(
        Kind.FLAG,
        "whether the training imports DeepSpeed where it is installed",
        phrases={"true": "DeepSpeed imported"},
    ),
    "training.imports_peft": Key(
        Kind.FLAG,
        "whether the training imports PEFT where it is installed, with or without an adapter",
        phrases={"true": "PEFT imported"},
    ),
    "training.imports_datasets": Key(
        Kind.FLAG,
        "whether the training imports datasets where it is installed",
        phrases={"true": "datasets imported"},
    ),
    "training.imports_transformers": Key(
        Kind.FLAG,
        "whether the training imports transformers where it is installed",
        phrases={"true": "transformers imported"},
    ),
    "training.imports_modeling": Key(
        Kind.FLAG,
        "whether the training imports the model code of transformers: its modeling_utils",
        phrases={"true": "model code of transformers"},
    ),
    "training.imports_torchvision": Key(
        Kind.FLAG,
        "whether the training imports torchvision where it is installed, for text too",
        phrases={"true": "torchvision imported"},
    ),
    "training.imports_torchaudio": Key(
        Kind.FLAG,
        "whether the training imports torchaudio where it is installed, for text too",
        phrases={"true": "torchaudio imported"},
    ),
}
"""Packages of which the import itself may fail, and whether the described training imports them.

Their rows stand in compat/tables/runs.toml too. They are Absent where no training is described, as where it
names no trainer: an environment in which `import deepspeed` fails is broken until a training is known that
does not import it. So a rule about an import has the clause `["absent", true]`, and stays one about packages.
"""

KEYS = {
    **COMPONENTS,
    **IMPORTS,
    "cuda.runtime": Key(Kind.VERSION, "CUDA the installed torch was built with; Absent for a CPU build"),
    "cuda.minimum_driver": Key(Kind.VERSION, "oldest Linux driver of that CUDA's major family"),
    "cuda.full_driver": Key(Kind.VERSION, "driver that ships with that CUDA: from it on nothing is limited"),
    "cuda.driver": Key(Kind.VERSION, "newest CUDA that the driver supports"),
    "cuda.driver_too_old": Key(
        Kind.FLAG, "the driver shows an older CUDA than torch's; absent if its own version decides"
    ),
    "torch.cuda_available": Key(Kind.FLAG, "what torch.cuda.is_available() returned, in a report"),
    "driver.torch_last": Key(Kind.VERSION, "newest torch whose default build this driver can run"),
    "build.torch.architectures": Key(
        Kind.WORDS, "GPU architectures torch has code for: sm_80, …; compute_90 is PTX"
    ),
    "build.torch.torchvision": Key(Kind.VERSION, "torchvision that belongs to this torch"),
    "build.torch.torchaudio": Key(Kind.VERSION, "torchaudio that belongs to this torch"),
    "build.torch.triton": Key(Kind.VERSION, "triton that belongs to this torch"),
    "build.torchvision.fits": Key(
        Kind.FLAG, "whether torchvision is taken to load beside this torch: by their minor releases"
    ),
    "build.torchaudio.fits": Key(
        Kind.FLAG, "whether torchaudio is taken to load beside this torch: by their minor releases"
    ),
    "build.deepspeed.toolkit": Key(
        Kind.FLAG, "whether DeepSpeed compiles its operators with this CUDA toolkit beside this torch"
    ),
    "build.deepspeed.fits": Key(
        Kind.FLAG, "whether the ops that DeepSpeed's installation compiled are for this torch and its CUDA"
    ),
    "build.torch-npu.cann": Key(Kind.VERSION, "CANN that this torch_npu was released for, e.g. 8.3.RC1"),
    "cann.fits": Key(Kind.FLAG, "whether the CANN here has the minor version of that one"),
    "torch.packages_of_another_release": Key(
        Kind.WORDS, "packages whose local label names another minor version of torch than the installed one"
    ),
    "torch.packages_of_another_build": Key(
        Kind.WORDS, "packages whose local label names another CUDA major or C++ ABI than torch has"
    ),
    "torch.flash_attn_of_another_build": Key(Kind.FLAG, "whether flash-attn is among those packages"),
    "torch.causal_conv1d_of_another_build": Key(Kind.FLAG, "whether causal-conv1d is among those packages"),
    "torch.mamba_ssm_of_another_build": Key(Kind.FLAG, "whether mamba-ssm is among those packages"),
    "packages.without_wheel": Key(
        Kind.WORDS, "listed packages of which no published wheel fits this Python and C library"
    ),
    "packages.from_wheels": Key(
        Kind.FLAG, "whether packages are installed from wheels: not where conda manages the environment"
    ),
    "torch.from_wheel": Key(
        Kind.FLAG,
        "whether torch is a published wheel: not conda's build, and not compiled by the user or a vendor",
    ),
    "training.described": Key(Kind.FLAG, "whether anything is known about the training"),
    "bitsandbytes.library_named": Key(
        Kind.FLAG, "whether BNB_CUDA_VERSION is known to choose the library that bitsandbytes loads"
    ),
    "unsloth.release": Key(
        Kind.VERSION, "release of Unsloth that is known to be installed; absent if none is known to be"
    ),
    "gpus.visible": Key(
        Kind.NUMBER, "GPUs that CUDA_VISIBLE_DEVICES leaves to programs; all if it is not set"
    ),
    "gpu.kind": Key(Kind.WORD, "datacenter, geforce, workstation, jetson, …"),
    "gpu.in_torch_build": Key(Kind.FLAG, "whether the installed torch has code that this GPU can run"),
    "gpu.torch_first": Key(Kind.VERSION, "first torch whose default build has machine code for this GPU"),
    "gpu.torch_nearest": Key(Kind.VERSION, "release with machine code for this GPU nearest to the installed"),
    "gpu.torch_last": Key(Kind.VERSION, "newest torch whose default build has machine code for this GPU"),
    "gpu.packages_without_code": Key(
        Kind.WORDS, "compiled packages that have neither machine code for this GPU nor PTX it could compile"
    ),
    "train.minimum_transformers": Key(
        Kind.VERSION, "first transformers with code for the model_type; Absent if all that are known have it"
    ),
    "train.attention_refused": Key(
        Kind.FLAG,
        "whether this release of transformers refuses the configured attention for the model_type",
        phrases={"true": "an attention that this architecture refuses"},
    ),
    "train.attention_accepted": Key(
        Kind.WORD, "sdpa if this release of transformers has it for the model_type, eager if not"
    ),
    "train.examples_per_step": Key(
        Kind.NUMBER, "micro batch size x accumulation steps x processes that see other data"
    ),
    "train.saves_at_evaluations": Key(
        Kind.FLAG, "whether every checkpoint is saved at a step that evaluates, where both go by steps"
    ),
    "train.install_transformers": Key(
        Kind.VERSION,
        "first transformers to install for the model_type: that one, or the next if it was yanked",
    ),
}
"""The declarations of derived facts."""

_BATCH_KEYS = (
    "train.micro_batch_size",
    "train.gradient_accumulation_steps",
    "train.world_size",
    "train.tensor_parallel",
    "train.sequence_parallel",
)

FOLLOWS_FROM: Mapping[str, tuple[str, ...]] = {
    "cuda.runtime": ("pkg.torch", "build.torch.cuda"),
    "cuda.minimum_driver": ("cuda.runtime", "driver.version"),
    "cuda.full_driver": ("cuda.runtime",),
    "cuda.driver": ("driver.version",),
    "torch.cuda_available": ("pkg.torch", "driver.version"),
    "cuda.driver_too_old": ("cuda.runtime", "driver.version"),
    "driver.torch_last": ("driver.version",),
    "driver.library": ("driver.version",),
    "driver.libcuda": ("driver.version",),
    "driver.error": ("driver.version",),
    "driver.passed_over": ("driver.version",),
    "build.torch.architectures": ("cuda.runtime",),
    "build.torch.torchvision": ("pkg.torch",),
    "build.torch.torchaudio": ("pkg.torch",),
    "build.torch.triton": ("pkg.torch",),
    "build.torchvision.fits": ("pkg.torch", "pkg.torchvision"),
    "build.torchaudio.fits": ("pkg.torch", "pkg.torchaudio"),
    "build.deepspeed.toolkit": ("pkg.deepspeed", "cuda.runtime"),
    "build.deepspeed.fits": ("pkg.torch", "cuda.runtime"),
    "build.torch-npu.cann": ("pkg.torch-npu",),
    "cann.fits": ("pkg.torch-npu", "cann.version"),
    "torch.from_wheel": ("pkg.torch",),
    "unsloth.release": ("pkg.unsloth",),
    "torch.packages_of_another_release": ("pkg.torch",),
    "torch.packages_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.flash_attn_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.causal_conv1d_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.mamba_ssm_of_another_build": ("pkg.torch", "cuda.runtime"),
    "packages.without_wheel": ("python.version", "host.glibc"),
    "training.described": ("train.offload_optimizer", "train.attention", "train.torch_compile"),
    "gpu.in_torch_build": ("build.torch.architectures",),
    "gpu.torch_nearest": ("pkg.torch",),
    "train.examples_per_step": _BATCH_KEYS,
    "train.saves_at_evaluations": ("train.save_steps", "train.eval_steps"),
    "train.minimum_transformers": ("train.model_type",),
    "train.install_transformers": ("train.model_type",),
    "train.attention_refused": ("train.model_type", "train.attention", "pkg.transformers"),
    "train.attention_accepted": ("train.model_type", "pkg.transformers"),
}
"""The inputs of each derived fact that a proposed change may set.

Facts that get a default are left out: a default row names its own inputs.
"""

ARCHITECTURES_SUFFIX = ".architectures"
"""Suffix of keys (`pkg.xformers.architectures`) for the GPU architectures that a package has code for."""

_CUDA_LABEL = re.compile(r"cu[0-9]{3}")
_WHEEL_LABEL = re.compile(r"(?:cu[0-9]+|cpu(?:\.cxx11\.abi)?|rocm[0-9.]+|xpu)?")
"""The local labels of the wheels of torch that its project publishes."""


def derive(read: Inventory, matrix: Matrix) -> Inventory:
    """Return the inventory with every fact that follows from it and the matrix."""
    return derive_training(derive_machine(read, matrix), matrix)


def derive_machine(read: Inventory, matrix: Matrix) -> Inventory:
    """Return the inventory with what follows from it and the matrix, except facts of the training.

    None of these facts depends on one of the training.
    """
    tables = matrix.tables
    read = _unset_variables(read)
    made = [_visible(read), _from_wheels(read), _torch_from_wheel(read), _library_named(read), _unsloth(read)]
    inventory = _add(_device_models(read, tables), made)
    inventory = _torch_build(inventory, tables)
    inventory = _compiled_packages(inventory, tables)
    inventory = _ascend(inventory, tables)
    inventory = _drivers(inventory, tables)
    inventory = _published_wheels(inventory, matrix)
    return _device_code(inventory, tables)


def _unset_variables(read: Inventory) -> Inventory:
    """Take every variable that nothing names as unset; if the variables could not be read, change nothing.

    Facts files and dependency files rarely name variables. Waiting for them would keep back every rule from
    which a variable exempts.
    """
    if "env" in read.complete or "env" in read.unread:
        return read
    return read._replace(complete=read.complete | {"env"})


# --- missing inputs ---------------------------------------------------------------------------------


def _missing(inventory: Inventory, *keys: str, device: int | None = None) -> Reading | None:
    """Return the first reading of these inputs that is not Known, as the derived reading; None if all are."""
    for key in keys:
        reading = inventory.reading(key, device)
        match reading:
            case Known():
                continue
            case Absent():
                return reading
            case Unknown(why, asked):
                return Unknown(f"{key}: {why}", asked)
    return None


def _add(inventory: Inventory, derived: Iterable[Fact]) -> Inventory:
    """Add derived facts, except where a probe, a file or an option provided the fact."""
    return inventory.with_facts(fact for fact in derived if _not_given(inventory.reading(fact.key)))


def _not_given(reading: Reading) -> bool:
    return isinstance(reading, Unknown) and not reading.asked


def _text(inventory: Inventory, key: str, device: int | None = None) -> str:
    return str(inventory.known(key, device))


# --- torch ------------------------------------------------------------------------------------------


def _torch_build(inventory: Inventory, tables: Tables) -> Inventory:
    """Add the torch build's CUDA, the architectures it has code for, and the packages that belong to it."""
    missing = _missing(inventory, "pkg.torch")
    names = ("torchvision", "torchaudio", "triton")
    if missing is not None:
        keys = (
            *("cuda.runtime", "build.torch.architectures"),
            *(f"build.torch.{name}" for name in names),
            *("build.torchvision.fits", "build.torchaudio.fits"),
        )
        return _add(inventory, (Fact(key, missing, "derived from pkg.torch") for key in keys))
    torch = _text(inventory, "pkg.torch")
    build = _build_of(tables, torch)
    runtime = _torch_cuda(inventory, torch, build, tables)
    source = f"derived from torch {torch}"
    facts = [Fact("cuda.runtime", runtime, source)]
    unread = _unread_build(inventory) if isinstance(runtime, Known) else None
    architectures = unread or _architectures(torch, runtime, build, tables)
    facts.append(Fact("build.torch.architectures", architectures, source))
    facts += [Fact(f"build.torch.{name}", _companion(torch, build, name), source) for name in names]
    return _companions_fit(_add(inventory, facts), tables)


def _companions_fit(inventory: Inventory, tables: Tables) -> Inventory:
    """Add whether torchvision and torchaudio load beside this torch, as far as the tables tell.

    Patch releases of torch export the same symbols, so a companion of the same minor release loads. Some of
    the release before load too, and others were never compared; neither is taken to fail. conda compiles a
    companion for the torch that it installs beside it, whatever their releases: torchvision 0.26 for torch
    2.10 and for 2.11.
    """
    facts = []
    by_conda = inventory.known("packages.from_conda")
    names = frozenset(by_conda) if isinstance(by_conda, tuple) else frozenset()
    for name in ("torchvision", "torchaudio"):
        keys = (f"pkg.{name}", f"build.torch.{name}")
        fits = _missing(inventory, *keys)
        if names >= {"torch", name}:
            fits = _missing(inventory, keys[0]) or Known(True)
        elif fits is None:
            own, belonging, torch = (_minor(_text(inventory, key)) for key in (*keys, "pkg.torch"))
            fits = Known(own == belonging or (name, own, torch) in tables.torch_neighbours)
        facts.append(Fact(f"build.{name}.fits", fits, f"derived from torch {_text(inventory, 'pkg.torch')}"))
    return _add(inventory, facts)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _build_of(tables: Tables, torch: str) -> TorchBuild | None:
    """Return the build of this release, whatever its local label; None for snapshots and pre-releases."""
    parsed = versions.parse(torch)
    if parsed is None or parsed.is_prerelease:
        return None
    release = versions.parse(parsed.public)
    return next((each for each in tables.torch_builds if versions.parse(each.version) == release), None)


def _unlisted(torch: str) -> Unknown:
    return Unknown(f"torch {torch} is not among the releases whose builds are known")


def _torch_cuda(inventory: Inventory, torch: str, build: TorchBuild | None, tables: Tables) -> Reading:
    built = inventory.reading("build.torch.cuda")
    if not _not_given(built):
        return built
    label = versions.local_label(torch).partition(".")[0]
    if label:
        return _cuda_of_label(torch, label)
    if build is None:
        return _unlisted(torch)
    listed = _cuda_of_listed_libraries(inventory)
    if any((each.torch, each.cuda) == (build.version, listed) for each in tables.torch_variants):
        return Known(listed or "")
    return _default_cuda(inventory, build)


def _cuda_of_listed_libraries(inventory: Inventory) -> str | None:
    """Return the CUDA of the CUDA libraries beside torch."""
    names = [key for key in inventory.facts if key.startswith("pkg.nvidia-cuda-")]
    return cuda_of_libraries({package_of_key(key): str(inventory.known(key) or "") for key in names})


def _default_cuda(inventory: Inventory, build: TorchBuild) -> Reading:
    """Return the CUDA of the build that a plain `pip install` of this torch installs on this platform."""
    system, arch = (inventory.known(key) for key in ("host.os", "host.arch"))
    if system in (None, "linux") and arch in (None, "x86_64") and build.cuda:
        return Known(build.cuda)
    if system in (None, "linux") and arch == "aarch64" and build.aarch64:
        return _cuda_of_label(build.version, build.aarch64)
    return Unknown("only the default builds for Linux on x86_64 and aarch64 are known")


def _unread_platform(inventory: Inventory) -> Unknown | None:
    """Return why a build's machine code is not known on this platform; None on x86_64."""
    if inventory.known("host.arch") in (None, "x86_64"):
        return None
    return Unknown("only the wheels for x86_64 were opened to see which GPUs they serve")


def _unread_build(inventory: Inventory) -> Unknown | None:
    """Return why the machine code of this torch is not known from its release; None for a wheel on x86_64."""
    if inventory.known("python.manager") == "conda":
        return Unknown("conda's builds of torch have code for other GPUs than its wheels")
    return _unread_platform(inventory)


def _cuda_of_label(torch: str, label: str) -> Reading:
    if label == "cpu" or label.startswith(("rocm", "xpu")):
        return Absent()
    if _CUDA_LABEL.fullmatch(label):
        return Known(f"{label[2:-1]}.{label[-1]}")
    return Unknown(f"torch {torch} is a custom build: its label names no CUDA")


def _architectures(torch: str, runtime: Reading, build: TorchBuild | None, tables: Tables) -> Reading:
    if not isinstance(runtime, Known):
        return runtime
    if build is None:
        return _unlisted(torch)
    if build.cuda == runtime.value:
        return Known(build.architectures)
    for variant in tables.torch_variants:
        if variant.torch == build.version and variant.cuda == runtime.value:
            return Known(variant.architectures)
    return Unknown(f"no torch {build.version} for CUDA {runtime.value} is among the builds that are known")


def _companion(torch: str, build: TorchBuild | None, name: str) -> Reading:
    if build is None:
        return _unlisted(torch)
    release = build.companions.get(name)
    return Known(release) if release else Unknown(f"no {name} is known to belong to torch {torch}")


# --- compiled packages ------------------------------------------------------------------------------


def _compiled_packages(inventory: Inventory, tables: Tables) -> Inventory:
    """Add whether DeepSpeed accepts the toolkit, and the packages whose labels name another torch."""
    inventory = _add(inventory, _compiled_ops(inventory))
    named = ("pkg.deepspeed", "cuda.toolkit", "cuda.runtime")
    source = "derived from " + ", ".join(f"{key} {inventory.known(key) or ''}".strip() for key in named)
    accepted = _missing(inventory, "pkg.deepspeed", "cuda.toolkit", "cuda.runtime")
    labelled = any(
        is_package_key(key) and isinstance(fact.value, str) and ("torch" in fact.value or "+pt" in fact.value)
        for key, fact in inventory.facts.items()
    )
    if accepted is not None and not labelled:
        return _add(inventory, [Fact("build.deepspeed.toolkit", accepted, source)])
    from envcheck.rules import derived_builds  # most environments have neither a toolkit nor such a label

    accepted = accepted or derived_builds.accepts_toolkit(inventory, tables.get("deepspeed_toolkit", []))
    inventory = _add(inventory, [Fact("build.deepspeed.toolkit", accepted, source)])
    labels = derived_builds.labelled_builds(inventory)
    if not labels or _missing(inventory, "pkg.torch") is not None:
        return inventory
    found: dict[str, Reading] = {
        "torch.packages_of_another_release": derived_builds.other_release(inventory, labels),
        "torch.packages_of_another_build": derived_builds.other_build(inventory, labels),
    }
    for name in ("flash-attn", "causal-conv1d", "mamba-ssm"):
        own = {each: label for each, label in labels.items() if each == name}
        differs = isinstance(derived_builds.other_build(inventory, own), Known)
        found[f"torch.{name.replace('-', '_')}_of_another_build"] = Known(differs)
    return _add(inventory, (Fact(key, each, _first_source(inventory, each)) for key, each in found.items()))


def _compiled_ops(inventory: Inventory) -> Iterator[Fact]:
    """Yield whether DeepSpeed's compiled ops are for this torch; nothing where it compiled none.

    When it loads an op, DeepSpeed compares minor versions as texts; that of CUDA only for ops on GPUs.
    """
    if inventory.known("build.deepspeed.ops") is None:
        return
    pairs = [("pkg.torch", "build.deepspeed.torch"), ("cuda.runtime", "build.deepspeed.cuda")]
    known = [(inventory.known(one), inventory.known(other)) for one, other in pairs]
    compared = [
        str(one).split(".")[:2] == str(other).split(".")[:2]
        for one, other in known
        if one is not None and other is not None
    ]
    if known[0][0] is not None and compared:
        source = inventory.fact("build.deepspeed.ops").source
        yield Fact("build.deepspeed.fits", Known(value=all(compared)), source)


def _ascend(inventory: Inventory, tables: Tables) -> Inventory:
    """Add the CANN that torch_npu was released for, and whether it is the installed one."""
    missing = _missing(inventory, "pkg.torch-npu")
    if missing is not None:
        source = "derived from pkg.torch-npu"
        return _add(inventory, (Fact(key, missing, source) for key in ("build.torch-npu.cann", "cann.fits")))
    from envcheck.rules import derived_builds  # few environments have it

    torch_npu = _text(inventory, "pkg.torch-npu")
    source = f"derived from torch-npu {torch_npu}"
    cann = derived_builds.cann_of(torch_npu, tables.get("torch_npu_cann", []))
    inventory = _add(inventory, [Fact("build.torch-npu.cann", cann, source)])
    needed = ("build.torch-npu.cann", "cann.version")
    fits = _missing(inventory, *needed)
    if fits is None:
        fits = Known(derived_builds.same_minor(*(_text(inventory, key) for key in needed)))
    return _add(inventory, [Fact("cann.fits", fits, source)])


def _first_source(inventory: Inventory, packages: Reading) -> str:
    """Return the source of the first package in a list of words that begin with a package's name.

    It may be the line of a file, which a report then shows.
    """
    if not isinstance(packages, Known) or not isinstance(packages.value, tuple):
        return "derived from the versions of packages"
    return inventory.fact(f"pkg.{packages.value[0].partition(' ')[0]}").source


def _published_wheels(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Add what published wheels say of packages that were listed rather than found installed."""
    if not any(is_package_key(key) for key in inventory.facts) or is_environment(inventory):
        return inventory
    from envcheck.rules import published_wheels

    code = published_wheels.published_code(inventory, matrix)
    facts = [
        Fact(f"pkg.{name}{ARCHITECTURES_SUFFIX}", Known(found), f"the published wheel of {name}")
        for name, found in code.items()
    ]
    without = published_wheels.without_wheel(inventory, matrix)
    facts.append(Fact("packages.without_wheel", without, _first_source(inventory, without)))
    return _add(inventory, facts)


def _described(inventory: Inventory) -> Fact:
    known = any(key.startswith("train.") for key in inventory.facts)
    return Fact("training.described", Known(known), "derived from the facts of the training")


def _from_wheels(inventory: Inventory) -> Fact:
    """Return whether packages are wheels; conda's builds fit other Pythons and older C libraries."""
    conda = inventory.known("python.manager") == "conda"
    return Fact("packages.from_wheels", Known(not conda), "derived from python.manager")


def _torch_from_wheel(inventory: Inventory) -> Fact:
    """Return whether torch is a published wheel; `2.8.0a0+git1234` and `2.8.0a0+1234.nv25.05` are none."""
    version = versions.parse(str(inventory.known("pkg.torch")))
    compiled = version is not None and (
        (version.pre or ("",))[0] == "a" or not _WHEEL_LABEL.fullmatch(version.local or "")
    )
    wheel = inventory.known("python.manager") != "conda" and not compiled
    return Fact("torch.from_wheel", Known(wheel), "derived from python.manager and pkg.torch")


def _library_named(inventory: Inventory) -> Fact:
    """State whether the variable is known to be set: a list of packages comes without an environment."""
    named = bool(inventory.known("env.BNB_CUDA_VERSION"))
    return Fact("bitsandbytes.library_named", Known(named), "derived from env.BNB_CUDA_VERSION")


def _unsloth(inventory: Inventory) -> Fact:
    """State the release of Unsloth, which mends other packages; a list that does not name it brings none."""
    release = inventory.known("pkg.unsloth")
    reading = Absent() if release is None else Known(release)
    return Fact("unsloth.release", reading, "derived from pkg.unsloth")


# --- drivers and CUDA -------------------------------------------------------------------------------


def _drivers(inventory: Inventory, tables: Tables) -> Inventory:
    """Add what follows from the driver's version, and the driver versions that torch's CUDA needs."""
    facts = [
        Fact("cuda.driver_too_old", _shows_older_cuda(inventory), "derived from cuda.driver, cuda.runtime"),
        Fact("cuda.driver", _cuda_of_driver(inventory, tables), "derived from driver.version"),
        Fact("driver.torch_last", _torch_of_driver(inventory, tables), "derived from driver.version"),
    ]
    minimum, full = _driver_bounds(inventory, tables)
    facts.append(Fact("cuda.minimum_driver", minimum, "derived from cuda.runtime"))
    facts.append(Fact("cuda.full_driver", full, "derived from cuda.runtime"))
    return _add(inventory, facts)


def _driver_bounds(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return the oldest driver for torch's CUDA, and the driver that ships with that CUDA."""
    excluded = _missing(inventory, "cuda.runtime") or _foreign_driver(inventory)
    if excluded is not None:
        return excluded, excluded
    runtime = _text(inventory, "cuda.runtime")
    return _with_newer_libcuda(inventory, _family_floor(tables, runtime)), _shipped_driver(tables, runtime)


def _foreign_driver(inventory: Inventory) -> Reading | None:
    """Return the reading of driver bounds where the tables' driver numbers do not apply; None where they do.

    The tables hold Linux drivers. Under WSL the driver is that of Windows, and on a Jetson it is part of
    the board's system: both are numbered differently. The bound is Absent where something else decides:
    under WSL, the rules on the newest CUDA the driver supports; elsewhere, that the driver supports the
    CUDA major version of torch.
    """
    if inventory.known("host.wsl") is True:
        return Absent()
    if inventory.known("host.tegra") is not None or _has_jetson(inventory):
        reason = "a Jetson's driver is part of its system and is numbered differently"
    elif inventory.known("host.os") not in (None, "linux"):
        reason = f"only the drivers of Linux are known, and this is {inventory.known('host.os')}"
    else:
        return None
    driver_major, torch_major = (
        str(inventory.known(key) or "").partition(".")[0] for key in ("cuda.driver", "cuda.runtime")
    )
    comparable = driver_major.isdecimal() and torch_major.isdecimal()
    return Absent() if comparable and int(driver_major) >= int(torch_major) else Unknown(reason)


def _has_jetson(inventory: Inventory) -> bool:
    """Return whether a GPU is that of a Jetson board."""
    return any(inventory.known("gpu.kind", number) == "jetson" for number in range(len(inventory.devices)))


def _family_floor(tables: Tables, cuda: str) -> Reading:
    """Return the oldest driver of a CUDA major family: since CUDA 11, it runs every minor version of it.

    For older CUDA versions, the table has a row for each minor version, with the column `cuda`.
    """
    major = cuda.partition(".")[0]
    for row in tables.cuda_families:
        if row.major == major and (row.cuda or cuda) == cuda:
            return Known(row.minimum_driver)
    return Unknown(f"the driver floor of CUDA {major}.x is not known")


def _with_newer_libcuda(inventory: Inventory, floor: Reading) -> Reading:
    """Return the floor, unless a newer libcuda may replace that of a driver below it.

    cuda-compat packages bring one, in an image, in a conda environment or as a module of a cluster. It is
    recognised by its own version, or by the CUDA version that nvidia-smi shows: it asks the libcuda that is
    loaded, not the kernel module. The floor is Absent where torch was seen to work with the driver.
    """
    driver = inventory.known("driver.version")
    if not isinstance(floor, Known) or driver is None:
        return floor
    if versions.compare(str(driver), "<", str(floor.value)) is Tri.NO:
        return floor
    if inventory.known("torch.cuda_available") is True:
        return Absent()
    for key in ("cuda.compat", "pkg.cuda-compat"):
        if (compat := inventory.known(key)) is not None:
            return Unknown(f"cuda-compat ({compat}) may stand in for the driver, on data-centre GPUs only")
    shown, runtime = (
        str(inventory.known(key) or "").partition(".")[0] for key in ("cuda.driver", "cuda.runtime")
    )
    if shown.isdecimal() and runtime.isdecimal() and int(shown) >= int(runtime):
        return Unknown(
            f"the driver shows CUDA {inventory.known('cuda.driver')}, which is that of a newer libcuda"
        )
    return floor


_FIRST_CUDA_OF_FAMILIES = 11
"""The first CUDA whose minor versions run with every driver of the major one."""


def _shows_older_cuda(inventory: Inventory) -> Reading:
    """Return whether nvidia-smi shows a CUDA that is older than torch's, where nothing better is known.

    Since CUDA 11, every driver runs every minor version of its major one. On Linux the version of the driver
    decides if it is known; under WSL, rules of its own do.
    """
    decided = inventory.known("driver.version") is not None and inventory.known("host.os") in (None, "linux")
    if decided or inventory.known("host.wsl") is True:
        return Absent()
    shown, runtime = (
        versions.parse(str(inventory.known(key) or "")) for key in ("cuda.driver", "cuda.runtime")
    )
    if shown is None or runtime is None or inventory.known("torch.cuda_available") is True:
        return Absent()
    parts = 1 if runtime.major >= _FIRST_CUDA_OF_FAMILIES else 2
    return Known(shown.release[:parts] < runtime.release[:parts])


def _shipped_driver(tables: Tables, cuda: str) -> Reading:
    drivers = [row.driver for row in tables.cuda_toolkits if row.cuda == cuda and row.driver]
    if not drivers:
        return Unknown(f"the driver that ships with CUDA {cuda} is not known")
    return Known(min(drivers, key=versions.order))


def _cuda_of_driver(inventory: Inventory, tables: Tables) -> Reading:
    missing = _missing(inventory, "driver.version")
    if missing is not None:
        return missing
    branch = _text(inventory, "driver.version").partition(".")[0]
    for row in tables.driver_branches:
        if row.branch == branch:
            return Known(row.cuda)
    return Unknown(f"driver branch R{branch} is not known")


def _torch_of_driver(inventory: Inventory, tables: Tables) -> Reading:
    """Return the newest torch whose default build this driver can run."""
    missing = _missing(inventory, "driver.version")
    if missing is not None:
        return missing
    if _foreign_driver(inventory) is not None:
        return Unknown("only the drivers of Linux on servers and workstations are known")
    driver = _text(inventory, "driver.version")

    def runs(build: TorchBuild) -> bool:
        runtime = _default_cuda(inventory, build)
        floor = _family_floor(tables, str(runtime.value)) if isinstance(runtime, Known) else runtime
        return isinstance(floor, Known) and versions.compare(driver, ">=", str(floor.value)) is Tri.YES

    found = next((build.version for build in tables.torch_newest_first if runs(build)), None)
    return Absent() if found is None else Known(found)


# --- GPUs -------------------------------------------------------------------------------------------


def _each_device(inventory: Inventory, facts_of: Callable[[int], Iterable[Fact]]) -> Inventory:
    devices = []
    for number, device in enumerate(inventory.devices):
        derived = {
            fact.key: fact for fact in facts_of(number) if _not_given(inventory.reading(fact.key, number))
        }
        devices.append({**device, **derived})
    return inventory._replace(devices=tuple(devices))


def _visible(inventory: Inventory) -> Fact:
    if inventory.devices:
        return Fact("gpus.visible", Known(len(inventory.visible_devices())), "derived from gpu.visible")
    missing = _missing(inventory, "gpus.count")
    reading = missing or inventory.reading("gpus.count")
    return Fact("gpus.visible", reading, "derived from gpus.count")


def _device_models(inventory: Inventory, tables: Tables) -> Inventory:
    """Add to each GPU what the table of GPU models says about its name."""
    models: dict[str, GpuModel] = {}
    if inventory.devices:
        models = {_plain_name(name): model for model in tables.gpu_models for name in model.names}

    def facts_of(number: int) -> Iterator[Fact]:
        source = "derived from gpu.name"
        missing = _missing(inventory, "gpu.name", device=number)
        name = _text(inventory, "gpu.name", number)
        model = None if missing else models.get(_plain_name(name)) or _similar_model(name, tables)
        unlisted = missing or Unknown(f"{name} is not among the GPUs that are known")
        yield Fact("gpu.compute_capability", Known(model.compute_capability) if model else unlisted, source)
        yield Fact("gpu.kind", Known(model.kind) if model else unlisted, source)
        if model and len(model.memory_gb) == 1:
            # Advertised GB; a driver reports a few per cent less, so this serves only a declared GPU.
            yield Fact("gpu.memory_mib", Known(model.memory_gb[0] * 1024), source)

    return _each_device(inventory, facts_of)


def _similar_model(name: str, tables: Tables) -> GpuModel | None:
    """Return the model that another spelling of a name stands for, without memory if that is not certain."""
    from envcheck.core.gpu_names import match_gpu  # most names are spelled as the driver spells them

    matches = match_gpu(name, tables.gpu_models, whole=True)
    if len(matches) != 1:
        return None
    ((first, *others), exact) = matches[0]
    sizes = {model.memory_gb for model in (first, *others)}
    return first if exact and len(sizes) == 1 else first._replace(memory_gb=())


@lru_cache(maxsize=1024)
def _plain_name(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").split()).removeprefix("nvidia ").removeprefix("geforce ")


class _Code(NamedTuple):
    """What torch releases, the installed torch and the installed packages have machine code for."""

    releases: Sequence[tuple[str, tuple[str, ...]]]  # torch version, architectures of its default build
    packages: Mapping[str, tuple[str, ...]]  # package, architectures of its files
    unread: Unknown | None  # why the builds' code is not known on this platform


def _device_code(inventory: Inventory, tables: Tables) -> Inventory:
    """Add to each GPU which torch releases, and which installed packages, have code for it."""
    code = _Code(
        releases=[(build.version, build.architectures) for build in tables.torch_builds],
        packages={
            package_of_key(key): fact.value
            for key, fact in inventory.facts.items()
            if is_package_key(key) and key.endswith(ARCHITECTURES_SUFFIX) and isinstance(fact.value, tuple)
        },
        unread=_unread_platform(inventory),
    )

    def facts_of(number: int) -> Iterator[Fact]:
        missing = _missing(inventory, "gpu.compute_capability", device=number)
        capability = _text(inventory, "gpu.compute_capability", number)
        if missing is None and not is_capability(capability):
            missing = Unknown(f"gpu.compute_capability: {capability!r} is not two numbers such as 9.0")
        yield from _torch_releases_for(capability, missing or code.unread, code, inventory)
        yield _in_torch_build(capability, missing, inventory, tables)
        without = missing or _packages_without_code(code.packages, capability)
        yield Fact("gpu.packages_without_code", without, "derived from what their files hold")

    return _each_device(inventory, facts_of)


def _torch_releases_for(
    capability: str, missing: Reading | None, code: _Code, inventory: Inventory
) -> Iterator[Fact]:
    """Yield the first, the last and the nearest torch release with machine code for a GPU."""
    with_code = [] if missing else [v for v, built in code.releases if has_code(built, capability)]
    source = "derived from gpu.compute_capability"
    for key, pick in (("gpu.torch_first", min), ("gpu.torch_last", max)):
        found: Reading = missing or (Known(pick(with_code, key=versions.order)) if with_code else Absent())
        yield Fact(key, found, source)
    nearest = missing or _nearest(with_code, [version for version, _ in code.releases], inventory)
    yield Fact("gpu.torch_nearest", nearest, source)


def _in_torch_build(capability: str, missing: Reading | None, inventory: Inventory, tables: Tables) -> Fact:
    """Return the fact whether the installed torch has machine code for a GPU, or PTX it can compile."""
    key = "gpu.in_torch_build"
    unread = missing or _missing(inventory, "build.torch.architectures")
    if missing is None and unread is not None and _nightly_is_too_old(capability, inventory, tables):
        return Fact(key, Known(False), "derived from the releases of torch for the same CUDA")
    missing = unread
    if missing is not None:
        return Fact(key, missing, "derived from build.torch.architectures")
    value = inventory.known("build.torch.architectures")
    built = value if isinstance(value, tuple) else ()
    runs = has_code(built, capability) or has_ptx(built, capability)
    return Fact(key, Known(runs), f"derived from gpu.compute_capability, {', '.join(built)}")


def _nightly_is_too_old(capability: str, inventory: Inventory, tables: Tables) -> bool:
    """Return whether a GPU is newer than all code of the releases for the CUDA that a nightly build names.

    The compiler of that CUDA does not know the GPU then: each release for CUDA 12.4 ends at sm_90, because
    sm_100 and sm_120 came with CUDA 12.8. Which older GPUs a nightly build serves is not known.
    """
    torch, cuda = _text(inventory, "pkg.torch"), inventory.known("cuda.runtime")
    parsed = versions.parse(torch)
    plain = _CUDA_LABEL.fullmatch(versions.local_label(torch)) is not None
    if parsed is None or not parsed.is_devrelease or not plain or _unread_build(inventory) is not None:
        return False
    released = {each for build in tables.torch_builds if build.cuda == cuda for each in build.architectures}
    released.update(
        each for other in tables.torch_variants if other.cuda == cuda for each in other.architectures
    )
    newest = max((_number(each) for each in released), default=0)
    return 0 < newest < _number(capability) and not has_ptx(tuple(released), capability)


def _number(architecture: str) -> int:
    """Return 120 for `sm_120`, `compute_120`, `12.0`; letters at its end are left out."""
    return int("".join(each for each in architecture if each.isdecimal()) or 0)


def _packages_without_code(compiled: Mapping[str, tuple[str, ...]], capability: str) -> Reading:
    """Return the packages whose compiled files have neither code for this GPU nor PTX it could compile."""
    names = [
        f"{name} ({', '.join(built)})"
        for name, built in sorted(compiled.items())
        if not has_code(built, capability) and not has_ptx(built, capability)
    ]
    return Known(tuple(names)) if names else Absent()


def _nearest(with_code: Sequence[str], known_releases: Sequence[str], inventory: Inventory) -> Reading:
    """Return the release with code for a GPU that is the fewest releases away from the installed torch."""
    installed = versions.base_release(str(inventory.known("pkg.torch") or ""))
    releases = sorted(known_releases, key=versions.order)
    if not with_code or installed not in releases:
        return Absent()
    index = releases.index(installed)
    return Known(min(with_code, key=lambda version: abs(releases.index(version) - index)))


# --- training ---------------------------------------------------------------------------------------


def derive_training(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Add the trainer's defaults and what follows from the configuration, if there is a configuration.

    A trainer that the configuration does not name is Absent.
    """
    inventory = _add(inventory, [_described(inventory)])
    if not any(key.startswith("train.") for key in inventory.facts):
        return _add(inventory, (Fact(key, Absent(), "no training is described") for key in IMPORTS))
    inventory = _add(inventory, [Fact("train.trainer", Absent(), "the configuration names none")])
    trainer = inventory.fact("train.trainer")
    if isinstance(trainer.reading, Absent):
        inventory = _add(inventory, (Fact(key, Absent(), trainer.source) for key in (*COMPONENTS, *IMPORTS)))
    inventory = _with_defaults(inventory, matrix)
    first, install = _first_transformers(inventory, matrix.tables)
    refused, accepted = _attention(inventory, matrix.tables)
    facts = [
        Fact("train.minimum_transformers", first, "derived from train.model_type"),
        Fact("train.install_transformers", install, "derived from train.model_type"),
        Fact("train.attention_refused", refused, "derived from train.attention"),
        Fact("train.attention_accepted", accepted, "derived from train.model_type"),
        Fact("train.examples_per_step", _examples_per_step(inventory), "derived from the batch sizes"),
        Fact("train.saves_at_evaluations", _saves_at_evaluations(inventory), "derived from train.save_steps"),
        *_components_without_row(inventory),
    ]
    return _add(inventory, facts)


def _components_without_row(inventory: Inventory) -> Iterator[Fact]:
    """Yield the components that no row of the table decides for this trainer and these releases."""
    trainer = inventory.fact("train.trainer")
    unread = Unknown(f"not known of {trainer.value} in these releases")
    declared = (*COMPONENTS, *IMPORTS)
    return (Fact(key, unread, trainer.source) for key in declared if key not in inventory.facts)


def _with_defaults(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Give each fact that was not given the default of the first row that matches.

    A row that may match leaves the fact open, unless a later row certainly matches and gives the same value.
    """
    settled: set[str] = set()
    possible: dict[str, Default] = {}
    # Rows are about facts of earlier rows too, so all of them read one mapping that grows.
    facts = dict(inventory.facts)
    inventory = inventory._replace(facts=facts)
    for default in matrix.defaults:
        key = default.key
        if key in settled:
            continue
        if key not in possible and not _not_given(inventory.reading(key)):
            settled.add(key)
            continue
        matches, undecided = _matches(default.when, inventory)
        if matches is Tri.NO:
            continue
        earlier = possible.setdefault(key, default)
        if matches is Tri.YES or earlier.value != default.value:
            settled.add(key)
        if matches is Tri.YES and earlier.value == default.value:
            reading: Reading = Known(default.value)
        elif earlier is default:
            reading = _unsettled(inventory, undecided)
        else:
            continue
        facts[key] = Fact(key, reading, f"default: {default.source}")
    return inventory


def _matches(when: When, inventory: Inventory) -> tuple[Tri, list[str]]:
    """Return whether all clauses hold, and the keys of those that are not decided."""
    undecided = []
    for clause in when:
        answer = evaluate(clause, inventory)
        if answer is Tri.NO:
            return answer, []
        if answer is Tri.MAYBE:
            undecided.append(clause.key)
    return (Tri.MAYBE if undecided else Tri.YES), undecided


def _unsettled(inventory: Inventory, undecided: Sequence[str]) -> Unknown:
    asked = not any(_not_given(inventory.reading(key)) for key in undecided)
    return Unknown(f"its default depends on {' and '.join(sorted(set(undecided)))}", asked)


def _examples_per_step(inventory: Inventory) -> Reading:
    """Return the examples in one optimizer step.

    Processes that share a sequence see the same examples. Where processes share layers, releases count in
    different ways, so the number is Unknown.
    """
    missing = _missing(inventory, *_BATCH_KEYS)
    if missing is not None:
        return missing
    micro, accumulated, processes, layers, share = (int(_text(inventory, key)) for key in _BATCH_KEYS)
    if layers != 1:
        return Unknown(f"{layers} processes share each layer, and releases count them in different ways")
    if share < 1 or processes % share:
        return Unknown(f"{processes} processes do not divide into sequences shared by {share}")
    return Known(micro * accumulated * (processes // share))


def _saves_at_evaluations(inventory: Inventory) -> Reading:
    missing = _missing(inventory, "train.save_steps", "train.eval_steps")
    if missing is not None:
        return missing
    save, evaluate = (int(_text(inventory, f"train.{each}_steps")) for each in ("save", "eval"))
    return Known(save % evaluate == 0) if evaluate > 0 else Unknown("train.eval_steps is not above 0")


def _attention(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return whether transformers refuses the attention for the model type, and one that it accepts."""
    missing = _missing(inventory, "train.model_type", "pkg.transformers")
    if missing is not None:
        return missing, missing
    model_type, version = _text(inventory, "train.model_type"), _text(inventory, "pkg.transformers")
    row = next((row for row in tables.get("attention", ()) if row["model_type"] == model_type), {})

    def refuses(attention: str) -> bool:
        bounds = row.get(attention, ())
        return any(versions.satisfies(version, each, unknown=Tri.NO) is Tri.YES for each in bounds)

    refused = _missing(inventory, "train.attention") or Known(refuses(_text(inventory, "train.attention")))
    return refused, Known("eager" if refuses("sdpa") else "sdpa")


def _first_transformers(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return the first transformers with code for the model, and the first to install for it."""
    missing = _missing(inventory, "train.model_type")
    if missing is not None:
        return missing, missing
    model_type = _text(inventory, "train.model_type")
    row = next((row for row in tables.get("model", []) if row["model_type"] == model_type), None)
    if row is None:
        unlisted = Unknown(f"{model_type} is not among the model types that are known")
        return unlisted, unlisted
    if row.get("before"):
        return Absent(), Absent()
    # The code may be older than the model_type: releases between the two may load the model by its class.
    first = str(row.get("code") or row["transformers"])
    return Known(first), Known(str(row.get("install") or first))
