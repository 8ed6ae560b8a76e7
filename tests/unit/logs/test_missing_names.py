"""What is said of names and modules that are missing, and of who asks for them."""

from __future__ import annotations

import pytest

from envcheck.reports.explanation import UNEXPLAINED
from tests.support.logs import SITE, Explain, answer, cause_of, of_own_code, traceback

ASKED_BY = """\
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/{package}/__init__.py", line 3, in <module>
    from {package} import {module}
  File "/env/lib/python3.11/site-packages/{package}/{module}.py", line 13, in <module>
    from huggingface_hub import HfFolder, whoami
ImportError: cannot import name 'HfFolder' from 'huggingface_hub' (/env/lib/python3.11/site-packages/huggingface_hub/__init__.py)
"""


def test_a_module_that_no_release_has_is_not_one_of_other_releases(explained: Explain) -> None:
    log = of_own_code(
        "ModuleNotFoundError: No module named 'trl.trainer.foo'", "from trl.trainer.foo import X"
    )

    found = explained(log)

    assert found.code == UNEXPLAINED
    assert "has it" not in answer(found)


def test_a_release_that_has_a_name_is_not_blamed_for_its_absence(explained: Explain) -> None:
    name = "Qwen2VLForConditionalGeneration"
    log = of_own_code(
        f"ImportError: cannot import name '{name}' from 'transformers' ({SITE}/transformers/__init__.py)",
        f"from transformers import {name}",
    )

    has, lacks = (answer(explained(log, transformers=version)) for version in ("4.57.1", "4.40.0"))

    assert "another release of it is imported" in has.splitlines()[0]
    assert "4.40.0 does not have" in lacks.splitlines()[0]


def test_the_command_of_a_package_is_not_of_another_release_than_its_modules(explained: Explain) -> None:
    script = ("/opt/miniconda3/envs/py3.11/bin/axolotl", 5, "<module>", "from axolotl.cli.main import main")

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'axolotl.cli'", script)))

    assert "release of axolotl" not in found
    assert "a folder axolotl" in found


def test_a_name_that_every_accepted_release_has_is_not_one_of_releases(explained: Explain) -> None:
    asked = (f"{SITE}/vllm/config.py", 18, "<module>", "from transformers import GenerationConfig")
    said = f"ImportError: cannot import name 'GenerationConfig' from 'transformers' ({SITE}/transformers/__init__.py)"

    found = explained(traceback(said, asked))

    assert found.code == UNEXPLAINED
    assert "imported in part only" in answer(found).splitlines()[0]


def test_a_namespace_package_is_not_the_package_whose_name_it_begins_with(explained: Explain) -> None:
    found = answer(explained("ImportError: cannot import name 'NeuronTrainer' from 'optimum.neuron'\n"))

    assert "this release of optimum-neuron does not have NeuronTrainer" in found


def test_releases_below_a_guarded_import_are_not_said_to_have_the_name(explained: Explain) -> None:
    found = answer(explained("ImportError: cannot import name 'is_mlu_available' from 'accelerate.utils'\n"))

    assert "accelerate from 0.29.0 on" in found
    assert "0.20.3" not in found


def test_releases_that_have_a_module_are_not_said_to_have_a_name_of_it(explained: Explain) -> None:
    module = "transformers.models.granitemoe.modeling_granitemoe"

    found = answer(
        explained(f"ImportError: cannot import name 'GraniteMoeParallelExperts' from '{module}'\n")
    )

    assert "in transformers 4.45.0 to 5.12.1" in found  # 5.13 and newer have the module, and not the class
    assert "from 4.45.0 on" not in found


def test_a_removed_name_is_not_looked_for_in_the_newest_release(explained: Explain) -> None:
    found = explained("AttributeError: module 'vllm.engine.arg_utils' has no attribute 'OLD_ARGUMENTS'\n")

    assert "an older one if it was removed" in answer(found)
    assert "mostly the newest" not in answer(found)


def test_trl_is_not_named_where_a_name_of_vllm_is_asked_for_by_another(explained: Explain) -> None:
    said = "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'"
    of_trl = (f"{SITE}/trl/trainer/grpo_trainer.py", 95, "<module>", "from vllm.sampling_params import x")

    bare = answer(explained(f"{said}\n"))
    shown = answer(explained(traceback(said, of_trl)))

    assert "GRPO of TRL" not in bare.splitlines()[0]
    assert "has it  vllm.sampling_params.GuidedDecodingParams" in bare
    assert "GRPO of TRL" in shown.splitlines()[0]


def test_a_name_that_no_release_has_is_not_one_of_releases(explained: Explain) -> None:
    found = explained("ImportError: cannot import name 'LoraConfigs' from 'peft'\n")

    assert found.code == UNEXPLAINED
    assert answer(found).startswith("Failed: no release of peft (0.0.1 to ")
    assert "or the name is misspelt" in answer(found)


def test_a_name_that_every_release_has_points_at_what_is_imported(explained: Explain) -> None:
    found = explained("ImportError: cannot import name 'LoraConfig' from 'peft'\n")

    assert "Failed: every release of peft has LoraConfig of peft" in answer(found)
    assert "in a release that has it" not in answer(found)


