"""Derived facts: builds, drivers, devices, defaults, requirements."""

from __future__ import annotations

from functools import lru_cache

import pytest

from envcheck.commands import loading
from envcheck.core import nvidia
from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import build_matrix
from envcheck.rules import derive
from envcheck.rules.requirements import installed_requirements
from tests.support.worlds import inventory, vocabulary


@lru_cache(maxsize=1)
def shipped() -> Matrix:
    return build_matrix(loading.source_tree(), vocabulary())


def reading(facts: str, key: str, device: int | None = None) -> Reading:
    return inventory(facts, shipped()).fact(key, device).reading


# --- torch builds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torch", "runtime"),
    [
        ("2.6.0+cu124", Known("12.4")),
        ("2.6.0+cu118", Known("11.8")),
        ("2.10.0", Known("12.8")),
        ("2.13.0", Known("13.0")),
        ("2.13.0+cpu", Absent()),
        ("2.5.1+rocm6.2", Absent()),
        ("2.6.0+cpu.cxx11.abi", Absent()),
        ("2.0.1+cu117.with.pypi.cudnn", Known("11.7")),
    ],
)
def test_cuda_runtime_follows_from_the_label_or_the_default_build(torch: str, runtime: Reading) -> None:
    assert reading(f'pkg = {{ torch = "{torch}" }}', "cuda.runtime") == runtime


@pytest.mark.parametrize(
    ("torch", "release"),
    [
        ("2.6.0a0+ecf3bae40a.nv25.01", Known("2.6.0")),
        ("2.8.0a0+git1a2b3c4", Known("2.8.0")),
        ("2.6.0+cu124", Absent()),
        ("2.6.0rc1", Absent()),
        ("2.6.0.dev20240901+cu124", Absent()),
    ],
)
def test_a_vendor_build_is_numbered_before_its_release(torch: str, release: Reading) -> None:
    assert reading(f'pkg = {{ torch = "{torch}" }}', "torch.preview_of") == release


def test_what_a_torch_that_was_not_read_is_a_preview_of_is_unknown() -> None:
    assert isinstance(reading('pkg = { transformers = "5.24.0" }', "torch.preview_of"), Unknown)


@pytest.mark.parametrize(
    ("facts", "triton", "nccl"),
    [
        ('pkg = { torch = "2.7.1+cu128" }', "3.3.1", "2.26.2"),
        ('pkg = { torch = "2.7.1", triton = "3.4.0", nvidia-nccl-cu12 = "2.27.5" }', "3.4.0", "2.27.5"),
        ('pkg = { torch = "2.7.1", triton-windows = "3.3.1.post19" }', "3.3.1.post19", "2.26.2"),
        ('pkg = { torch = "2.9.1+cu130" }', "3.5.1", None),  # it pins another NCCL than the default build
        ('pkg = { torch = "2.7.1+cpu" }', None, None),
        ('host = { os = "windows" }\npkg = { torch = "2.7.1+cu128" }', None, None),
        ('python = { manager = "conda" }\npkg = { torch = "2.7.1" }', None, None),
        ('complete = ["pkg"]\npkg = { torch = "2.7.1" }', None, None),  # an environment without them
    ],
)
def test_what_torch_loads_is_what_is_listed_or_what_its_wheel_pins(
    facts: str, triton: str | None, nccl: str | None
) -> None:
    read = inventory(facts, shipped())
    assert (read.known("triton.release"), read.known("torch.nccl")) == (triton, nccl)


@pytest.mark.parametrize(
    ("gpu", "triton", "knows"),
    [
        ("NVIDIA GB10", "3.5.1", Known(value=False)),
        ("NVIDIA GB10", "3.6.0", Known(value=True)),
        ("NVIDIA Thor", "3.6.0", Known(value=False)),
        ("NVIDIA Thor", "3.7.1", Known(value=True)),
        ("NVIDIA GeForce RTX 5090", "3.3.1", Known(value=True)),
        ("NVIDIA GeForce RTX 5090", "3.2.0", Known(value=False)),
        ("NVIDIA H200", "2.1.0", Known(value=True)),
    ],
)
def test_the_ptxas_of_triton_knows_the_gpus_of_its_cuda(gpu: str, triton: str, knows: Reading) -> None:
    facts = f'pkg = {{ triton = "{triton}" }}\n[[gpu]]\nname = "{gpu}"'
    assert reading(facts, "gpu.in_triton", 0) == knows


