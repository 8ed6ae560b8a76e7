"""`envcheck fit`: estimate the memory that a training run needs."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandOption
from envcheck.host import machine as host

ModelOption = Annotated[
    str,
    CommandOption(
        "--model",
        metavar="MODEL",
        help="config.json, a folder that contains one (safetensors beside it are read by their headers), the "
        "name of a model in the hub's cache or of a well-known one, such as Qwen/Qwen3-8B, or "
        "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064.",
    ),
]
GpusOption = Annotated[
    int | None, CommandOption("--gpus", metavar="N", min=1, max=100_000, help="Number of ranks, one per GPU.")
]
SeqOption = Annotated[
    int | None,
    CommandOption("--seq", metavar="N", min=1, max=100_000_000, help="Tokens per sequence."),
]
MicroBatchOption = Annotated[
    int | None,
    CommandOption(
        "--micro-batch", metavar="N", min=1, max=1_000_000, help="Sequences per rank in one forward pass."
    ),
]
LoraRankOption = Annotated[
    int | None,
    CommandOption("--lora-rank", metavar="R", min=1, max=100_000, help="Rank of LoRA; PEFT's default is 8."),
]
LoraTargetOption = Annotated[
    list[str] | None,
    CommandOption(
        "--lora-target", metavar="NAME", help="Module that LoRA adapts, or all-linear. Repeatable."
    ),
]
LoraDropoutOption = Annotated[
    float | None,
    CommandOption(
        "--lora-dropout", metavar="P", min=0, max=1, help="LoRA's dropout; its masks stay in memory."
    ),
]
RamOption = Annotated[
    int | None,
    CommandOption("--ram", metavar="GIB", min=1, max=1_000_000, help="Declare the host's memory in GiB."),
]
VerboseOption = Annotated[
    bool,
    CommandOption(
        "-v", "--verbose", help="Also print every part and assumption, the phases of a step and the sources."
    ),
]


def command(
    model: ModelOption,
    target: options.Target = None,
    train: options.Train = None,
    gpu_count: GpusOption = None,
    gpus: options.Gpu = None,
    seq: SeqOption = None,
    micro_batch: MicroBatchOption = None,
    lora_rank: LoraRankOption = None,
    lora_targets: LoraTargetOption = None,
    lora_dropout: LoraDropoutOption = None,
    ram: RamOption = None,
    python: options.Python = None,
    static: options.Static = False,
    facts: options.Facts = None,
    as_json: options.Json = False,
    timeout: options.ProbeTimeout = 10.0,
    overlays: options.Matrix = None,
    verbose: VerboseOption = False,
    quiet: options.Quiet = False,
    lang: options.Lang = None,
) -> int:
    """Estimate the memory that a training run needs, before it starts. Downloads nothing; needs no torch.

    Exit codes: 0 it fits (or is tight), 1 it does not fit, 2 wrong usage or unreadable input, 3 cannot tell.
    """
    from envcheck.commands import fit, user_settings
    from envcheck.memory import report

    verbosity = output.verbosity("json" if as_json else "text", verbose=verbose, quiet=quiet)
    language = user_settings.choose_language(lang, host.Host())
    request = options.examine_request(
        python=python,
        static=static,
        facts=facts,
        target=target,
        train=train,
        gpus=gpus,
        timeout=timeout,
        overlays=overlays,
    )
    request = user_settings.with_settings(request, user_settings.read_settings())
    fit_options = fit.FitOptions(
        model=model,
        gpus=gpu_count,
        seq=seq,
        batch=micro_batch,
        rank=lora_rank,
        targets=tuple(lora_targets or ()),
        dropout=None if lora_dropout is None else lora_dropout > 0,
        ram=ram,
    )
    table = fit.estimate_memory(request, fit_options, host.Host())
    text = report.render(table, verbosity, language)
    output.print_data(output.json_text(report.tree(table)) if as_json else text)
    return table.code
