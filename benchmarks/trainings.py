"""Hold the judge against trainings that are drawn and run on the CPU: releases, and settings of the training.

    python benchmarks/trainings.py draw --base BASE/bin/python --work FOLDER --seed 1 --draws 60 -o draws.json
    python benchmarks/trainings.py run --base BASE/bin/python --work FOLDER draws.json -o ends.jsonl
    python benchmarks/trainings.py report draws.json ends.jsonl

A draw has one release of transformers, accelerate and PEFT (and of TRL, DeepSpeed and what a setting needs)
as they were on a day. Half of the draws have one of them replaced by a release of any other day. The
training is the Trainer's, TRL's (SFT, DPO, KTO, ORPO, reward, GRPO or RLOO) or a loop of its own on
accelerate: on one process, or with DDP, ZeRO-1 to 3, FSDP1 or FSDP2 on one or two. Other settings are drawn
independently; each is left at its default most of the time. `draw` also writes down which errors and
warnings `check` would show, before anything has run. `report` prints each failure that no error told and
each error beside a training that ran: both have to be read, because a drawn training may be wrong in itself.
It is not a GPU: torch compiles by aot_eager, because inductor takes minutes, and drawn_ranks.py says what
else a CPU lacks.

Seed 11, on 2026-12-01: 58 of 60 draws ran. Of 26 failures 20 had an error (77 %; 58 to 89 %, Wilson, 95 %),
and of 32 trainings that ran 2 (6 %; 2 to 20 %): both for a TRL that was installed and that the Trainer does
not import. Of the six misses five were label smoothing, which no rule knew, and one is float16 on a CPU.
Seed 12, after the mending of these: 47 of 50 ran. Of 13 failures 6 had an error (46 %; 23 to 71 %), and of
34 trainings that ran none (0 to 10 %). Missed: DPO with p-tuning and two adapters that the PEFT did not have
yet, which rules tell since; DPO that groups by length; an accelerate below what TRL requires, of which a
warning was shown; label smoothing, which was not handed to the judge then; and a TRL that needs Triton,
which these environments leave out.

The space was widened then; the two seeds above were drawn from a smaller one.
Seed 21: 36 of 38 draws ran. Of 16 failures 12 had an error (75 %; 51 to 90 %), and of 20 trainings that ran
1 (5 %; 1 to 24 %): the facts of the draw named the Trainer's optimizer beside DeepSpeed's own. Missed:
grouping by length for a reward model; PEFT imported by a loop of its own; no target_modules where PEFT has
none for the model; and names of normalisations that the program had wrong. Three draws were run again after
the program was mended: a head of another size, a flat parameter that FSDP1 frees, and inductor's time.
Seed 22: 45 of 46 ran. Of 25 failures 14 had an error (56 %; 37 to 73 %), and of 20 that ran none (0 to 16
%). Missed and told since: grouping by length for DPO; HQQ in transformers 5; DeLoRA on GPT-2's Conv1D; a
classifier's head under ZeRO-2; p-tuning of ALBERT. Missed still: FSDP1 that saves a base of quanto,
accelerate's load_state of a 4-bit base under ZeRO-2, RLOO under FSDP1 with NO_SHARD. Three were the
program's: a collator without its model, a Trainer that trains twice, bitsandbytes beside a transformers that
asks for a GPU.
Seed 23, after the mending of these, and as the first with all packages of the day although torch is newer:
all 60 ran. Of 45 failures 33 had an error (73 %; 59 to 84 %), and of 15 that ran 1 (7 %; 1 to 30 %): prefix
tuning with checkpointing, which indeed changed no weight; the program raises then since. Missed: HQQ that is
not installed, which is told since; a reward model of an architecture without a classifier; FSDP2 beside tied
weights (two), with Adafactor and with weights of torchao; int8 under ZeRO-3; compiled experts in float32
beside transformers 5.1; and four of the program's or the facts': Falcon's head_dim (two), no reference model
under ZeRO-3, and a ddp_find_unused_parameters that the Trainer chooses.
Seed 24, after that: all 14 ran. Of 6 failures 5 had an error (83 %; 44 to 97 %), and of 8 that ran none (0
to 32 %). The miss is the program's: TRL 1.7 hands the arguments of its KTOTrainer on, without their names.
Seed 25, by the same rules: all 14 ran. Of 8 failures 3 had an error (38 %; 14 to 69 %), and of 6 that ran
none (0 to 39 %). Missed: HQQ under FSDP1, p-tuning under FSDP2, save_only_model beside FSDP's sharded state,
a saved module under ZeRO-3, of which a warning was shown; and accelerate 0.28, which wants NCCL beside
DeepSpeed.
Together, seeds 21 to 25: of 100 failures 67 had an error (67 %; 57 to 75 %), and of 69 that ran 2 (3 %; 1 to
10 %), of which one is the facts' and one changed no weight.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atlas import drawable, published, wilson
from atlas_overlays import SOURCE_ONLY, Overlays, command_line
from packaging.version import Version

from envcheck import probes
from envcheck.commands import judging, loading
from envcheck.core import facts_file
from envcheck.core.findings import Verdict
from envcheck.rules import derive

SHOWN = ("transformers", "accelerate", "peft", "trl", "deepspeed", "bitsandbytes", "torchao")
SINCE = dt.date(2023, 9, 1)
"""Day of the oldest transformers that is drawn (4.33): older ones rarely train beside a torch of 2026."""

RARE = 0.15
"""Share of draws in which a setting differs from its default."""

SETTINGS: Mapping[str, Sequence[Any]] = {
    "gradient_checkpointing": (False, True),
    "use_reentrant": (None, False, True),
    "precision": ("fp32", "bf16"),
    "base_dtype": ("float32", "bfloat16", "auto"),
    "attention": (None, "eager", "sdpa"),
    "optimizer": (
        "adamw_torch",
        *("adafactor", "sgd", "rmsprop", "adamw_torch_fused", "adamw_hf", "adagrad"),
        *("adamw_torch_8bit", "schedule_free_adamw", "galore_adamw", "stable_adamw"),
    ),
    "lr_scheduler": (
        "linear",
        *("cosine", "reduce_lr_on_plateau", "cosine_with_restarts", "warmup_stable_decay"),
        *("cosine_with_min_lr", "inverse_sqrt", "polynomial"),
    ),
    "gradient_accumulation_steps": (1, 2),
    "gradient_clipping": (True, False),
    "group_by_length": (False, True),
    "neftune": (None, 5.0),
    "label_smoothing": (0.0, 0.1),
    "targets": ("named", "default", "all-linear"),
    "modules_to_save": (False, True),
    "tied": (False, True),
    "resized": (False, True),
    "save_strategy": ("no", "steps"),
    "save_only_model": (False, True),
    "resume": (False, True),
    "eval_strategy": ("no", "steps"),
    "generate": (False, True),
    "load_best_model": (False, True),
    "report_to": ("none", "tensorboard"),
    "auto_find_batch_size": (False, True),
    "dataloader_workers": (0, 2),
    "persistent_workers": (False, True),
    "packing": (False, True),
    "torch_compile": (False, True),
    "find_unused": (False, True),
    "zero3_init": (False, True),
    "gather_on_save": (True, False),
    "deepspeed_optimizer": (False, True),
    "allow_untested_optimizer": (False, True),
    "use_orig_params": (True, False),
    "fsdp_sharding": ("full_shard", "shard_grad_op", "no_shard"),
    "fsdp_state_dict": ("full", "sharded"),
    "fsdp_activation_checkpointing": (False, True),
}
"""Values of each setting; the first one is its default."""

WEIGHED: Mapping[str, dict[Any, int]] = {
    "trainer": {"transformers": 45, "trl": 40, "accelerate": 15},
    "parallel": {"none": 46, "ddp": 8, "zero1": 6, "zero2": 9, "zero3": 14, "fsdp1": 8, "fsdp2": 9},
    "family": {"causal": 55, "classification": 17, "seq2seq": 15, "vision": 13},
    "method": {"sft": 30, "dpo": 16, "kto": 10, "orpo": 10, "reward": 12, "grpo": 14, "rloo": 8},
    "quantization": {"none": 88, "int8": 3, "nf4": 3, "hqq": 2, "quanto": 2, "torchao": 2},
    "processes": {2: 70, 1: 30},
}
"""Settings that have no usual value, with the share in which each value is drawn."""

MODEL_TYPES: Mapping[str, Sequence[str]] = {
    "causal": (
        *("llama", "mistral", "qwen2", "gemma2", "mixtral", "opt", "qwen3", "olmo", "gpt2", "gpt_neox"),
        *("phi3", "falcon", "bloom", "mamba", "qwen2_moe", "qwen3_moe", "gpt_oss", "gemma3_text", "cohere"),
        *("stablelm", "starcoder2", "granite", "phi", "smollm3", "olmo2"),
    ),
    "classification": (
        *("bert", "roberta", "distilbert", "deberta-v2", "modernbert", "electra", "albert", "llama", "qwen2"),
    ),
    "seq2seq": ("t5", "mt5", "bart", "mbart", "pegasus"),
    "vision": ("llava", "qwen2_vl", "qwen2_5_vl"),
}
ADAPTERS: Sequence[str] = (
    *("dora", "ia3", "prompt", "prefix", "p_tuning", "vera", "oft", "boft", "adalora", "loha", "lokr", "hra"),
    *("fourierft", "vblora", "ln_tuning", "randlora", "miss", "bone", "shira", "c3a", "road", "waveft"),
    *("delora", "trainable_tokens"),
)
OF_PROMPTS = ("prompt", "prefix", "p_tuning")
"""Adapters that change no module, and have no form for models with images."""

NEEDED: Mapping[str, Mapping[Any, str]] = {
    "optimizer": {
        "adamw_torch_8bit": "torchao",
        "schedule_free_adamw": "schedulefree",
        "galore_adamw": "galore-torch",
        "stable_adamw": "torch-optimi",
    },
    "quantization": {
        "int8": "bitsandbytes",
        "nf4": "bitsandbytes",
        "hqq": "hqq",
        "quanto": "optimum-quanto",
        "torchao": "torchao",
    },
    "report_to": {"tensorboard": "tensorboard"},
}
"""Packages that a setting needs, which one draw in eight lacks."""

NOT_OF_LOOPS = (
    *("optimizer", "lr_scheduler", "label_smoothing", "neftune", "group_by_length", "auto_find_batch_size"),
    *("torch_compile", "report_to", "load_best_model", "eval_strategy", "dataloader_workers"),
    *("deepspeed_optimizer", "save_only_model", "find_unused"),
)
"""Settings of the Trainer, which a loop of its own on accelerate leaves at their defaults."""

SINCE_RELEASE = {"grpo": "0.14.0", "rloo": "0.22.0", "kto": "0.8.2", "orpo": "0.8.3", "reward": "0.9.2"}
"""The first releases of TRL with a method; RLOO had another form before, which is not drawn."""

FSDP_SINCE = {"fsdp1": "0.30.0", "fsdp2": "1.6.0"}
"""The first releases of accelerate that shard so, and that can be told to do it on the CPU."""

ON_CPU_SINCE = {"bitsandbytes": "0.46.0", "deepspeed": "0.15.0"}
"""The first releases that train on a CPU; DeepSpeed asked for Intel's extension of torch before."""