@pytest.mark.parametrize(
    ("gpus", "host", "arch"),
    [
        (('name = "NVIDIA Thor"',), "", Known("aarch64")),
        (('name = "Jetson AGX Orin"',), "", Known("aarch64")),
        (('compute_capability = "12.1"',), "", Known("aarch64")),
        (('name = "NVIDIA GH200 480GB"',), "", Known("aarch64")),
        (('name = "NVIDIA GH200 480GB"',), 'host = { arch = "x86_64" }\n', Known("x86_64")),
        (('name = "NVIDIA H200"',), "", None),
        (('compute_capability = "9.0"',), "", None),
        (('name = "NVIDIA GB10"', 'name = "NVIDIA H200"'), "", None),
        ((), "", None),
    ],
)
def test_a_gpu_that_comes_with_one_processor_alone_tells_which(
    gpus: tuple[str, ...], host: str, arch: Reading | None
) -> None:
    facts = host + "".join(f"[[gpu]]\n{gpu}\n" for gpu in gpus)
    found = reading(facts, "host.arch")
    assert found == arch if arch else isinstance(found, Unknown)


@pytest.mark.parametrize(
    ("torch", "gpu", "code"),
    [
        ("2.9.1+cu130", "NVIDIA Thor", None),  # nobody opened the wheels for aarch64
        ("2.9.1+cu130", "NVIDIA A100-SXM4-80GB", True),
        ("2.9.1+cu130", "Tesla V100-PCIE-16GB", False),
    ],
)
def test_what_a_wheel_has_code_for_is_read_for_the_processor_of_the_gpu(
    torch: str, gpu: str, code: bool | None
) -> None:
    found = inventory(f'pkg = {{ torch = "{torch}" }}\n[[gpu]]\nname = "{gpu}"', shipped())
    assert found.known("gpu.in_torch_build", 0) is code


@pytest.mark.parametrize(("triton", "known"), [("3.5.1", True), ("3.4.0", False)])
def test_the_ptxas_is_known_of_the_processors_whose_wheels_were_opened(triton: str, known: bool) -> None:
    facts = f'host = {{ arch = "aarch64" }}\npkg = {{ triton = "{triton}" }}\n[[gpu]]\nname = "NVIDIA B200"'
    assert isinstance(reading(facts, "gpu.in_triton", 0), Known) is known


@pytest.mark.parametrize(
    ("packages", "fits"),
    [
        ('torch = "2.7.0", torchvision = "0.22.1"', Known(value=True)),  # a patch release apart
        ('torch = "2.7.0+cu126", torchvision = "0.22.0+cu126"', Known(value=True)),
        ('torch = "2.7.0", torchvision = "0.23.0"', Known(value=False)),
        ('torch = "2.7.0", torchvision = "0.21.0"', Known(value=False)),
    ],
)
def test_torchvision_of_the_same_minor_release_fits(packages: str, fits: Reading) -> None:
    assert reading(f"pkg = {{ {packages} }}", "build.torchvision.fits") == fits


@pytest.mark.parametrize(
    ("by_conda", "fits"), [('"torch", "torchvision"', True), ('"torchvision"', False), ('"torch"', False)]
)
def test_what_conda_installed_together_was_compiled_together(by_conda: str, fits: bool) -> None:
    facts = (
        f'pkg = {{ torch = "2.10.0", torchvision = "0.26.0" }}\npackages = {{ from_conda = [{by_conda}] }}'
    )
    assert reading(facts, "build.torchvision.fits") == Known(value=fits)


@pytest.mark.parametrize(
    ("more", "wheel"),
    [
        ("", True),
        ('python = { manager = "conda" }', False),
        ('packages = { from_conda = ["numpy", "torch"] }', False),
        ('python = { manager = "conda" }\npackages = { from_conda = ["numpy"] }', True),  # pip's torch
    ],
)
def test_torch_is_no_wheel_where_conda_installed_it(more: str, *, wheel: bool) -> None:
    facts = f'pkg = {{ torch = "2.10.0" }}\n{more}'

    assert reading(facts, "torch.from_wheel") == Known(value=wheel)


def test_whether_torchvision_fits_a_torch_that_no_table_lists_is_unknown() -> None:
    facts = 'pkg = { torch = "2.99.0", torchvision = "0.22.0" }'
    assert isinstance(reading(facts, "build.torchvision.fits"), Unknown)


def test_the_build_that_torch_states_takes_precedence_over_the_table() -> None:
    facts = 'pkg = { torch = "2.10.0" }\nbuild = { torch = { cuda = "12.6" } }'
    assert reading(facts, "cuda.runtime") == Known("12.6")


