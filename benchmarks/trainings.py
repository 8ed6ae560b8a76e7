"""Hold the judge against trainings that are drawn and run on the CPU: releases, and settings of the training.

    python benchmarks/trainings.py draw --base BASE/bin/python --work FOLDER --seed 1 --draws 60 -o draws.json
    python benchmarks/trainings.py run --base BASE/bin/python --work FOLDER draws.json -o ends.jsonl
    python benchmarks/trainings.py report draws.json ends.jsonl

A draw has one release of transformers, accelerate and PEFT (and of TRL) as they were on a day. Half of the
draws have one of them replaced by a release of any other day. Settings are drawn independently; each is left
at its default most of the time. `draw` also writes down which errors and warnings `check` would show, before
anything has run. `report` prints each failure that no error told and each error beside a training that ran:
both have to be read, because a drawn training may be wrong in itself.

Seed 11, on 2026-12-01: 58 of 60 draws ran. Of 26 failures 20 had an error (77 %; 58 to 89 %, Wilson, 95 %),
and of 32 trainings that ran 2 (6 %; 2 to 20 %): both for a TRL that was installed and that the Trainer does
not import. Of the six misses five were label smoothing, which no rule knew, and one is float16 on a CPU.
Seed 12, after the mending of these: 47 of 50 ran. Of 13 failures 6 had an error (46 %; 23 to 71 %), and of
34 trainings that ran none (0 to 10 %). Missed: DPO with p-tuning and two adapters that the PEFT did not
have yet, which rules tell since; DPO that groups by length; an accelerate below what TRL requires, of which
a warning was shown; label smoothing, which was not handed to the judge then; and a TRL that needs Triton,
which these environments leave out.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atlas import drawable, published, wilson
from atlas_overlays import Overlays, command_line

from envcheck import probes
from envcheck.commands import judging, loading
from envcheck.core import facts_file
from envcheck.core.findings import Verdict
from envcheck.rules import derive

PACKAGES = ("transformers", "accelerate", "peft", "trl", "datasets")
SINCE = dt.date(2023, 9, 1)
"""Day of the oldest transformers that is drawn (4.33): older ones rarely train beside a torch of 2026."""

RARE = 0.3
"""Share of draws in which a setting differs from its default."""

SETTINGS: Mapping[str, Sequence[Any]] = {
    "model_type": ("llama", "mistral", "qwen2", "gemma2", "mixtral", "opt", "qwen3", "olmo"),
    "adapter": (
        "none",
        "lora",
        "lora",
        "dora",
        "ia3",
        "prompt",
        "prefix",
        "p_tuning",
        "vera",
        "oft",
        "boft",
        "adalora",
        "loha",
        "lokr",
        "hra",
        "fourierft",
        "vblora",
        "ln_tuning",
        "randlora",
        "miss",
        "shira",
    ),
    "gradient_checkpointing": (False, True),
    "use_reentrant": (None, False, True),
    "precision": ("fp32", "bf16"),
    "base_dtype": ("float32", "bfloat16", "float16"),
    "attention": (None, "eager", "sdpa"),
    "optimizer": ("adamw_torch", "adafactor", "sgd", "rmsprop", "adamw_torch_fused", "adamw_hf", "adagrad"),
    "lr_scheduler": (
        "linear",
        "cosine",
        "reduce_lr_on_plateau",
        "cosine_with_restarts",
        "warmup_stable_decay",
        "cosine_with_min_lr",
        "inverse_sqrt",
        "polynomial",
    ),
    "gradient_accumulation_steps": (1, 2),
    "group_by_length": (False, True),
    "neftune": (None, 5.0),
    "label_smoothing": (0.0, 0.1),
    "modules_to_save": (False, True),
    "save_strategy": ("no", "steps"),
    "resume": (False, True),
    "eval_strategy": ("no", "steps"),
    "load_best_model": (False, True),
    "auto_find_batch_size": (False, True),
    "dataloader_workers": (0, 2),
    "packing": (False, True),
    "torch_compile": (False, False, False, True),
    "trainer": ("transformers", "trl"),
    "method": ("sft", "dpo"),
}

PROGRAM = """
import os, sys
os.environ["DRAWN_TRAINING"] = {settings!r}
sys.path.insert(0, {folder!r})
import drawn_training
"""
"""Imports the training, so that datasets can pickle its functions by name."""

# --- draw -------------------------------------------------------------------------------------------


def draw(overlays: Overlays, generator: random.Random) -> dict[str, Any] | None:
    """Return releases and settings, or None if the releases do not exist together."""
    releases = [each for each in drawable("transformers") if published("transformers", each) >= SINCE]
    pinned = {"transformers": generator.choice(releases)}
    day = published("transformers", pinned["transformers"]) + dt.timedelta(days=generator.randrange(90))
    if generator.random() < 0.5:  # noqa: PLR2004 - half of them
        other = generator.choice(("accelerate", "peft", "trl"))
        pinned[other] = generator.choice(
            [each for each in drawable(other) if published(other, each) >= SINCE]
        )
        day = max(day, published(other, pinned[other]))
    settings = {
        key: generator.choice(values[1:]) if generator.random() < RARE else values[0]
        for key, values in SETTINGS.items()
    }
    settings["adapter"] = generator.choice(SETTINGS["adapter"])
    if settings["load_best_model"]:
        settings["save_strategy"] = settings["eval_strategy"] = "steps"
    wanted = PACKAGES if settings["trainer"] == "trl" else PACKAGES[:3]
    day = min(max(day, published("transformers", pinned["transformers"])), dt.date.today())  # noqa: DTZ011
    versions = overlays.resolve(pinned, overlays.torches[-1], day, wanted)
    if versions is None:
        return None
    return {"torch": overlays.torches[-1], "versions": versions, "settings": settings}


def train_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as facts of the training."""
    same = (
        "model_type",
        "gradient_checkpointing",
        "precision",
        "optimizer",
        "lr_scheduler",
        "load_best_model",
        "gradient_accumulation_steps",
        "save_strategy",
        "eval_strategy",
        "auto_find_batch_size",
        "dataloader_workers",
        "torch_compile",
        "trainer",
        "base_dtype",
    )
    facts = {key: settings[key] for key in same}
    facts["label_smoothing"] = settings["label_smoothing"] > 0
    dora = settings["adapter"] == "dora"
    facts |= {"adapter": "lora" if dora else settings["adapter"], "quantization": "none", "parallel": "none"}
    facts["frozen_params"] = settings["adapter"] != "none"
    if dora:
        facts["dora"] = True
    if settings["gradient_checkpointing"] and settings["use_reentrant"] is not None:
        facts["use_reentrant"] = settings["use_reentrant"]
    if settings["attention"]:
        facts["attention"] = settings["attention"]
    if settings["adapter"] != "none":
        facts["modules_to_save"] = settings["modules_to_save"]
    facts["resume"] = settings["resume"] and settings["save_strategy"] == "steps"
    if settings["trainer"] == "trl":
        facts["method"] = settings["method"]
        if settings["method"] == "sft":
            facts["packing"] = settings["packing"]
    return facts


