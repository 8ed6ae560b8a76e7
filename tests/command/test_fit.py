"""What memory a training takes: laws the account obeys, what is refused, and the command as it is used."""

from __future__ import annotations

import json
import os
import struct
import subprocess  # noqa: TID251 - tests are users
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.commands import fit
from envcheck.core.errors import InputError
from envcheck.memory import architecture, estimate
from envcheck.memory.activations import layer_bytes
from envcheck.memory.options import Room, find_options, verdict_for
from envcheck.memory.training import GIB, Training
from tests.support.paths import ROOT
from tests.support.running import envcheck, invocation, surroundings

TABLES = tomllib.loads((ROOT / "compat/tables/architectures.toml").read_text())
CONFIGS = {
    name: row["config"] for name, row in tomllib.loads((ROOT / "tests/data/models.toml").read_text()).items()
}


def model(name: str, **changes: Any) -> architecture.ModelShape:
    found = architecture.model({**CONFIGS[name], **changes}, TABLES, name)
    assert found is not None
    return found


MODELS = [model(name) for name in ("llama-3-8b", "gpt2", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b")]

SIZES = st.sampled_from([1, 2, 7, 512, 4096, 32768])
TRAININGS = st.builds(
    Training,
    seq=SIZES,
    batch=st.integers(1, 8),
    ranks=st.sampled_from([1, 2, 3, 8, 64]),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
    stored=st.sampled_from(["", "fp32"]),
    parallel=st.sampled_from(["none", "ddp", "deepspeed", "fsdp1", "fsdp2"]),
    stage=st.integers(0, 3),
    offload_optimizer=st.booleans(),
    offload_param=st.booleans(),
    adapter=st.booleans(),
    targets=st.sampled_from([(), ("all-linear",)]),
    saved=st.sampled_from([(), ("lm_head", "embed_tokens")]),
    dropout=st.booleans(),
    dora=st.booleans(),
    fp32_adapters=st.booleans(),
    quantised=st.sampled_from(["none", "nf4", "int8", "gptq", "fp8"]),
    checkpointing=st.booleans(),
    attention=st.sampled_from(["sdpa", "eager", "flash_attention_2"]),
    optimizer=st.sampled_from(TABLES["optimizer"]),
    fused_loss=st.booleans(),
    overlap=st.booleans(),
    cuda=st.booleans(),
    autocast=st.booleans(),
    rank=st.sampled_from([1, 8, 256]),
    activation=st.sampled_from([1, 4]),
    reduce_bucket=st.sampled_from([1, 10**6, 5 * 10**8]),
    prefetch=st.just(50_000_000),
    persistence=st.sampled_from([0, 10**5]),
    reuse=st.just(10**9),
    sub_group=st.just(10**9),
)
LAW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def more(before: estimate.Estimate, after: estimate.Estimate) -> bool:
    """Never less, but for the rounding of parts."""
    return after.total >= before.total - len(estimate.PARTS)


# --- laws -------------------------------------------------------------------------------------------


@LAW
@given(st.sampled_from(MODELS), TRAININGS)
def test_parts_are_the_peak_of_the_phases(which: architecture.ModelShape, how: Training) -> None:
    account = estimate.estimate(which, how)
    assert abs(account.total - max(account.phases.values())) <= len(estimate.PARTS)
    assert account.phases[account.phase] == max(account.phases.values())
    assert all(part.bytes > 0 for part in (*account.parts, *account.host))
    assert account.total >= account.rest - len(estimate.PARTS)
    assert account.frozen + account.trainable >= which.parameters


@LAW
@given(st.sampled_from(MODELS), TRAININGS, st.integers(1, 5))
def test_longer_sequences_or_larger_batches_never_need_less(
    which: architecture.ModelShape, how: Training, times: int
) -> None:
    before = estimate.estimate(which, how)
    assert more(before, estimate.estimate(which, how._replace(seq=how.seq * times)))
    assert more(before, estimate.estimate(which, how._replace(batch=how.batch * times)))
    assert more(before, estimate.estimate(which, how._replace(rank=how.rank * times)))


@LAW
@given(TRAININGS, st.integers(1, 40))
def test_more_layers_are_never_less(how: Training, layers: int) -> None:
    before = estimate.estimate(model("llama-3-8b", num_hidden_layers=layers), how)
    assert more(before, estimate.estimate(model("llama-3-8b", num_hidden_layers=layers + 1), how))


@LAW
@given(st.sampled_from(MODELS), TRAININGS, st.integers(2, 4))
def test_more_ranks_are_never_more_under_zero(
    which: architecture.ModelShape, how: Training, times: int
) -> None:
    how = how._replace(parallel="deepspeed", stage=max(how.stage, 1))
    assert more(
        estimate.estimate(which, how._replace(ranks=how.ranks * times)), estimate.estimate(which, how)
    )


@LAW
@given(st.sampled_from(MODELS), TRAININGS)
def test_offload_is_never_more_on_the_gpu(which: architecture.ModelShape, how: Training) -> None:
    how = how._replace(parallel="deepspeed", stage=3, offload_optimizer=False, offload_param=False)
    here = estimate.estimate(which, how)
    there = estimate.estimate(which, how._replace(offload_optimizer=True))
    everything = estimate.estimate(which, how._replace(offload_optimizer=True, offload_param=True))
    assert more(there, here)
    assert more(everything, there)
    assert there.host_total >= here.host_total


@LAW
@given(st.sampled_from(MODELS), TRAININGS)
def test_checkpointing_never_keeps_more_activations(which: architecture.ModelShape, how: Training) -> None:
    shape = which.decoder
    assert shape is not None
    kept = layer_bytes(which, shape, how)
    assert kept.input <= kept.kept


@LAW
@given(
    st.sampled_from(MODELS),
    TRAININGS,
    st.one_of(st.none(), st.integers(0, 10**13)),
    st.one_of(st.none(), st.integers(0, 10**13)),
)
def test_the_advised_change_fits(
    which: architecture.ModelShape, how: Training, gpu: int | None, ram: int | None
) -> None:
    room = Room(gpu, free=True, name="GPU", ram=ram, ranks=how.ranks)
    both = frozenset({"bitsandbytes", "liger-kernel"})
    found = find_options(how, lambda other: estimate.estimate(which, other), room, lambda _: (), both)
    if found.cheapest:
        assert verdict_for(found.cheapest.training, found.cheapest.account, room) == "fits"
        assert verdict_for(how, estimate.estimate(which, how), room) != "fits"
    none = find_options(how, lambda other: estimate.estimate(which, other), room, lambda _: ("rule",), both)
    assert none.cheapest is None


def test_shared_gpu_and_host_memory_is_counted_once() -> None:
    """A chip that shares the host's memory: what the optimizer moves to the host stays in the same place."""
    how = Training(seq=1, parallel="deepspeed", stage=2, offload_optimizer=True)
    account = estimate.estimate(model("llama-3-8b"), how)
    apart = Room(2 * account.total, free=True, name="GPU", ram=2 * account.host_total, ranks=1)
    assert verdict_for(how, account, apart) == "fits"
    shared = apart._replace(gpu=account.total + account.host_total // 2, ram=None, shared=True)
    assert verdict_for(how, account, shared) == "does not fit"
    assert verdict_for(how, account, shared._replace(gpu=2 * (account.total + account.host_total))) == "fits"


def test_a_frozen_base_has_no_gradients_and_no_states() -> None:
    """DeepSpeed's estimator counts 16 bytes for each of them."""
    how = Training(seq=1, parallel="deepspeed", stage=2, adapter=True, reduce_bucket=1)
    account = estimate.estimate(model("llama-3-8b"), how)
    parts = {part.name: part.bytes for part in account.parts}
    assert account.trainable == 32 * 8 * (4096 + 4096 + 4096 + 1024)
    assert parts["frozen weights"] == 2 * 8030261248
    assert parts["optimizer states"] == 12 * account.trainable


def test_quantised_weights_are_counted_as_stored() -> None:
    """4 bit, a byte for each 64 and four for each 64 times 256; what is no linear module is fp32."""
    which = model("llama-3-8b")
    linear = sum(each.numel * each.copies for each in which.tensors if each.kind == "linear")
    other = which.parameters - linear
    account = estimate.estimate(which, Training(seq=0, adapter=True, quantised="nf4"))
    parts = {part.name: part.bytes for part in account.parts}
    assert parts["frozen weights"] == pytest.approx(linear * (1 / 2 + 1 / 64 + 4 / 64 / 256) + 4 * other)


def test_a_verdict_respects_its_error_margin() -> None:
    gib = GIB
    assert estimate.verdict(10 * gib, 24 * gib, cuda=True) == "fits"
    assert estimate.verdict(10 * gib, 12 * gib, cuda=True) == "tight"
    assert estimate.verdict(10 * gib, 8 * gib, cuda=True) == "does not fit"
    assert estimate.verdict(10 * gib, None, cuda=True) == "cannot tell"
    assert estimate.verdict(10 * gib, 24 * gib, cuda=True, partial=True) == "cannot tell"
    assert estimate.verdict(10 * gib, 8 * gib, cuda=True, partial=True) == "does not fit"


# --- measured ---------------------------------------------------------------------------------------


def test_the_estimate_holds_where_it_was_measured() -> None:
    """What benchmarks/fit.json keeps of real trainings, estimated anew."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from fit import compared
    finally:
        sys.path.pop(0)
    rows = compared(json.loads((ROOT / "benchmarks/fit.json").read_text())["measured"])
    assert len(rows) >= 20
    assert [row.name for row in rows if abs(row.error) > estimate.ERROR] == []


# --- reading a model --------------------------------------------------------------------------------


def safetensors(path: Path, header: dict[str, Any], length: int | None = None) -> None:
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data) if length is None else length) + data)


def folder(tmp_path: Path, config: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_headers_count_what_no_row_describes(tmp_path: Path) -> None:
    folder(tmp_path, {"model_type": "minicpmv", "torch_dtype": "bfloat16"})
    header = {
        "__metadata__": {"format": "pt"},
        "llm.layers.0.self_attn.q_proj.weight": {
            "dtype": "BF16",
            "shape": [64, 32],
            "data_offsets": [0, 4096],
        },
        "llm.embed_tokens.weight": {"dtype": "BF16", "shape": [100, 32], "data_offsets": [4096, 10496]},
    }
    safetensors(tmp_path / "model.safetensors", header)
    found = fit.read_model(str(tmp_path), TABLES)
    assert found.parameters == 64 * 32 + 100 * 32
    assert found.stored == 2 * found.parameters
    assert found.dtype == "bf16"
    assert [tensor.kind for tensor in found.tensors] == ["linear", "embedding"]
    assert estimate.estimate(found, Training(seq=10)).unknown == ("activations", "logits and loss")


@pytest.mark.parametrize(
    ("length", "header", "said"),
    [
        (2**63, {}, "a header of 9223372036854775808 bytes"),
        (0, {}, "a header of 0 bytes"),
        (10**6, {}, "it ends within its header"),
        (None, {"w": {"dtype": "F32", "shape": [-1]}}, "has no shape or dtype"),
        (None, {"w": {"dtype": "F32", "shape": [10**9, 10**9]}}, "is not plausible"),
        (None, {"w": {"dtype": "X9", "shape": [1]}}, "has no shape or dtype"),
        (None, {"w": 3}, "has no shape or dtype"),
    ],
)
def test_a_hostile_header_is_a_one_line_error(
    tmp_path: Path, length: int | None, header: Any, said: str
) -> None:
    folder(tmp_path, CONFIGS["gpt2"])
    safetensors(tmp_path / "model.safetensors", header, length)
    with pytest.raises(InputError) as raised:
        fit.read_model(str(tmp_path), TABLES)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
    ],
)
def test_a_quantised_checkpoint_is_understood(tmp_path: Path, said: dict[str, Any], kind: str) -> None:
    folder(tmp_path, {**CONFIGS["llama-3-8b"], "quantization_config": said})
    assert fit.read_model(str(tmp_path), TABLES).quantised == kind


def test_a_model_of_the_hub_is_found_in_the_cache(tmp_path: Path) -> None:
    commit = "0" * 39 + "1"
    cached = tmp_path / "home/hub/models--meta-llama--Llama-3-8B"
    snapshot = cached / "snapshots" / commit
    snapshot.mkdir(parents=True)
    folder(snapshot, CONFIGS["llama-3-8b"])
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(commit)
    asked = ("fit", "--gpu", "a100-80gb", "--target", "zero3-lora", "--seq", "2048", "--model")
    found = envcheck(
        *asked, "meta-llama/Llama-3-8B", cwd=tmp_path, environ={"HF_HOME": str(tmp_path / "home")}
    )
    assert found.code in (0, 1)
    assert "8,033,669,120 parameters" in found.out


def test_a_well_known_model_needs_no_file(tmp_path: Path) -> None:
    asked = ("fit", "--gpu", "a100-80gb", "--target", "qlora", "--seq", "2048", "--model")
    known = envcheck(*asked, "Qwen/Qwen3-8B", cwd=tmp_path)
    assert known.code == 0
    assert "8,194,569,216 parameters" in known.out
    assert "its config.json was not read" in " ".join(known.out.split())
    assert envcheck(*asked, "Qwen3-8B", cwd=tmp_path).out == known.out
    assert envcheck(*asked, "./Qwen3-8B", cwd=tmp_path).code == 2
    assert "weights of its own" in " ".join(envcheck(*asked, "microsoft/phi-4", cwd=tmp_path).out.split())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("my-team/Model-7B", "run `hf download my-team/Model-7B config.json` (some kB) and try again"),
        ("Qwen2.5-VL-7B-Instruct", "run `hf download OWNER/Qwen2.5-VL-7B-Instruct config.json`"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "run `hf download Qwen/Qwen2.5-VL-7B-Instruct config.json`"),
        ("Qwen/Qwen3-VL-8B-Instruct", "so run `hf download Qwen/Qwen3-VL-8B-Instruct` and try again"),
        ("openai/gpt-oss-20b", "quant_method 'mxfp4' cannot be calculated"),
    ],
)
def test_a_model_of_unknown_size_is_one_line_with_the_way_to_its_file(
    tmp_path: Path, name: str, advice: str
) -> None:
    absent = envcheck("fit", "--gpu", "a100-80gb", "--model", name, cwd=tmp_path)
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    assert advice in absent.err


def test_a_model_can_be_described_by_numbers() -> None:
    text = "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064"
    assert architecture.described(text).parameters == pytest.approx(7.6e9, rel=0.01)
    assert architecture.described("params=7.6e9").parameters == 7_600_000_000
    assert architecture.described("params=7.6e9").decoder is None


@pytest.mark.parametrize(
    "text",
    [
        "params=",
        "params=-7e9",
        "params=nan",
        "params=inf",
        "params=1e99",
        "params=7.5",
        "params=7e9,layers=28",
        "params=7e9,colour=3",
        "params=7e9,layers=1,hidden=64,heads=1,mlp=64,vocab=64",
        "params=7e9,layers=28,hidden=3584,heads=27,mlp=18944,vocab=152064",
        "params=7e9,,",
    ],
)
def test_nonsense_numbers_are_a_one_line_error(text: str) -> None:
    with pytest.raises(InputError):
        architecture.described(text)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*CONFIGS["qwen1.5-moe-a2.7b"], "text_config", "vision_config", "head_dim"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-10, 10**30) | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    ),
    st.sampled_from(sorted(CONFIGS)),
)
def test_any_config_gives_a_model_or_a_one_line_error(changes: dict[str, Any], name: str) -> None:
    config = {**CONFIGS[name], **changes}
    try:
        found = architecture.model(config, TABLES, "config.json")
    except InputError as error:
        found, said = None, str(error)
        assert len(said) < 300
    if found is not None:
        assert 0 < found.parameters <= architecture.MOST_PARAMETERS
        estimate.estimate(found, Training(seq=16))


# --- the command ------------------------------------------------------------------------------------


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        invocation("fit", *words),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env=surroundings({"NO_COLOR": "1"}),
    )


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "facts.toml"
    path.write_text(
        'complete = ["pkg"]\n'
        'pkg = { torch = "2.13.0", deepspeed = "0.19.8", transformers = "5.23.0", peft = "0.21.2" }\n'
        "host = { ram_limit_mib = 262144 }\n"
        '[[gpu]]\nname = "NVIDIA A100-SXM4-80GB"\nmemory_mib = 81920\nmemory_free_mib = 80000\n'
    )
    return path


LLAMA = json.dumps(CONFIGS["llama-3-8b"])


def asked(tmp_path: Path, machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "config.json").write_text(LLAMA)
    common = ("--model", "config.json", "--facts", str(machine), "--gpus", "8", "--seq", "4096")
    return run(*common, *words, cwd=tmp_path)


def test_the_verdict_compares_the_estimate_with_the_memory(tmp_path: Path, machine: Path) -> None:
    ran = asked(tmp_path, machine, "--target", "zero3-lora")
    assert ran.returncode == 0, ran.stderr
    assert "Fits: " in ran.stdout
    assert ran.stdout.startswith("Fits: ")
    assert "Cheapest" not in ran.stdout
    assert ran.stderr == ""


def test_without_a_training_environment_the_packages_of_the_target_are_judged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    (tmp_path / "empty.toml").write_text('complete = ["pkg"]\n[pkg]\npip = "25.0"\n')
    words = (
        "--model",
        "config.json",
        "--target",
        "zero2-lora",
        "--gpus",
        "2",
        "--gpu",
        "RTX 4090",
        "--ram",
        "128",
    )
    ran = run(*words, "--seq", "8192", "--facts", "empty.toml", cwd=tmp_path)
    assert "Cheapest change that fits: ZeRO-3, optimizer offload" in ran.stdout
    assert "adapter-without-peft" not in ran.stdout
    assert "Judged   the packages measured for zero2-lora on 2026-" in ran.stdout
    quiet = run(*words, "--seq", "8192", "--facts", "empty.toml", "-q", cwd=tmp_path)
    assert quiet.stdout.splitlines() == ran.stdout.splitlines()[:1]


def test_the_free_memory_of_the_host_counts(tmp_path: Path, machine: Path) -> None:
    words = ("--train", "--bf16 true --optim adamw_torch", "--train", "ds.json")
    offload = '"stage": 3, "offload_optimizer": {"device": "cpu"}'
    (tmp_path / "ds.json").write_text(f'{{"zero_optimization": {{{offload}}}}}')
    assert "of 256.0\n" in asked(tmp_path, machine, *words).stdout
    machine.write_text(machine.read_text().replace("ram_limit", "ram_free_mib = 16384, ram_limit"))
    ran = asked(tmp_path, machine, *words)
    assert (ran.returncode, "of 16.0\n" in ran.stdout) == (1, True)
    assert "16.0 GiB available now" in ran.stdout


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("--per_device_train_batch_size $SIZE", "micro_batch_size"),
        ("--optim $OPTIMIZER", "optimizer"),
        ("--use_lora true --lora_target_modules $MODULES", "lora_targets"),
    ],
)
def test_a_value_that_only_a_shell_knows_gives_no_verdict(
    tmp_path: Path, machine: Path, argument: str, name: str
) -> None:
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 8 train.py --bf16 true {argument}\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "gradient_cliping": 1.0}')
    ran = asked(tmp_path, machine, "--train", "ds.json", "--train", "run.sh")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"Cannot say: {name} not known; with the assumptions below it takes")
    assert f"Which change would fit depends on {name}, not known" in ran.stdout
    assert "Remarks  ds.json:1:37: warning: gradient_cliping is not a" in ran.stdout
    told = json.loads(asked(tmp_path, machine, "--train", "ds.json", "--train", "run.sh", "--json").stdout)
    assert (told["unread"], [each["code"] for each in told["remarks"]]) == ([name], ["unknown-key"])
    assert {each["verdict"] for each in told["table"]} == {"cannot tell"}


def test_an_unreadable_configuration_is_reported_and_gives_no_verdict(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}')
    ran = asked(tmp_path, machine, "--train", "ds.json", "--train", "--bf16 true")
    assert ran.returncode == 2
    assert ran.stdout.startswith("Cannot say: ds.json not known")
    assert "Remarks  ds.json:1:35: error: not JSON" in ran.stdout


def test_a_gpu_of_unknown_memory_may_be_the_smallest(tmp_path: Path, machine: Path) -> None:
    machine.write_text(machine.read_text() + '[[gpu]]\nname = "Somebody\'s GPU"\n')
    ran = asked(tmp_path, machine, "--target", "zero3-lora")
    assert (ran.returncode, ran.stdout.startswith("Cannot say: the GPU's memory not known")) == (3, True)


def test_what_is_lacking_is_named_with_the_option_that_gives_it(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    words = ("--model", "config.json", "--facts", str(machine), "--gpus", "8", "--target", "zero3-lora")
    ran = run(*words, cwd=tmp_path)
    assert ran.stdout.split(";")[0].endswith("not known (give --seq N)")
    given = run(*words, "--seq", "512", cwd=tmp_path)
    assert "--seq" not in given.stdout.splitlines()[0]


def test_if_it_does_not_fit_a_change_that_does_is_named(tmp_path: Path, machine: Path) -> None:
    ran = asked(
        tmp_path, machine, "--micro-batch", "4", "--train", "precision=bf16 --optim adamw_torch_fused"
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "Does not fit: " in ran.stdout
    assert "Cheapest change that fits: " in ran.stdout
    assert "none" not in ran.stdout.partition("Cheapest change that fits: ")[2].partition("\n")[0]


def test_a_change_that_breaks_a_rule_is_not_advised(tmp_path: Path, machine: Path) -> None:
    """ZeRO-3 with frozen weights and non-reentrant checkpointing fails before DeepSpeed 0.19.3."""
    words = ("--train", "--use_lora true --bf16 true --use_reentrant false --gradient_checkpointing true")
    more = ("--micro-batch", "4", "--json")
    config = {**CONFIGS["llama-2-70b"]}
    (tmp_path / "big.json").write_text(json.dumps(config))
    common = ("--model", "big.json", "--facts", str(machine), "--gpus", "8", "--seq", "512")
    good = run(*common, *words, *more, cwd=tmp_path)
    old = machine.read_text().replace("0.19.8", "0.19.2")
    machine.write_text(old)
    bad = run(*common, *words, *more, cwd=tmp_path)
    assert json.loads(good.stdout)["cheapest"]["zero_stage"] == 3, good.stdout
    assert json.loads(bad.stdout)["cheapest"] is None
    assert json.loads(bad.stdout)["refused"] > 0


def test_json_and_text_agree(tmp_path: Path, machine: Path) -> None:
    ran = asked(tmp_path, machine, "--target", "zero3-lora", "--json")
    tree = json.loads(ran.stdout)
    assert tree["verdict"] == "fits"
    assert sum(tree["gpu"]["parts"].values()) == tree["gpu"]["total"]
    assert tree["model"]["frozen"] == 8030261248


def test_a_count_alone_is_enough_for_what_cannot_fit(tmp_path: Path, machine: Path) -> None:
    common = ("--facts", str(machine), "--gpus", "8", "--seq", "512", "--target", "zero2-lora")
    assert run("--model", "params=7.6e9", *common, cwd=tmp_path).returncode == 3
    assert run("--model", "params=7e10", *common, cwd=tmp_path).returncode == 1
    assert run("--model", "params=7e10", *common[:-1], "qlora", cwd=tmp_path).returncode == 3


def test_without_a_length_only_what_does_not_fit_is_certain(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    common = ("--model", "config.json", "--facts", str(machine))
    assert run(*common, "--gpus", "1", "--target", "qlora", cwd=tmp_path).returncode == 3
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-2-70b"]))
    assert run(*common, "--gpus", "1", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "no model_type"),
        ('{"model_type": "llama"}', "no hidden_size"),
        ('{"model_type": "brandnew"}', "is not described"),
        ("\x00\xff", "not JSON"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, machine: Path, config: str, said: str) -> None:
    (tmp_path / "config.json").write_text(config)
    ran = run("--model", ".", "--facts", str(machine), cwd=tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_fifo_or_an_empty_folder_is_one_line(tmp_path: Path, machine: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for path in (".", "config.json"):
        ran = run("--model", path, "--facts", str(machine), cwd=tmp_path)
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
        assert "found a FIFO" in ran.stderr
    (tmp_path / "empty").mkdir()
    ran = run("--model", "empty", "--facts", str(machine), cwd=tmp_path)
    assert ran.returncode == 2
    assert "no config.json" in ran.stderr


# --- what the configuration says --------------------------------------------------------------------

ZERO3: dict[str, Any] = {
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": 10**7,
        "stage3_max_live_parameters": 10**8,
        "stage3_max_reuse_distance": 10**8,
        "stage3_param_persistence_threshold": "auto",
    },
    "bf16": {"enabled": True},
}


@LAW
@given(st.sampled_from(MODELS), st.lists(TRAININGS, min_size=2, max_size=6))
def test_counting_many_is_counting_each(which: architecture.ModelShape, many: list[Training]) -> None:
    count = estimate.counter(which)
    assert [count(how) for how in many] == [estimate.estimate(which, how) for how in many]


def test_zero_sizes_come_from_the_configuration(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(ZERO3))
    own = json.loads(json.dumps(ZERO3).replace('"auto"', "50000"))
    (tmp_path / "own.json").write_text(json.dumps(own))
    (tmp_path / "bare.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    sizes = {}
    for name in ("ds", "own", "bare"):
        ran = asked(tmp_path, machine, "--train", f"{name}.json", "--json")
        assert ran.returncode in (0, 1), ran.stderr
        sizes[name] = json.loads(ran.stdout)
    # Llama 3 8B is 4096 wide: a bucket of 4096 * 4096 elements of two bytes, as the Trainer fills it in.
    assert sizes["ds"]["gpu"]["parts"]["communication buffers"] == 2 * 4096**2
    assert sizes["own"]["gpu"]["parts"]["communication buffers"] == 2 * 50_000
    assert sizes["bare"]["gpu"]["parts"]["communication buffers"] == 2 * 500_000_000
    gathered = {name: tree["gpu"]["parts"]["gathered parameters"] for name, tree in sizes.items()}
    assert gathered["own"] < gathered["bare"]
    assert any("DeepSpeed's own: reduce_bucket_size 500,000,000" in each for each in sizes["bare"]["assumed"])
    assert not any("max_reuse_distance" in each for each in sizes["ds"]["assumed"])


def test_a_launch_command_gives_the_length_and_the_adapters(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    (tmp_path / "ds.json").write_text(json.dumps(ZERO3))
    (tmp_path / "run.sh").write_text(
        "torchrun --nproc_per_node 8 finetune.py --deepspeed ds.json --per_device_train_batch_size 2 "
        "--model_max_length 2048 --use_lora true --lora_r 64 --bf16 true --output_dir o\n"
    )
    common = ("--model", "config.json", "--facts", str(machine), "--train", "run.sh", "--json")
    tree = json.loads(run(*common, cwd=tmp_path).stdout)
    assert tree["training"]["sequence_length"] == 2048
    assert tree["training"]["micro_batch_size"] == 2
    assert tree["model"]["trainable"] == 32 * 64 * (4096 + 4096 + 4096 + 1024)
    tree = json.loads(run(*common, "--seq", "64", "--lora-rank", "8", cwd=tmp_path).stdout)
    assert tree["training"]["sequence_length"] == 64
    assert tree["model"]["trainable"] == 32 * 8 * (4096 + 4096 + 4096 + 1024)


@pytest.mark.parametrize("argument", ["max_seq_length", "per_device_train_batch_size", "lora_rank"])
def test_a_malformed_count_is_a_one_line_error(tmp_path: Path, machine: Path, argument: str) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    words = f"finetune.py --use_lora true --{argument} -3 --output_dir o --learning_rate 1e-4"
    ran = run("--model", "config.json", "--facts", str(machine), "--train", words, cwd=tmp_path)
    assert ran.returncode == 2, ran.stdout
    assert len(ran.stderr.splitlines()) == 1
    assert "-3: expected a whole number" in ran.stderr


# --- the report -------------------------------------------------------------------------------------


def test_a_bare_parameter_count_leaves_the_trained_share_unknown(tmp_path: Path, machine: Path) -> None:
    common = ("--facts", str(machine), "--gpus", "8", "--seq", "512", "--target", "zero2-lora")
    ran = run("--model", "params=7.6e9", *common, cwd=tmp_path)
    assert "how many train is not known" in ran.stdout
    tree = json.loads(run("--model", "params=7.6e9", *common, "--json", cwd=tmp_path).stdout)
    assert tree["model"]["trainable"] is None
    assert "gradients" in tree["gpu"]["unknown"]


def test_the_cheapest_change_names_its_arguments(tmp_path: Path, machine: Path) -> None:
    words = ("--micro-batch", "64", "--train", "finetune.py --bf16 true --gradient_checkpointing true")
    ran = asked(tmp_path, machine, *words)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    first, second = ran.stdout.splitlines()[:2]
    assert first.startswith("Does not fit: ")
    assert second.startswith("Cheapest change that fits: ")
    tree = json.loads(asked(tmp_path, machine, *words, "--json").stdout)
    assert tree["cheapest"]["arguments"]
    for argument in tree["cheapest"]["arguments"]:
        assert f"  set {argument}\n" in ran.stdout


def test_zero_is_not_advised_without_deepspeed(tmp_path: Path, machine: Path) -> None:
    machine.write_text(machine.read_text().replace('deepspeed = "0.19.8", ', ""))
    ran = asked(tmp_path, machine, "--train", "finetune.py --bf16 true --output_dir o")
    assert "zero-without-deepspeed" in ran.stdout
    assert "set zero_optimization" not in ran.stdout


def test_the_report_is_80_columns_wide(tmp_path: Path, machine: Path) -> None:
    for words in (
        ("--target", "zero3-lora"),
        ("--micro-batch", "64"),
        ("--gpu", "A100 80GB", "--ram", "512"),
    ):
        ran = asked(tmp_path, Path(machine.name), *words)
        assert max(map(len, ran.stdout.splitlines())) <= 80, ran.stdout


def test_the_host_s_memory_may_be_declared(tmp_path: Path, machine: Path) -> None:
    zero = {**ZERO3["zero_optimization"], "offload_optimizer": {"device": "cpu"}}
    (tmp_path / "ds.json").write_text(json.dumps({**ZERO3, "zero_optimization": zero}))
    words = ("--train", "ds.json", "--gpu", "A100 80GB")
    ran = asked(tmp_path, machine, *words)
    assert (ran.returncode, "declare it with --ram" in ran.stdout) == (3, True)
    ran = asked(tmp_path, machine, *words, "--ram", "512")
    assert (ran.returncode, "512.0 GiB, as declared" in ran.stdout) == (0, True)
    assert asked(tmp_path, machine, *words, "--ram", "64").returncode == 1


def test_the_default_keeps_what_decides_and_verbose_adds_reasons_and_sources(
    tmp_path: Path, machine: Path
) -> None:
    words = ("--target", "zero3-lora", "--micro-batch", "16")
    machine = Path(machine.name)  # a short path: the report breaks no word
    usual, full = asked(tmp_path, machine, *words), asked(tmp_path, machine, *words, "--verbose")
    assert (usual.returncode, full.returncode) == (1, 1)
    assert usual.stdout.splitlines()[:3] == full.stdout.splitlines()[:3]  # the verdict and its fix
    for line in ("  logits and loss", "  tensors in all", "  ZeRO-3, all offloaded", "Host     256.0 GiB"):
        assert line in usual.stdout
        assert line in full.stdout
    assert "LoRA on q_proj, v_proj, PEFT's default (--lora-target)" in usual.stdout
    for text in (
        "DeepSpeed's own: reduce_bucket_size",
        "Sources  target zero3-lora: zero_stage 3",
        "given to fit: world_size 8, micro_batch_size 16, sequence_length 4096",
        "  optimizer states",
        "GiB of tensors on each GPU in each phase of a step",
        "formulas: read from the code of torch",
    ):
        assert text not in usual.stdout
        assert text in full.stdout
    assert "1 usual default, listed with -v" in usual.stdout
    assert "-v" not in full.stdout
    assert max(map(len, full.stdout.splitlines())) <= 80, full.stdout
    tree = asked(tmp_path, machine, *words, "--json").stdout
    assert asked(tmp_path, machine, *words, "--json", "-v").stdout == tree
    assert any("reduce_bucket_size" in each for each in json.loads(tree)["assumed"])


def test_small_parts_are_added_up_and_the_sum_of_the_parts_stays(tmp_path: Path, machine: Path) -> None:
    ran = asked(tmp_path, machine, "--target", "zero3-lora")
    parts = ran.stdout.partition("at the peak\n")[2].partition("  tensors in all")
    shown = [float(line[24:32]) for line in parts[0].splitlines()]
    assert "smaller parts             0.01  3 of them, each below 1%; -v lists them" in parts[0]
    assert sum(shown) == pytest.approx(float(parts[2].split()[0]), abs=0.05)


def test_an_assumption_about_what_is_left_out_is_never_only_counted(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA)
    words = ("--model", "config.json", "--facts", str(machine), "--target", "qlora")
    ran = run(*words, cwd=tmp_path)
    assert ran.returncode == 3
    for said in (
        "ranks: 1 (--gpus)",
        "activations and logits not counted: no --seq",
        "weights loaded in bf16, because nothing states the dtype",
    ):
        assert said in ran.stdout
    assert "range in the first line" not in run(*words, "-v", cwd=tmp_path).stdout
    for dtype, shown in (("float32", True), ("bfloat16", False)):
        (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["llama-3-8b"], "torch_dtype": dtype}))
        ran = run(*words, "--seq", "512", cwd=tmp_path)
        assert ("weights loaded in" in ran.stdout) is shown, dtype  # bf16 is also what the target trains in


def test_verbose_and_quiet_contradict_each_other(tmp_path: Path, machine: Path) -> None:
    ran = asked(tmp_path, machine, "-v", "-q")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--quiet: contradicts --verbose" in ran.stderr


def test_a_model_name_that_is_too_long_for_a_path_is_one_line() -> None:
    ran = envcheck("fit", "--gpu", "a100-80gb", "--model", "a" * 5000)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "internal error" not in ran.err