@pytest.mark.parametrize(
    "torch", ["2.99.0", "2.4.0a0+07cecf4168.nv24.05", "2.9.0.dev20250804", "2.6.0+git1a2b3c4", "2.6.0+cu12.4"]
)
def test_a_build_outside_the_table_is_unknown_not_guessed(torch: str) -> None:
    assert isinstance(reading(f'pkg = {{ torch = "{torch}" }}', "cuda.runtime"), Unknown)


@pytest.mark.parametrize("host", ['os = "win32"', 'os = "darwin"', 'arch = "ppc64le"'])
def test_the_default_build_of_another_platform_is_unknown(host: str) -> None:
    # On Windows the torch of the public index is a CPU build.
    facts = f'[host]\n{host}\n[pkg]\ntorch = "2.5.1"\n'
    assert isinstance(reading(facts, "cuda.runtime"), Unknown)


@pytest.mark.parametrize(("torch", "cuda"), [("2.10.0", None), ("2.11.0", "13.0"), ("2.15.0", "13.2")])
def test_the_default_build_for_arm_has_no_cuda_before_211(torch: str, cuda: str | None) -> None:
    facts = f'[host]\nos = "linux"\narch = "aarch64"\n[pkg]\ntorch = "{torch}"\n'
    assert reading(facts, "cuda.runtime") == (Known(cuda) if cuda else Absent())
    # Its machine code was never read, so it is unknown.
    assert isinstance(reading(facts, "build.torch.architectures"), Unknown if cuda else Absent)


def test_the_newest_torch_for_a_driver_on_arm_is_one_with_cuda() -> None:
    facts = '[driver]\nversion = "550.54.15"\n[host]\nos = "linux"\narch = '
    assert reading(facts + '"x86_64"\n', "driver.torch_last") == Known("2.10.0")
    assert reading(facts + '"aarch64"\n', "driver.torch_last") == Absent()


def test_a_derived_fact_is_unknown_for_the_reason_of_its_input() -> None:
    unread = reading('[unknown]\n"pkg.torch" = "METADATA is gone"', "cuda.minimum_driver")
    assert isinstance(unread, Unknown)
    assert "METADATA is gone" in unread.why
    assert unread.asked
    not_given = reading("", "cuda.minimum_driver")
    assert isinstance(not_given, Unknown)
    assert not not_given.asked


@pytest.mark.parametrize(
    ("torch", "floor"), [("2.6.0+cu118", "450.80.02"), ("2.10.0", "525.60.13"), ("2.13.0", "580.65.06")]
)
def test_the_driver_floor_is_that_of_the_cuda_major(torch: str, floor: str) -> None:
    assert reading(f'pkg = {{ torch = "{torch}" }}', "cuda.minimum_driver") == Known(floor)


def test_the_newest_torch_a_driver_can_run() -> None:
    assert reading('driver = { version = "535.104.05" }', "driver.torch_last") == Known("2.10.0")
    assert reading('driver = { version = "580.65.06" }', "driver.torch_last") == Known("2.15.0")


# --- GPUs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80"], "8.0", True),
        (["sm_80"], "8.6", True),  # code for 8.0 runs on 8.6 …
        (["sm_86"], "8.0", False),  # … but not code for 8.6 on 8.0
        (["sm_80", "sm_86"], "9.0", False),  # and never on another major version
        (["sm_90"], "9.0", True),
        (["sm_90"], "10.0", False),
        (["sm_120"], "12.1", True),
        (["sm_100"], "12.0", False),
        (["sm_90a"], "9.0", True),  # a suffix means this capability only
        (["sm_100a"], "10.3", False),
        (["sm_80"], "8.7", False),  # Orin needs code for exactly its capability
        (["sm_87"], "8.7", True),
        ([], "8.0", False),
    ],
)
def test_machine_code_runs_on_its_minor_version_and_later_ones_of_its_major(
    architectures: list[str], capability: str, runs: bool
) -> None:
    assert nvidia.has_code(architectures, capability) is runs


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("Tesla T4", "7.5"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA H200", "9.0"),
    ],
)
def test_a_gpus_capability_follows_from_the_name_the_driver_gives(name: str, capability: str) -> None:
    assert reading(f'[[gpu]]\nname = "{name}"', "gpu.compute_capability", 0) == Known(capability)


@pytest.mark.parametrize("capability", ["", "9", "9.", ".0", "9.0.0", "-9.0", "sm_90", "abc"])
@pytest.mark.parametrize("key", ["gpu.in_torch_build", "gpu.torch_last"])
def test_a_malformed_compute_capability_leaves_facts_unknown(capability: str, key: str) -> None:
    facts = f'[pkg]\ntorch = "2.6.0"\n[[gpu]]\ncompute_capability = "{capability}"\n'
    assert isinstance(reading(facts, key, 0), Unknown)