QUANTISES_ON_CPU = "5.0.0"
"""From this release on, transformers lets bitsandbytes quantise without a GPU; 4.52.1 does not yet."""

TELLS_PROCESSES = "0.30.0"
"""The first release of accelerate that can be told of several processes beside DeepSpeed on a CPU."""

PROGRAM = """
import os, sys
os.environ["DRAWN_TRAINING"] = {settings!r}
sys.path.insert(0, {folder!r})
import drawn_training
drawn_training.prepare()
if {processes}:
    become_ranks({processes})
drawn_training.main()
"""
"""Imports the training, so that datasets can pickle its functions by name."""

# --- draw -------------------------------------------------------------------------------------------


def draw(overlays: Overlays, generator: random.Random) -> dict[str, Any] | None:
    """Return releases and settings, or None if the releases do not exist together."""
    settings = draw_settings(generator)
    wanted = packages_of(settings, generator)
    releases = [each for each in drawable("transformers") if published("transformers", each) >= SINCE]
    pinned = {"transformers": generator.choice(releases)}
    day = published("transformers", pinned["transformers"]) + dt.timedelta(days=generator.randrange(90))
    movable = sorted({*wanted} & {"accelerate", "peft", "trl", "deepspeed", "bitsandbytes"})
    if generator.random() < 0.5:  # noqa: PLR2004 - half of them
        other = generator.choice(movable)
        pinned[other] = generator.choice(since(other, SINCE))
        day = max(day, published(other, pinned[other]))
    day = min(day, dt.date.today())  # noqa: DTZ011
    newest_sources(wanted, pinned, day)
    torch = overlays.torches[-1]
    versions = overlays.resolve(pinned, torch, day, wanted, newer_torch=published("torch", torch) > day)
    return versions and as_row(torch, versions, settings)