def test_a_name_that_moved_is_said_to_be_elsewhere(explained: Explain) -> None:
    found = answer(
        explained("ImportError: cannot import name 'process_image' from 'verl.utils.dataset.rl_dataset'\n")
    )

    assert "is in   verl.utils.dataset.vision_utils.process_image (in verl from 0.4.0 on)" in found
    assert "or import it from where it is" in found


def test_a_module_of_every_release_has_to_be_imported_before_it_is_an_attribute(explained: Explain) -> None:
    asked = (f"{SITE}/somewhere/patch.py", 18, "<module>", "peft.tuners.lora")
    found = answer(explained(traceback("AttributeError: module peft.tuners has no attribute lora", asked)))

    assert "which was not imported before somewhere read it" in found
    assert "the line `import peft.tuners.lora` has to run before" in found


def test_what_others_ask_of_a_module_is_not_said_to_be_it(explained: Explain) -> None:
    found = answer(explained("ModuleNotFoundError: No module named 'trl.trainer'\n"))

    assert "has it  trl.trainer: in trl from 0.2.0 on" in found
    assert "ORPOTrainer" not in found


def test_rules_on_a_name_that_every_release_has_are_not_listed(explained: Explain) -> None:
    told = answer(
        explained(
            traceback(
                "ImportError: cannot import name 'Trainer' from 'transformers' "
                f"({SITE}/transformers/__init__.py)",
                ("/home/me/train.py", 20, "<module>", "from transformers import ("),
            )
        )
    )

    assert "which every release of transformers from 4.30.0 on has" in told
    assert "    rule  " not in told
    assert 'python -c "from transformers import Trainer"' in told


def test_a_package_that_is_imported_lazily_is_not_said_to_ask_what_another_asks(explained: Explain) -> None:
    found = explained(
        "RuntimeError: Failed to import diffusers.loaders.lora_pipeline because of the following error (look up to "
        "see its traceback):\nmodule 'torch' has no attribute 'int1'\n"
    )

    assert "diffusers asks" not in answer(found)
    assert "asked for by torchao" in answer(found)


def test_a_name_that_a_module_offers_in_some_cases_is_no_broken_installation(explained: Explain) -> None:
    name = "DDPOStableDiffusionPipeline"
    place = (f"{SITE}/trl/trainer/alignprop_trainer.py", 28, "<module>", f"from ..models import {name}")
    message = f"ImportError: cannot import name '{name}' from 'trl.models' ({SITE}/trl/models/__init__.py)"

    said = answer(explained(traceback(message, place)))

    assert "only if an optional package can be imported" in said
    assert "uninstall" not in said


def test_a_name_in_other_letters_is_told_as_the_package_spells_it(explained: Explain) -> None:
    found = explained("AttributeError: module transformers has no attribute LLaMATokenizer\n")

    assert "transformers spells it LlamaTokenizer" in answer(found)
    assert "fork" not in answer(found)


def test_a_module_of_an_object_that_is_read_is_not_a_package_to_install(explained: Explain) -> None:
    load = ("D:\\e\\Lib\\site-packages\\dill\\_dill.py", 452, "load", "obj = StockUnpickler.load(self)")
    asked = (f"{SITE}/datasets/utils/tf_utils.py", 12, "<module>", "import tensorflow")

    read = answer(explained(traceback("ModuleNotFoundError: No module named 'UnslothSFTTrainer'", load)))
    imported = answer(explained(traceback("ModuleNotFoundError: No module named 'tensorflow'", load, asked)))

    assert read.startswith(
        "Failed: an object of the module UnslothSFTTrainer is read, and this process cannot"
    )
    assert "unslothsfttrainer" not in read
    assert "num_proc=None" in read
    assert imported.startswith("Failed: datasets imports tensorflow, which is not installed")


def test_a_module_that_no_known_package_has_gives_no_package_a_name(explained: Explain) -> None:
    asked = ("/srv/run.py", 3, "<module>", "import MyTools")
    known = ("/srv/run.py", 3, "<module>", "import PIL")

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'MyTools'", asked)))

    assert found.startswith(
        "Failed: run.py imports MyTools, if it is not a file of yours, which is not installed"
    )
    assert "PIL, of the package pillow" in answer(
        explained(traceback("ModuleNotFoundError: No module named 'PIL'", known))
    )


def test_a_rule_on_another_package_that_asks_for_the_name_is_beside_the_point(explained: Explain) -> None:
    of_datasets = explained(ASKED_BY.format(package="datasets", module="load"))
    assert [match.signature.rule for match in of_datasets.diagnosis.matches] == [
        "datasets-lt216-huggingface-hub1"
    ]
    of_gradio = explained(ASKED_BY.format(package="gradio", module="oauth"))
    assert of_gradio.diagnosis.matches == ()
    assert of_gradio.missing is not None
    assert of_gradio.missing.missing.asks == "gradio"
    assert "gradio-lt58-huggingface-hub1" in {rule.id for rule in of_gradio.missing.rules}