def test_a_hidden_gpu_is_not_counted_as_visible() -> None:
    two = '[[gpu]]\nname = "NVIDIA L4"\n[[gpu]]\nname = "NVIDIA L4"\n'
    assert reading(two, "gpus.visible") == Known(2)
    assert reading(f"{two}visible = false\n", "gpus.visible") == Known(1)
    assert reading("[gpus]\ncount = 4\n", "gpus.visible") == Known(4)
    assert isinstance(reading("", "gpus.visible"), Unknown)


def test_an_unlisted_gpu_is_unknown() -> None:
    assert isinstance(reading('[[gpu]]\nname = "NVIDIA Z900"', "gpu.compute_capability", 0), Unknown)


@pytest.mark.parametrize(
    ("torch", "gpu", "runs"),
    [
        ("2.7.0", "NVIDIA GeForce RTX 5090", False),  # default cu126: no Blackwell
        ("2.7.0+cu128", "NVIDIA GeForce RTX 5090", True),
        ("2.8.0", "NVIDIA GeForce RTX 5090", True),
        ("2.10.0", "Tesla V100-SXM2-16GB", True),
        ("2.11.0", "Tesla V100-SXM2-16GB", False),  # default cu130 lost sm_70
        ("2.7.0+cu128", "Tesla V100-SXM2-16GB", False),  # and cu128 of 2.7 never had sm_70
        ("2.8.0+cu128", "Tesla V100-SXM2-16GB", True),
    ],
)
def test_whether_a_torch_build_has_code_for_a_gpu(torch: str, gpu: str, runs: bool) -> None:
    facts = f'pkg = {{ torch = "{torch}" }}\n[[gpu]]\nname = "{gpu}"'
    assert reading(facts, "gpu.in_torch_build", 0) == Known(runs)


def test_first_and_newest_torch_for_a_gpu() -> None:
    assert reading('[[gpu]]\nname = "NVIDIA GeForce RTX 5090"', "gpu.torch_first", 0) == Known("2.8.0")
    assert reading('[[gpu]]\nname = "Tesla V100-SXM2-16GB"', "gpu.torch_last", 0) == Known("2.10.0")


@pytest.mark.parametrize(
    ("facts", "examples"),
    [
        ("micro_batch_size = 2, gradient_accumulation_steps = 4, world_size = 8", Known(64)),
        (
            "micro_batch_size = 2, gradient_accumulation_steps = 4, world_size = 8, sequence_parallel = 4",
            Known(16),
        ),
        (
            "micro_batch_size = 2, gradient_accumulation_steps = 4, world_size = 8, sequence_parallel = 3",
            None,
        ),
        ("micro_batch_size = 2, gradient_accumulation_steps = 4, world_size = 8, tensor_parallel = 2", None),
        ("micro_batch_size = 2, world_size = 8", None),
    ],
)
def test_processes_that_split_a_sequence_count_its_examples_once(
    facts: str, examples: Reading | None
) -> None:
    found = reading(f"train = {{ zero_stage = 2, {facts} }}", "train.examples_per_step")
    assert found == examples if examples else isinstance(found, Unknown)


@pytest.mark.parametrize(
    ("save", "evaluate", "together"), [(400, 200, True), (500, 200, False), (200, 400, False), (500, 0, None)]
)
def test_whether_a_checkpoint_is_always_evaluated(save: int, evaluate: int, together: bool | None) -> None:
    found = reading(
        f"train = {{ save_steps = {save}, eval_steps = {evaluate} }}", "train.saves_at_evaluations"
    )
    assert isinstance(found, Unknown) if together is None else found == Known(together)


def test_ddp_looks_for_unused_parameters_in_peft_models_only() -> None:
    key, ddp = "train.ddp_find_unused_parameters", 'train = { trainer = "transformers", parallel = "ddp", '
    assert reading(ddp + 'adapter = "lora" }', key) == Known(True)
    assert isinstance(reading(ddp + 'adapter = "none" }', key), Unknown)


# --- training defaults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "use_reentrant"),
    [
        ('pkg = { transformers = "4.46.3" }', True),
        ('pkg = { transformers = "5.23.0" }', False),
        ('pkg = { transformers = "5.0.0rc1" }', None),
    ],
)
def test_the_default_checkpointing_is_that_of_the_trainer(facts: str, use_reentrant: bool | None) -> None:
    given_more = f"complete = ['pkg']\n{facts}\ntrain = {{ gradient_checkpointing = true }}"
    found = reading(given_more, "train.use_reentrant")
    if use_reentrant is None:
        assert isinstance(found, Unknown)
    else:
        assert found == Known(use_reentrant)


