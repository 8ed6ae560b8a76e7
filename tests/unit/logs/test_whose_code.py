"""A file of a project, a library or its copy is not called the user's own, nor a class another's."""

from __future__ import annotations

import pytest

from envcheck.logs.events import Frame
from envcheck.logs.own_code import own_code
from tests.support.logs import SITE, Explain, answer, cause_of, of_own_code, traceback


def test_a_folder_with_the_name_of_a_package_is_not_the_package(explained: Explain) -> None:
    said = "ImportError: cannot import name 'load_dataset' from 'datasets' ({})"
    source = "from datasets import load_dataset"

    own = answer(explained(of_own_code(said.format("/home/me/datasets/__init__.py"), source)))
    bare = answer(explained(of_own_code(said.format("unknown location"), source)))

    assert "release of datasets" not in own
    assert "it hides the package datasets" in own
    assert "a folder without __init__.py, not the package" in bare


def test_a_module_without_a_file_says_nothing_of_releases(explained: Explain) -> None:
    said = "ImportError: cannot import name '{}' from '{}' ({})"
    inside, known, built_in, with_file = (
        answer(explained(of_own_code(said.format(name, module, where), f"from {module} import {name}")))
        for name, module, where in (
            ("load_framework_extension", "transformer_engine.common", "unknown location"),
            ("BertModel", "transformers.models.bert", "unknown location"),
            ("pairwise", "itertools", "unknown location"),  # it is compiled into Python
            ("load_framework_extension", "transformer_engine.common", f"{SITE}/transformer_engine/common.py"),
        )
    )

    for found in (inside, known):
        assert "has no file, as a folder without __init__.py" in found
        assert "m.__path__" in found
        assert "release" not in found
    assert "folder" not in built_in
    assert "uninstalled" not in built_in
    assert "release of transformer-engine" in with_file


def test_a_class_of_another_package_with_the_same_name_is_not_meant(explained: Explain) -> None:
    asked = (
        f"{SITE}/trl/trainer/grpo_trainer.py",
        900,
        "_move_model_to_vllm",
        "self.vllm_client.update(name)",
    )

    found = answer(
        explained(traceback("AttributeError: 'GRPOTrainer' object has no attribute 'vllm_client'", asked))
    )

    assert "ms-swift" not in found
    assert "self.use_vllm" in found


def test_a_plain_name_may_be_that_of_a_class_of_the_users(explained: Explain) -> None:
    log = of_own_code(
        "AttributeError: 'Trainer' object has no attribute 'optimizer_step'", "self.optimizer_step()"
    )

    assert "transformers" not in answer(explained(log))


def test_a_rule_on_a_librarys_trainers_is_not_about_the_users_class(explained: Explain) -> None:
    called = (f"{SITE}/transformers/trainer.py", 2400, "train", "self.get_batch_samples(epoch, n, device)")
    said = "TypeError: {}.get_batch_samples() takes 3 positional arguments but 4 were given"

    own, of_trl = (
        answer(explained(traceback(said.format(name), called))) for name in ("MyTrainer", "DPOTrainer")
    )

    assert "trl-lt012" not in own
    assert "trl-lt012" in of_trl


def test_a_loop_that_the_traceback_does_not_show_is_only_possible(explained: Explain) -> None:
    said = "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2"
    raised = (
        f"{SITE}/deepspeed/runtime/engine.py",
        2000,
        "no_sync",
        "assert not self.partitions_gradients()",
    )
    loop = (f"{SITE}/transformers/trainer.py", 2500, "_inner_training_loop", "with context():")

    by_own = answer(
        explained(traceback(said, ("/home/me/train.py", 9, "main", "with engine.no_sync():"), raised))
    )
    by_trainer = answer(explained(traceback(said, loop, raised)))

    assert "Possible problem" in by_own.splitlines()[0]
    assert by_trainer.startswith("Known failure")


def test_a_path_without_its_beginning_is_still_one_of_the_library(explained: Explain) -> None:
    raised = (
        ".../transformers/integrations/flash_attention.py",
        84,
        "flash_attention_forward",
        "s_aux=s_aux.to(query.dtype),",
    )

    found = explained(traceback("AttributeError: 'NoneType' object has no attribute 'to'", raised))

    assert "script or project" not in answer(found)


def test_a_checkout_that_lacks_a_file_of_its_own_is_not_the_users_code(explained: Explain) -> None:
    raised = (
        r"F:\mergekit9\mergekit\mergekit\moe\mixtral.py",
        12,
        "<module>",
        "from mergekit.architecture.mixtral import MISTRAL_INFO",
    )

    found = explained(
        traceback("ModuleNotFoundError: No module named 'mergekit.architecture.mixtral'", raised)
    )

    assert "mixtral.py imports" not in answer(found)
    assert "this checkout of mergekit lacks a file of its own" in answer(found)