def newest_sources(wanted: Sequence[str], pinned: dict[str, str], day: dt.date) -> None:
    """Pin the packages without wheels, which the resolver cannot choose, to their newest release of a day."""
    for source in sorted({*wanted} & SOURCE_ONLY - pinned.keys()):
        older = [each for each in since(source, SINCE) if published(source, each) <= day]
        pinned[source] = older[-1] if older else since(source, SINCE)[0]


def as_row(torch: str, versions: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a draw with what is needed to run it."""
    settings = possible(settings, versions)
    row: dict[str, Any] = {"torch": torch, "versions": versions, "settings": settings}
    if settings["parallel"] != "none":
        row |= {"processes": settings["processes"], "deadline": 400}
    if settings["parallel"].startswith("zero"):
        row["environment"] = {"DS_ACCELERATOR": "cpu"}
    return row


def since(package: str, day: dt.date) -> list[str]:
    """Return the releases of a package since a day that can run on a CPU."""
    first = Version(ON_CPU_SINCE.get(package, "0"))
    return [each for each in drawable(package) if published(package, each) >= day and Version(each) >= first]


def draw_settings(generator: random.Random) -> dict[str, Any]:
    """Return a value for each setting."""
    settings = {
        key: generator.choice(values[1:]) if generator.random() < RARE else values[0]
        for key, values in SETTINGS.items()
    }
    for key, weights in WEIGHED.items():
        settings[key] = generator.choices([*weights], [*weights.values()])[0]
    if settings["trainer"] != "trl":
        settings["method"] = "none"
    if settings["trainer"] != "transformers" or settings["quantization"] != "none":
        settings["family"] = "causal"
    settings["model_type"] = generator.choice(MODEL_TYPES[settings["family"]])
    adapters = [each for each in ADAPTERS if settings["family"] != "vision" or each not in OF_PROMPTS]
    settings["adapter"] = generator.choice([*adapters, *["none"] * 12, *["lora"] * 12])
    settings["adapter"] = settings["adapter"] if settings["quantization"] == "none" else "lora"
    if settings["adapter"] == "trainable_tokens" and settings["parallel"] == "zero3":
        settings["adapter"] = "lora"  # PEFT asks CUDA for the device then
    if settings["load_best_model"]:
        settings["save_strategy"] = settings["eval_strategy"] = "steps"
    if settings["trainer"] == "accelerate":
        settings |= {key: SETTINGS[key][0] for key in NOT_OF_LOOPS}
    settings["persistent_workers"] = settings["persistent_workers"] and settings["dataloader_workers"] > 0
    return settings


def packages_of(settings: Mapping[str, Any], generator: random.Random) -> list[str]:
    """Return the packages that are installed, less a few that a setting needs."""
    wanted = ["transformers", "accelerate", "peft"]
    if settings["trainer"] == "trl":
        wanted += ["trl", "datasets"]
    if settings["parallel"].startswith("zero"):
        wanted.append("deepspeed")
    for key, needed in NEEDED.items():
        if settings[key] in needed and generator.random() > 1 / 8:
            wanted.append(needed[settings[key]])
    return list(dict.fromkeys(wanted))


def possible(settings: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings, with others for a method or a parallelism that the releases do not have yet."""
    found = dict(settings)
    first = SINCE_RELEASE.get(found["method"])
    if first and Version(versions["trl"]) < Version(first):
        found["method"] = "sft"
    first = FSDP_SINCE.get(found["parallel"])
    if first and Version(versions["accelerate"]) < Version(first):
        found["parallel"] = "ddp"
    if found["quantization"] in ("int8", "nf4"):
        old = Version(versions["transformers"]) < Version(QUANTISES_ON_CPU)
        found["quantization"] = "none" if old else found["quantization"]
    if found["parallel"].startswith("zero") and Version(versions["accelerate"]) < Version(TELLS_PROCESSES):
        found["parallel"] = "none"
    return found


SAME_FACTS = (
    *("model_type", "gradient_checkpointing", "precision", "optimizer", "lr_scheduler", "load_best_model"),
    *("gradient_accumulation_steps", "gradient_clipping", "save_strategy", "save_only_model"),
    *("eval_strategy", "auto_find_batch_size", "dataloader_workers", "torch_compile", "trainer"),
    *("base_dtype", "group_by_length"),
)
"""Settings that are facts of the same name and values."""


def train_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as facts of the training."""
    facts = {key: settings[key] for key in SAME_FACTS}
    facts["label_smoothing"] = settings["label_smoothing"] > 0
    if settings["quantization"] != "torchao":  # which no fact names
        facts["quantization"] = settings["quantization"]
    if settings["gradient_checkpointing"] and settings["use_reentrant"] is not None:
        facts["use_reentrant"] = settings["use_reentrant"]
    if settings["attention"]:
        facts["attention"] = settings["attention"]
    if settings["report_to"] != "none":
        facts["report_to"] = [settings["report_to"]]
    if settings["dataloader_workers"]:
        facts["dataloader_persistent_workers"] = settings["persistent_workers"]
    facts["resume"] = settings["resume"] and settings["save_strategy"] == "steps"
    if settings["trainer"] == "trl":
        facts["method"] = settings["method"]
        if settings["method"] == "sft":
            facts["packing"] = settings["packing"]
        if settings["method"] in ("grpo", "rloo"):
            facts["vllm"] = False
    return facts | adapter_facts(settings) | parallel_facts(settings)


def adapter_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of the adapter."""
    adapter = settings["adapter"]
    if adapter == "none":
        return {"adapter": "none", "frozen_params": False}
    head = settings["family"] == "classification" or settings["method"] == "reward"
    facts = {"adapter": adapter, "frozen_params": True}
    facts["modules_to_save"] = settings["modules_to_save"] or head  # PEFT trains a classifier's head whole
    facts["runs_peft"] = True
    return facts | ({"adapter": "lora", "dora": adapter == "dora"} if adapter in ("lora", "dora") else {})


def parallel_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of how the training is spread."""
    parallel = settings["parallel"]
    if parallel == "none":
        return {"parallel": "none", "world_size": 1}
    facts = {"world_size": settings["processes"], "parallel": parallel}
    if parallel == "ddp" and settings["find_unused"]:  # else the Trainer decides
        facts["ddp_find_unused_parameters"] = True
    if parallel.startswith("zero"):
        facts |= {"parallel": "deepspeed", "zero_stage": int(parallel[-1])}
        facts |= {"offload_optimizer": "none", "offload_param": "none", "deepspeed_scheduler": False}
        facts["deepspeed_optimizer"] = settings["deepspeed_optimizer"]
        facts |= {"optimizer": "adamw"} if settings["deepspeed_optimizer"] else {}
        facts["zero_allow_untested_optimizer"] = settings["allow_untested_optimizer"]
        if parallel == "zero3":
            facts["zero3_init"] = settings["zero3_init"]
            facts["gather_on_save"] = settings["gather_on_save"]
    if parallel.startswith("fsdp"):
        facts["fsdp_wrap"] = "transformer"
        facts["fsdp_state_dict"] = settings["fsdp_state_dict"]
        facts["fsdp_activation_checkpointing"] = settings["fsdp_activation_checkpointing"]
        facts["fsdp_mixed_precision"] = settings["precision"] != "fp32"
        facts |= {"fsdp_cpu_ram_efficient_loading": False, "fsdp_offload": False}
        if parallel == "fsdp1":
            facts["fsdp_sharding"] = settings["fsdp_sharding"]
            facts["fsdp_use_orig_params"] = settings["use_orig_params"]
            facts["fsdp_sync_module_states"] = False
    return facts


class Predictor:
    """Judge draws as `check` judges a facts file."""

    def __init__(self) -> None:
        """Load the matrix."""
        self.known, self._vocabulary = loading.knowledge(), loading.vocabulary(probes.every_probe())

    def predict(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a draw with the ids of the errors and warnings that its user is shown."""
        facts = {
            "complete": ["pkg", "env"],
            "python": {"version": "3.11.7"},
            "gpus": {"count": 0},
            "env": row.get("environment", {}),
            "pkg": dict(row["versions"]),
            "train": train_facts(row["settings"]),
        }
        read = facts_file.load(facts, "draw", self._vocabulary)
        judged = judging.judge_inventory(
            derive.derive(judging.with_requirements(read), self.known), self.known, None
        )
        told: dict[str, list[str]] = {"error": [], "warning": []}
        for finding in judged.findings:
            if finding.verdict is Verdict.BROKEN and finding.severity.value in told:
                told[finding.severity.value].append(finding.rule.id)
        return {**row, "errors": told["error"], "warnings": told["warning"]}


# --- report -----------------------------------------------------------------------------------------


def changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    return {key: value for key, value in settings.items() if value != SETTINGS.get(key, ["none"])[0]}


def rows_and_ends(files: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Return the draws of the first file, and how they ended by number, from the others."""
    lines = [line for file in files[1:] for line in file.read_text().splitlines()]
    return json.loads(files[0].read_text()), {row["draw"]: row for row in map(json.loads, lines)}


def report(rows: Sequence[Mapping[str, Any]], ends: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the figures, and all failures that were not told and errors that were false."""
    known = [
        (number, row, ends[number])
        for number, row in enumerate(rows)
        if ends.get(number, {}).get("ok") is not None
    ]
    failed = [row for _, row, end in known if not end["ok"]]
    told = [row for row in failed if row["errors"]]
    accused = [row for _, row, end in known if end["ok"] and row["errors"]]
    lines = [
        f"{len(rows)} drawn, {len(known)} run",
        f"failures with an error: {wilson(len(told), len(failed))}",
        f"trainings that ran, with an error: {wilson(len(accused), len(known) - len(failed))}",
    ]
    for number, row, end in known:
        if end["ok"] == bool(row["errors"]):
            shown = {key: row["versions"].get(key) for key in SHOWN if key in row["versions"]}
            lines += [
                "",
                f"#{number} {shown} {changed(row['settings'])}",
                f"  said: {row['errors']} {row['warnings']}",
                f"  {end['error']}",
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run one of the steps."""
    parser = command_line(__doc__, ("draw", "run", "report"), 60)
    parser.add_argument("--workers", type=int, default=1, help="run every so manieth draw")
    parser.add_argument("--worker", type=int, default=0, help="which of these, from 0")
    options = parser.parse_intermixed_args()
    if options.step == "report":
        print(report(*rows_and_ends(options.files)), end="")
        return
    overlays = Overlays(options.uv, options.work, options.base)
    if options.step == "draw":
        generator, predictor = random.Random(options.seed), Predictor()  # noqa: S311 - a sample
        rows: list[dict[str, Any]] = []
        while len(rows) < options.draws:
            if (row := draw(overlays, generator)) is not None:
                rows.append(predictor.predict(row))
                options.output.write_text(json.dumps(rows, indent=1))
        return
    done = (
        {json.loads(line)["draw"] for line in options.output.read_text().splitlines()}
        if options.output.exists()
        else set()
    )
    with options.output.open("a") as output:
        for number, row in enumerate(json.loads(options.files[0].read_text())):
            if number not in done and number % options.workers == options.worker:
                settings = json.dumps(row["settings"])
                program = PROGRAM.format(
                    settings=settings,
                    folder=str(Path(__file__).parent),
                    processes=row.get("processes", 0),
                )
                end = overlays.run({"deadline": 300, **row}, program)
                output.write(json.dumps({"draw": number, **end}) + "\n")
                output.flush()
    overlays.close()


if __name__ == "__main__":
    main()