def test_a_given_value_is_never_replaced_by_a_default() -> None:
    facts = (
        'pkg = { transformers = "5.23.0" }\ntrain = { gradient_checkpointing = true, use_reentrant = true }'
    )
    assert reading(facts, "train.use_reentrant") == Known(value=True)


@pytest.mark.parametrize(
    ("train", "named_by_deepspeed"),
    [
        ('optimizer = "paged_adamw_8bit"', False),  # whether there is ZeRO is not known: both rows say false
        ('optimizer = "adamw_torch", zero_stage = 2', False),
        ('optimizer = "paged_adamw_8bit", deepspeed_optimizer = true', True),
        ('optimizer = "adamw_torch"', None),
    ],
)
def test_a_default_that_every_possible_row_gives_is_settled(
    train: str, named_by_deepspeed: bool | None
) -> None:
    found = reading(f"train = {{ {train} }}", "train.deepspeed_optimizer")
    if named_by_deepspeed is None:
        assert isinstance(found, Unknown)
    else:
        assert found == Known(named_by_deepspeed)


def test_an_adapter_freezes_the_base() -> None:
    assert reading('train = { adapter = "lora" }', "train.frozen_params") == Known(value=True)


def test_without_a_configuration_there_are_no_defaults() -> None:
    assert isinstance(reading('pkg = { transformers = "5.23.0" }', "train.use_reentrant"), Unknown)


@pytest.mark.parametrize(
    ("model_type", "first"),
    [
        ("qwen3", Known("4.51.0")),
        ("glm4", Known("4.51.3")),  # added in a patch release
        ("qwen2_5_vl_vision", Known("4.49.0")),  # listed since 5.6, but its code is older
        ("llama", Absent()),  # older than the oldest release that was read, so all releases have it
        ("clip_text_model", Absent()),
    ],
)
def test_the_first_transformers_of_a_model_type(model_type: str, first: Reading) -> None:
    assert reading(f'train = {{ model_type = "{model_type}" }}', "train.minimum_transformers") == first


def test_a_yanked_release_is_not_the_one_to_install() -> None:
    facts = 'train = { model_type = "qwen3_vl" }'
    assert reading(facts, "train.minimum_transformers") == Known("4.57.0")
    assert reading(facts, "train.install_transformers") == Known("4.57.1")
    assert reading('train = { model_type = "qwen3" }', "train.install_transformers") == Known("4.51.0")


def test_an_unlisted_model_type_is_unknown() -> None:
    found = reading('train = { model_type = "llava_qwen" }', "train.minimum_transformers")
    assert found == Unknown("llava_qwen is not among the model types that are known")
    unread = reading('[unknown]\n"train.model_type" = "no config.json"', "train.minimum_transformers")
    assert isinstance(unread, Unknown)
    assert "no config.json" in unread.why
    not_given = reading('train = { adapter = "lora" }', "train.minimum_transformers")
    assert isinstance(not_given, Unknown)
    assert not not_given.asked


def test_remote_code_is_off_unless_the_trainer_allows_it_by_default() -> None:
    assert reading('train = { trainer = "trl" }', "train.trust_remote_code") == Known(value=False)
    assert isinstance(reading('train = { trainer = "swift" }', "train.trust_remote_code"), Unknown)


# --- requirements -----------------------------------------------------------------------------------