def test_a_compiler_that_quotes_an_error_does_not_ask_for_the_name(explained: Explain) -> None:
    frame = (
        f"{SITE}/triton/compiler/compiler.py",
        113,
        "ast_to_ttir",
        "raise CompilationError(fn.src, node, repr(e))",
    )
    said = "module 'triton.language' has no attribute 'cast'"

    quoted = answer(
        explained(
            traceback(f'triton.compiler.errors.CompilationError: at 39:14: AttributeError("{said}")', frame)
        )
    )
    raised = answer(explained(traceback(f"AttributeError: {said}", frame)))

    assert "this release of triton does not have cast of triton.language" in quoted
    assert "install triton in a release that has it" in quoted
    assert "triton asks for cast" in raised


@pytest.mark.parametrize(
    "launcher",
    [
        "01/16 23:31:36 - {} - WARNING - Use random port: 21558\n",
        "INFO:{}.dist:Use random port: 21558\n",
        "[2026-01-16 23:31:36,123][{}.dist][INFO] - Use random port: 21558\n",
        "2026-01-16 23:31:36.123 | INFO     | {}.dist:main:33 - Use random port: 21558\n",
        "[2026-01-16 23:31:36,123] [INFO] [{}.dist:33] Use random port: 21558\n",
    ],
)
def test_a_package_that_wrote_lines_of_the_log_is_missing_in_another_python(
    explained: Explain, launcher: str
) -> None:
    failed = traceback(
        "ModuleNotFoundError: No module named 'mmengine'",
        ("/srv/code/xtuner/xtuner/tools/train.py", 10, "<module>", "from mmengine.config import Config"),
    )

    found = explained(launcher.format("mmengine") + failed)
    absent = explained(launcher.format("mmengine_of_ours") + failed)

    assert "mmengine wrote lines of this log, and the Python that ran finds no mmengine" in answer(found)
    assert "print sys.executable in the run" in answer(found)
    assert cause_of(found).kind == "open"
    assert "mmengine, which is not installed" in answer(absent)


def test_a_release_of_an_unknown_package_may_lack_a_file_of_its_own(explained: Explain) -> None:
    def asked(package: str) -> str:
        frame = (
            f"{SITE}/{package}/model/sft.py",
            16,
            "<module>",
            f"from {package}.parallel.sequence import split",
        )
        return answer(
            explained(traceback(f"ModuleNotFoundError: No module named '{package}.parallel'", frame))
        )

    assert "this one may have been published without the file" in asked("xtuner")
    assert "published without" not in asked("peft")  # whose releases were read


def test_the_copies_that_a_package_makes_of_anothers_code_are_its_own(explained: Explain) -> None:
    said = "ImportError: cannot import name 'BaseTrainer' from 'trl.trainer.alignprop_trainer'"
    line = "from trl.trainer.alignprop_trainer import BaseTrainer"

    copied = answer(
        explained(traceback(said, ("/home/me/unsloth_compiled_cache/UnslothTrainer.py", 5, "<module>", line)))
    )
    own = answer(explained(traceback(said, ("/home/me/cache/UnslothTrainer.py", 5, "<module>", line))))

    assert "unsloth asks for BaseTrainer of trl.trainer.alignprop_trainer" in copied
    assert "unsloth asks" not in own


def test_a_source_tree_that_hides_the_installed_package_is_named(explained: Explain) -> None:
    def imported_from(folder: str) -> str:
        file = f"{folder}/vllm/__init__.py"
        said = (
            "ImportError: cannot import name 'activation_ops' from partially initialized module 'vllm' "
            f"(most likely due to a circular import) ({file})"
        )
        frame = (f"{folder}/vllm/activation.py", 7, "<module>", "from vllm import activation_ops")
        return answer(explained(traceback(said, frame)))

    tree = imported_from("/data/vllm-main")

    assert tree.startswith("Failed: vllm is imported from the folder /data/vllm-main, not as an installed")
    assert "Start from another folder" in tree
    assert "not as an installed package" not in imported_from(SITE)


def test_the_names_of_sglang_say_which_releases_have_one(explained: Explain) -> None:
    where = f"({SITE}/sglang/utils.py)"

    def said(name: str) -> str:
        return answer(explained(f"ImportError: cannot import name '{name}' from 'sglang.utils' {where}\n"))

    assert "has it  sglang.utils.launch_server_cmd: in sglang from 0.4.3.post1 on" in said(
        "launch_server_cmd"
    )
    assert "from 0.4.3.post1 on" not in said("launch_server_commands")


def test_a_name_that_all_read_releases_have_may_be_missing_in_an_older_one(explained: Explain) -> None:
    said = "AttributeError: module 'torch' has no attribute 'autocast'\n"

    old, stated = answer(explained(said)), answer(explained(said, torch="2.6.0"))

    assert "every release of torch from 1.13.0 on has" in old.splitlines()[0]
    assert "or one older than 1.13.0 runs" in old.splitlines()[0]
    assert "if torch is older than 1.13.0 here, upgrade it" in old
    assert "older" not in stated