class Predictor:
    """Judge draws as `check` judges a facts file."""

    def __init__(self) -> None:
        """Load the matrix."""
        self._known, self._vocabulary = loading.knowledge(), loading.vocabulary(probes.every_probe())

    def predict(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a draw with the ids of the errors and warnings that its user is shown."""
        facts = {
            "complete": ["pkg"],
            "python": {"version": "3.11.7"},
            "pkg": dict(row["versions"]),
            "train": train_facts(row["settings"]),
        }
        read = facts_file.load(facts, "draw", self._vocabulary)
        judged = judging.judge_inventory(
            derive.derive(judging.with_requirements(read), self._known), self._known, None
        )
        told: dict[str, list[str]] = {"error": [], "warning": []}
        for finding in judged.findings:
            if finding.verdict is Verdict.BROKEN and finding.severity.value in told:
                told[finding.severity.value].append(finding.rule.id)
        return {**row, "errors": told["error"], "warnings": told["warning"]}


# --- report -----------------------------------------------------------------------------------------


def report(rows: Sequence[Mapping[str, Any]], ends: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the figures, and all failures that were not told and errors that were false."""
    known = [
        (row, ends[number]) for number, row in enumerate(rows) if ends.get(number, {}).get("ok") is not None
    ]
    failed = [(row, end) for row, end in known if not end["ok"]]
    told = [row for row, _ in failed if row["errors"]]
    accused = [row for row, end in known if end["ok"] and row["errors"]]
    lines = [
        f"{len(rows)} drawn, {len(known)} run",
        f"failures with an error: {wilson(len(told), len(failed))}",
        f"trainings that ran, with an error: {wilson(len(accused), len(known) - len(failed))}",
    ]
    for row, end in known:
        if end["ok"] == bool(row["errors"]):
            shown = {key: row["versions"].get(key) for key in PACKAGES if key in row["versions"]}
            changed = {k: v for k, v in row["settings"].items() if v != SETTINGS[k][0]}
            lines += [
                "",
                f"{shown} {changed}",
                f"  said: {row['errors']} {row['warnings']}",
                f"  {end['error']}",
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run one of the steps."""
    options = command_line(__doc__, ("draw", "run", "report"), 60).parse_intermixed_args()
    if options.step == "report":
        ends = {row["draw"]: row for row in map(json.loads, options.files[1].read_text().splitlines())}
        print(report(json.loads(options.files[0].read_text()), ends), end="")
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
            if number not in done:
                settings = json.dumps(row["settings"])
                program = PROGRAM.format(settings=settings, folder=str(Path(__file__).parent))
                end = overlays.run(row, program)
                output.write(json.dumps({"draw": number, **end}) + "\n")
                output.flush()
    overlays.close()


if __name__ == "__main__":
    main()