def test_requirements_are_split_as_pip_does() -> None:
    facts = """
python = { version = "3.11.9" }
[pkg]
peft = { version = "0.14.0", requires = ["numpy>=1.17", "Huggingface_Hub[cli,x] (>=0.25.0,<2)", "torch",
  "tomli>=1; python_version < '3.11'", "triton==3.2.0; platform_system == \\"Linux\\" and platform_machine == \\"x86_64\\"",
  "weird @ https://example.org/x.whl", "psutil ; sys_platform!='win32'"] }
"""
    found = [(each.requires, each.specifier) for each in installed_requirements(inventory(facts))]
    assert found == [
        ("numpy", ">=1.17"), ("huggingface-hub", ">=0.25.0,<2"), ("torch", ""), ("triton", "==3.2.0"), ("psutil", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("torch", "gpu", "nearest"),
    [
        ("2.11.0", "Tesla V100-SXM2-16GB", Known("2.10.0")),
        ("2.7.0+cu126", "NVIDIA GeForce RTX 5090", Known("2.8.0")),
        ("2.99.0", "NVIDIA GeForce RTX 5090", Absent()),
    ],
)
def test_the_nearest_release_with_code_for_a_gpu(torch: str, gpu: str, nearest: Reading) -> None:
    facts = f'pkg = {{ torch = "{torch}" }}\n[[gpu]]\nname = "{gpu}"'
    assert reading(facts, "gpu.torch_nearest", 0) == nearest


@pytest.mark.parametrize(
    ("runtime", "nvrtc", "cuda"),
    [
        ("12.8.57", "12.8.61", Known("12.8")),
        ("12.6.77", "12.6.77", Known("12.6")),
        ("12.8.57", "12.6.77", Known("12.6")),  # only one was replaced
        ("12.1.105", "12.1.105", Known("12.6")),  # no torch 2.7.0 was built for it
    ],
)
def test_the_cuda_libraries_of_a_list_name_the_build_of_torch(
    runtime: str, nvrtc: str, cuda: Reading
) -> None:
    libraries = f'nvidia-cuda-runtime-cu12 = "{runtime}", nvidia-cuda-nvrtc-cu12 = "{nvrtc}"'
    assert reading(f'pkg = {{ torch = "2.7.0", {libraries} }}', "cuda.runtime") == cuda


@pytest.mark.parametrize(
    ("torch", "gpu", "has"),
    [
        ("2.7.0.dev20250310+cu124", "NVIDIA GeForce RTX 5090", Known(False)),  # its compiler ends at sm_90
        ("2.7.0.dev20250310+cu124", "NVIDIA H100 80GB HBM3", None),  # which older GPUs it serves is not known
        ("2.8.0.dev20250601+cu128", "NVIDIA GeForce RTX 5090", None),
        ("2.10.0.dev20251001+cu126", "NVIDIA B200", Known(False)),
        ("2.7.0a0+ecf3bae40a.nv25.02", "NVIDIA GeForce RTX 5090", None),  # a build of somebody else
    ],
)
def test_a_nightly_has_no_code_that_its_compiler_does_not_know(
    torch: str, gpu: str, has: Reading | None
) -> None:
    found = reading(f'pkg = {{ torch = "{torch}" }}\n[[gpu]]\nname = "{gpu}"', "gpu.in_torch_build", 0)
    assert found == has if has else isinstance(found, Unknown)


def test_cuda_compat_makes_only_an_old_driver_undecided() -> None:
    facts = 'pkg = {{ torch = "2.13.0" }}\ndriver = {{ version = "{}" }}\ncuda = {{ compat = "580.65.06" }}'
    assert isinstance(reading(facts.format("535.104.05"), "cuda.minimum_driver"), Unknown)
    assert reading(facts.format("580.95.05"), "cuda.minimum_driver") == Known("580.65.06")


@pytest.mark.parametrize(
    ("more", "floor"),
    [
        ('cuda = { driver = "12.4" }', Unknown),
        ('cuda = { driver = "11.4" }', Known),
        ("torch = { cuda_available = true }", Absent),
        ("torch = { cuda_available = false }", Known),
    ],
)
def test_a_newer_libcuda_shows_in_nvidia_smi_and_in_torch(more: str, floor: type[Reading]) -> None:
    facts = 'driver = { version = "470.239.06" }\npkg = { torch = "2.5.1+cu124" }\n' + more
    assert isinstance(reading(facts, "cuda.minimum_driver"), floor)


# --- drivers that are not numbered as Linux' are ----------------------------------------------------


@pytest.mark.parametrize(
    ("host", "speaks", "floor"),
    [
        ("wsl = true", "12.6", Absent()),
        ("wsl = true", "", Absent()),
        ('tegra = "36.4.0"', "12.6", Absent()),
        ('os = "win32"', "12.6", Absent()),
        ('os = "linux"', "11.8", Known("525.60.13")),
    ],
)
def test_driver_floors_of_linux_apply_to_linux_only(host: str, speaks: str, floor: Reading) -> None:
    cuda = f'cuda = {{ driver = "{speaks}" }}\n' if speaks else ""
    facts = f'driver = {{ version = "522.06" }}\nhost = {{ {host} }}\n{cuda}pkg = {{ torch = "2.6.0+cu124" }}'
    assert reading(facts, "cuda.minimum_driver") == floor


@pytest.mark.parametrize("speaks", ["", "11.8"])
@pytest.mark.parametrize("host", ['tegra = "36.4.0"', 'os = "win32"'])
def test_without_a_known_floor_a_driver_for_an_older_cuda_is_undecided(host: str, speaks: str) -> None:
    cuda = f'cuda = {{ driver = "{speaks}" }}\n' if speaks else ""
    facts = f'driver = {{ version = "522.06" }}\nhost = {{ {host} }}\n{cuda}pkg = {{ torch = "2.6.0+cu124" }}'
    found = reading(facts, "cuda.minimum_driver")
    assert isinstance(found, Unknown)
    assert found.asked
    assert isinstance(reading(facts, "driver.torch_last"), Unknown), "no torch is advised by Linux' numbers"


@pytest.mark.parametrize(
    ("facts", "named"),
    [('env = { BNB_CUDA_VERSION = "126" }', True), ('complete = ["env"]', False), ("", False)],
)
def test_a_library_of_bitsandbytes_is_named_only_if_the_variable_is_known(facts: str, named: bool) -> None:
    assert reading(facts, "bitsandbytes.library_named") == Known(named)


def test_a_list_that_does_not_name_unsloth_brings_none() -> None:
    assert reading('pkg = { torch = "2.9.1" }', "unsloth.release") == Absent()
    assert reading('pkg = { unsloth = "2026.8.6" }', "unsloth.release") == Known("2026.8.6")


@pytest.mark.parametrize(
    "packages", ["", '[pkg]\ntorch = "2.8.0"\ntransformers = "4.57.3"\ndeepspeed = "0.18.2"']
)
def test_facts_of_the_machine_do_not_depend_on_the_training(packages: str) -> None:
    """`matrix html` derives them once for all targets."""
    matrix = shipped()
    machine = derive.derive_machine(
        inventory(f'driver.version = "560.35.03"\ngpus.count = 1\n{packages}'), matrix
    )
    for target in matrix.targets.values():
        training = [Fact(key, Known(value), "target") for key, value in target.train.items()]
        whole = derive.derive_machine(machine.with_facts(training), matrix)
        assert whole.without(*target.train) == derive.derive_machine(machine, matrix)


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        ('pkg = { torch = "2.6.0" }', Absent()),
        ('env = { DS_SKIP_CUDA_CHECK = "1" }', Known("1")),
        ('unread = { env = "not permitted" }', Unknown("not permitted")),
    ],
)
def test_a_variable_that_is_not_given_is_taken_as_unset(facts: str, value: Reading) -> None:
    assert reading(facts, "env.DS_SKIP_CUDA_CHECK") == value