def test_a_path_inside_an_unknown_package_may_be_a_folder_of_the_project(explained: Explain) -> None:
    found = explained("ModuleNotFoundError: No module named 'ddpo_thing.diffusers_patch.train_dreambooth'\n")

    assert "this release of" not in answer(found)
    assert "a folder of the project, its checkout lacks the file" in answer(found)


def test_a_path_that_is_cut_to_the_package_is_the_packages(explained: Explain) -> None:
    asked = ("verl/models/transformers/qwen2_vl.py", 29, "<module>", "from peft import BoneConfig")
    found = answer(explained(traceback("ImportError: cannot import name 'BoneConfig' from 'peft'", asked)))

    assert "verl asks for BoneConfig of peft" in found
    assert "qwen2_vl.py asks for" not in found


def test_an_assertion_on_the_host_blames_no_index_and_no_user(explained: Explain) -> None:
    host = explained(
        "python: /opt/cache/torch_extensions/py310_cu121/async_io/deepspeed_aio_common.cpp:128: int "
        "_do_io_complete(long long int): Assertion `n_completes >= min_completes' failed.\n"
    )
    kernel = explained(
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
        "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
    )

    assert cause_of(host).kind == "crash"
    assert "index" not in answer(host)
    assert cause_of(kernel).kind == "data"


def test_a_model_of_a_project_is_not_derived_from_the_one_it_is_named_after(explained: Explain) -> None:
    told = answer(
        explained(
            traceback(
                "AttributeError: 'TinyLlavaForConditionalGeneration' object has no attribute 'peft_config'",
                ("/home/me/tinyllava/lora_recipe.py", 46, "converse", "if model.peft_config is None:"),
                (f"{SITE}/torch/nn/modules/module.py", 1614, "__getattr__", "raise AttributeError("),
            )
        )
    )

    assert "has it" not in told
    assert "install a release" not in told


@pytest.mark.parametrize(
    ("imported", "asks"),
    [
        ("from rllm.trainer.verl.sft_dataset import Data", "rllm/trainer/verl/sft_dataset.py asks for"),
        ("data = load()", "sft_dataset.py asks for"),
    ],
)
def test_a_module_of_a_project_is_not_called_the_users_own_code(
    explained: Explain, imported: str, asks: str
) -> None:
    frames = [
        ("/home/me/rllm/train_sft.py", 33, "train", imported),
        ("/home/me/rllm/rllm/trainer/verl/sft_dataset.py", 5, "<module>", "from verl.utils.parser import P"),
    ]

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'verl.utils.parser'", *frames)))

    assert f"{asks} the module verl.utils.parser, which no release of verl" in found
    assert ("rllm/trainer" in found.splitlines()[0]) is (asks != "sft_dataset.py asks for")


@pytest.mark.parametrize(
    ("started", "own"),
    [
        (("<frozen runpy>", 88, "_run_code", "exec(code)"), False),
        (("/home/me/x/run.py", 8, "main", "go()"), True),
    ],
)
def test_a_program_that_was_started_as_a_module_is_not_called_the_users_own(
    explained: Explain, started: tuple[str, int, str, str], *, own: bool
) -> None:
    frames = [
        started,
        ("/home/me/mlx-vlm/mlx_vlm/lora.py", 178, "<module>", "main(args)"),
        (
            "/home/me/mlx-vlm/mlx_vlm/trainer/trainer.py",
            89,
            "__getitem__",
            'self.config["image_token_index"]',
        ),
    ]

    found = explained(traceback("KeyError: 'image_token_index'", *frames))

    assert (cause_of(found).kind == "code") is own
    assert ("the script or project that was run" in answer(found)) is own


def test_code_of_a_models_repository_is_not_the_users_own(explained: Explain) -> None:
    place = (
        "transformers_modules/InternVL2-8B/configuration.py",
        51,
        "__init__",
        "x = config['architectures'][0]",
    )

    found = explained(traceback("KeyError: 'architectures'", place))

    assert cause_of(found).kind != "code"
    assert "script" not in answer(found)


def test_a_folder_beside_a_script_with_any_name_hides_the_package(explained: Explain) -> None:
    asked = (f"{SITE}/transformers/trainer.py", 259, "_is_peft_model", "from peft import PeftMixedModel")
    said = "ImportError: cannot import name 'PeftMixedModel' from 'peft' ({}/peft/__init__.py)"
    script = ("/srv/HydraLoRA/fine-tuning.py", 550, "<module>", "main()")

    hidden = answer(explained(traceback(said.format("/srv/HydraLoRA"), script, asked)))
    installed = answer(explained(traceback(said.format(SITE), script, asked)))

    assert "which the imported /srv/HydraLoRA/peft/__init__.py does not have" in hidden
    assert "it hides the package peft: rename it" in hidden
    assert "hides the package" not in installed


def test_a_path_that_begins_with_a_librarys_folder_is_of_the_library() -> None:
    assert not own_code(Frame("openrlhf/trainer/ray/vllm_engine.py", 58, "__init__"))
    assert own_code(Frame("datasets/loaders/coco.py", 3, "read"))
    assert own_code(Frame("peft.py", 3, "read"))