# --- what the code of a model type does -------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "key", "expected"),
    [
        ('model_type = "qwen3_moe"', "train.model_skips_experts", Known(value=True)),
        ('model_type = "llama"', "train.model_skips_experts", Known(value=False)),
        ('model_type = "qwen2_5_vl"', "train.model_conv3d", Known(value=True)),
        ('model_type = "a_type_of_its_own"', "train.model_conv3d", Known(value=False)),
    ],
)
def test_the_code_of_a_model_type_is_looked_up_by_release(facts: str, key: str, expected: Reading) -> None:
    world = f'pkg = {{ transformers = "4.57.1" }}\ntrain = {{ {facts} }}'
    assert reading(world, key) == expected


def test_without_the_release_only_what_every_release_does_is_known() -> None:
    assert reading('train = { model_type = "llama" }', "train.model_conv3d") == Known(False)
    assert reading('train = { model_type = "qwen2_5_vl" }', "train.model_conv3d") == Known(True)
    later = reading('train = { model_type = "emu3" }', "train.model_takes_loss_keywords")
    assert isinstance(later, Unknown)


# --- what making an optimizer needs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "key", "expected"),
    [
        ("paged_adamw_8bit", "train.optimizer_package", Known("bitsandbytes")),
        ("adamw_torch", "train.optimizer_package", Known("none")),
        ("one_of_its_own", "train.optimizer_package", Known("none")),
        ("paged_adamw_8bit", "train.optimizer_8bit", Known(value=True)),
        ("galore_adamw_layerwise", "train.optimizer_layerwise", Known(value=True)),
        ("stable_adamw", "train.optimizer_first", Known("4.54.0")),
        ("one_of_its_own", "train.optimizer_first", Absent()),
        ("adamw_hf", "train.optimizer_gone", Known("4.50.0")),
        ("adamw_torch", "train.optimizer_gone", Absent()),
        ("ademamix", "train.optimizer_minimum_bitsandbytes", Known("0.44.0")),
        ("ademamix", "train.optimizer_minimum_torch", Absent()),
    ],
)
def test_what_an_optimizer_needs_is_looked_up_by_its_name(
    optimizer: str, key: str, expected: Reading
) -> None:
    world = f'pkg = {{ transformers = "4.57.1" }}\ntrain = {{ optimizer = "{optimizer}" }}'
    assert reading(world, key) == expected


def test_a_least_version_is_that_of_the_release() -> None:
    world = 'pkg = {{ transformers = "{}" }}\ntrain = {{ optimizer = "ademamix" }}'
    assert reading(world.format("5.0.0"), "train.optimizer_minimum_bitsandbytes") == Absent()
    assert isinstance(
        reading('train = { optimizer = "ademamix" }', "train.optimizer_minimum_bitsandbytes"), Unknown
    )


def test_an_optimizer_that_is_not_named_needs_no_package() -> None:
    world = 'absent = ["train.optimizer"]\npkg = { transformers = "4.57.1" }\ntrain = { trainer = "trl" }'
    assert reading(world, "train.optimizer") == Absent()
    assert reading(world, "train.optimizer_package") == Known("none")  # `require` takes Absent for satisfied
    assert reading(world, "train.optimizer_first") == Absent()


def test_a_trainer_has_optimizers_of_its_own() -> None:
    world = (
        'pkg = {{ transformers = "4.57.1", axolotl = "{}" }}\n'
        'train = {{ trainer = "axolotl", optimizer = "ao_adamw_8bit" }}'
    )
    assert reading(world.format("0.12.0"), "train.optimizer_unhandled") == Known(value=True)
    assert reading(world.format("0.11.0"), "train.optimizer_unhandled") == Known(value=False)
    other = 'train = { trainer = "transformers", optimizer = "ao_adamw_8bit" }'
    assert reading(other, "train.optimizer_package") == Known("none")
    assert reading(other, "train.optimizer_unhandled") == Known(value=False)


def test_deepspeed_cannot_name_an_optimizer_of_another_package() -> None:
    world = 'train = { trainer = "transformers", parallel = "deepspeed", optimizer = "lion_8bit" }'
    assert reading(world, "train.deepspeed_optimizer") == Known(value=False)


# --- releases that were withdrawn -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        ('pkg = { wandb = "0.24.0" }', Known(("wandb 0.24.0",))),
        (
            'pkg = { numpy = "2.4.0", wandb = "0.24.1" }',
            Known(("numpy 2.4.0: Backward compatibility bug",)),
        ),
        ('pkg = { torchvision = "0.15.0+cu118" }', Absent()),
        ('pkg = { numpy = "2.4.0" }\npackages = { from_conda = ["numpy", "torch"] }', Absent()),
    ],
)
def test_a_withdrawn_release_is_told_with_the_reason(world: str, expected: Reading) -> None:
    assert reading(world, "packages.withdrawn") == expected


@pytest.mark.parametrize(
    ("world", "key", "expected"),
    [
        ('pkg = { torch = "2.9.1" }', "torch.compile_python", Known("3.14")),
        ('pkg = { torch = "2.4.0+cu121" }', "torch.compile_python", Known("3.13")),
        ('pkg = { torch = "1.13.1" }', "torch.compile_python", Absent()),
        ('python = { version = "3.12.4" }', "torch.compile_first", Known("2.4.0")),
        ('python = { version = "3.10.14" }', "torch.compile_first", Known("2.0.0")),
    ],
)
def test_which_python_torch_compiles_on_is_a_table(world: str, key: str, expected: Reading) -> None:
    assert reading(world, key) == expected


@pytest.mark.parametrize(
    ("bitsandbytes", "torch", "expected"),
    [
        ("0.40.1", "1.12.1+cu113", Known(value=True)),
        ("0.40.2", "1.12.1+cu113", Known(value=False)),
        ("0.50.1", "2.9.1+cu129", Known(value=True)),  # that of another minor version
        ("0.49.2", "2.9.1+cu129", Known(value=True)),
        ("0.46.0", "2.9.1+cu129", Known(value=False)),
        ("0.35.0", "2.9.1+cu129", Known(value=False)),
    ],
)
def test_bitsandbytes_has_a_library_for_the_cuda_of_torch(
    bitsandbytes: str, torch: str, expected: Reading
) -> None:
    world = f'pkg = {{ torch = "{torch}", bitsandbytes = "{bitsandbytes}" }}'
    assert reading(world, "bitsandbytes.has_library") == expected


@pytest.mark.parametrize("complete", ["", 'complete = ["pkg"]\n'])
def test_a_list_has_no_symbols_that_were_found(complete: str) -> None:
    facts = f'{complete}pkg = {{ vllm = "0.8.5" }}'

    assert reading(facts, "pkg.vllm.resolved") == Absent()
