"""Programs are followed into their own modules, with the values that are known, and never run."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import loading, training_files
from envcheck.core.errors import InputError
from envcheck.training_config.programs.follow import follow
from envcheck.training_config.readers import _program_source


def facts_of(folder: Path, name: str, files: dict[str, str]) -> dict[str, Any]:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with contextlib.chdir(folder):
        read = training_files.configured([name], loading.knowledge().tables.get("argument", []), {})
    return {fact.key.removeprefix("train."): fact.value for fact in read.facts if fact.value is not None}


def test_a_subcommand_is_not_a_module_of_the_same_name(tmp_path: Path) -> None:
    own = (
        "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('o')).train()\n"
    )
    files = {"train.py": own, "run.sh": "llamafactory-cli train --stage sft --finetuning_type lora\n"}
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["trainer"], found["adapter"]) == ("llamafactory", "lora")


BUILD = """
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def build(name, bits=16, rank=0, checkpoint=True):
    kwargs = {"torch_dtype": torch.bfloat16}
    if bits == 4:
        kwargs["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(name, **kwargs)
    if bits == 4:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpoint)
    if rank <= 0:
        return model
    return get_peft_model(model, LoraConfig(r=rank))
"""
MAIN = """
import argparse
from transformers import Trainer, TrainingArguments
from mypackage.models import build

parser = argparse.ArgumentParser()
parser.add_argument("--bits", type=int, default=16)
parser.add_argument("--lora-rank", type=int, default=0)
parser.add_argument("--no_bf16", dest="bf16", action="store_false")
parser.set_defaults(bf16=True)
args = parser.parse_args()
model = build("gpt2", bits=args.bits, rank=args.lora_rank)
Trainer(model=model, args=TrainingArguments("out", bf16=args.bf16)).train()
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "",
            {"adapter": "none", "quantization": "none", "precision": "bf16", "gradient_checkpointing": False},
        ),
        (
            "--bits 4 --lora-rank 8",
            {"adapter": "lora", "quantization": "nf4", "precision": "bf16", "gradient_checkpointing": True},
        ),
        ("--no_bf16", {"adapter": "none", "quantization": "none"}),
    ],
)
def test_a_call_in_the_projects_own_module_is_read_with_its_arguments(
    tmp_path: Path, arguments: str, expected: dict[str, Any]
) -> None:
    files = {
        "run.sh": f"python train.py {arguments}\n",
        "train.py": MAIN,
        "mypackage/models.py": BUILD,
    }
    facts = facts_of(tmp_path, "run.sh", files)
    assert {key: facts.get(key) for key in expected} == expected


def test_a_python_file_is_followed_too(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "train.py", {"train.py": MAIN, "mypackage/models.py": BUILD})
    assert (facts["adapter"], facts["trainer"], facts["precision"]) == ("none", "transformers", "bf16")


def test_a_configuration_that_the_program_opens_decides_its_values(tmp_path: Path) -> None:
    program = """
import yaml
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

with open("config.yaml") as file:
    config = yaml.safe_load(file)
model = AutoModelForCausalLM.from_pretrained(config["model"], attn_implementation=config.get("attention", "eager"))
lora = LoraConfig(**config["lora"]) if config.get("lora") else None
SFTTrainer(model, args=SFTConfig(bf16=config["bf16"]), peft_config=lora).train()
"""
    with_lora = "model: gpt2\nattention: sdpa\nbf16: true\nlora:\n  r: 4\n"
    facts = facts_of(tmp_path, "train.py", {"train.py": program, "config.yaml": with_lora})
    assert (facts["adapter"], facts["lora_rank"], facts["attention"], facts["precision"]) == (
        "lora",
        4,
        "sdpa",
        "bf16",
    )


def test_hydra_composes_groups_and_overrides(tmp_path: Path) -> None:
    program = """
import hydra
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

@hydra.main(config_path="conf", config_name="main")
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    if cfg.adapter.use:
        model = get_peft_model(model, LoraConfig(r=cfg.adapter.r))
    Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=cfg.checkpoint)).train()

main()
"""
    files = {
        "run.sh": "python train.py adapter=small adapter.r=32\n",
        "train.py": program,
        "conf/main.yaml": "defaults:\n  - model: gpt\n  - adapter: none\n  - _self_\ncheckpoint: true\n",
        "conf/model/gpt.yaml": "name: gpt2\n",
        "conf/adapter/none.yaml": "use: false\nr: 0\n",
        "conf/adapter/small.yaml": "use: true\nr: 8\n",
    }
    facts = facts_of(tmp_path, "run.sh", files)
    assert (facts["adapter"], facts["lora_rank"], facts["gradient_checkpointing"]) == ("lora", 32, True)


UNDECIDED = """
import os
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
if os.environ.get("LORA"):
    model = get_peft_model(model, LoraConfig(r=8))
Trainer(model=model, args=TrainingArguments("out")).train()
"""


def test_what_only_the_environment_decides_stays_unknown(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py\n", "train.py": UNDECIDED}
    assert "adapter" not in facts_of(tmp_path, "run.sh", files)


def test_a_condition_of_the_training_itself_does_not_make_its_settings_unknown(tmp_path: Path) -> None:
    body = (
        UNDECIDED.split("model = Auto", maxsplit=1)[0]
        + "def main():\n    if not os.path.exists('data'):\n        return\n"
    )
    lines = [line for line in UNDECIDED.splitlines() if line.startswith(("model", "    model", "Trainer"))]
    body += "".join(f"    {line.strip()}\n" for line in lines) + "\nmain()\n"
    facts = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py\n", "train.py": body})
    assert facts["adapter"] == "lora"


def test_what_comes_after_the_training_does_not_configure_it(tmp_path: Path) -> None:
    after = "\nfrom transformers import BitsAndBytesConfig\nAutoModelForCausalLM.from_pretrained('out', quantization_config=BitsAndBytesConfig(load_in_8bit=True))\n"
    text = MAIN.replace("from mypackage.models import build", "from models import build")
    text = "from transformers import AutoModelForCausalLM" + text + after
    facts = facts_of(
        tmp_path, "run.sh", {"run.sh": "python train.py\n", "train.py": text, "models.py": BUILD}
    )
    assert facts["quantization"] == "none"


def test_a_model_from_a_table_that_other_modules_fill_stays_unknown(tmp_path: Path) -> None:
    files = {
        "run.sh": "python train.py\n",
        "train.py": "from registry import MODELS\nfrom transformers import Trainer\nTrainer(MODELS['a'](), None).train()\n",
        "registry.py": "MODELS = {}\nimport lora\n",
        "lora.py": "from registry import MODELS\nfrom peft import LoraConfig\nMODELS['a'] = lambda: LoraConfig()\n",
    }
    assert "adapter" not in facts_of(tmp_path, "run.sh", files)


def test_the_trainer_counts_not_the_class_of_its_arguments(tmp_path: Path) -> None:
    program = """
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTTrainer
model = AutoModelForCausalLM.from_pretrained("gpt2")
SFTTrainer(model, args=TrainingArguments("out")).train()
"""
    assert facts_of(tmp_path, "train.py", {"train.py": program})["trainer"] == "trl"


LOADS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
MODEL = "model = AutoModelForCausalLM.from_pretrained('gpt2')\n"
ARGS = "args = TrainingArguments('o', gradient_checkpointing=True)\n"
CHECKPOINTS = "if args.gradient_checkpointing:\n    model.gradient_checkpointing_enable()\n"
TRAINS = "Trainer(model, args=TrainingArguments('out', bf16=True)).train()\n"


@pytest.mark.parametrize(
    ("body", "key", "expected"),
    [
        # Freezing the reference model leaves the trained one as it is; `p` alone does not say whose it is.
        (
            "ref_model = load()\nfor p in ref_model.parameters():\n    p.requires_grad_(False)\n",
            "frozen_params",
            False,
        ),
        (
            "ref_model = load()\nfor p in ref_model.parameters():\n    p.requires_grad = False\n",
            "frozen_params",
            False,
        ),
        ("for p in model.parameters():\n    p.requires_grad_(False)\n", "frozen_params", True),
        ("for p in model.prefix.parameters():\n    p.requires_grad = False\n", "frozen_params", True),
        # An adapter's configuration that nothing uses trains no adapter.
        ("from peft import LoraConfig\nconfig = LoraConfig(r=8)\n", "adapter", "none"),
        # The arguments that a call was given are its object's attributes, until they are set again.
        (
            f"{ARGS}{CHECKPOINTS}",
            "gradient_checkpointing",
            True,
        ),
        (
            f"{ARGS}args.gradient_checkpointing = False\n{CHECKPOINTS}",
            "gradient_checkpointing",
            False,
        ),
        # Every model of transformers has these methods.
        (
            "if hasattr(model, 'gradient_checkpointing_enable'):\n    model.gradient_checkpointing_enable()\n",
            "gradient_checkpointing",
            True,
        ),
        # Whichever function of the table runs, none of them trains an adapter.
        (
            "import sys\nTABLE = {'a': lambda: 1, 'b': lambda: 2}\nTABLE[sys.argv[9]]()\n",
            "adapter",
            "none",
        ),
    ],
)
def test_code_around_a_training_is_understood(tmp_path: Path, body: str, key: str, expected: object) -> None:
    load = "def load():\n    return AutoModelForCausalLM.from_pretrained('gpt2')\n"
    files = {"train.py": f"{LOADS}{load}{MODEL}{body}{TRAINS}", "run.sh": "python train.py\n"}
    assert facts_of(tmp_path, "run.sh", files)[key] == expected


@pytest.mark.parametrize("ending", ["main()", "raise SystemExit(main())", "import sys\nsys.exit(main())"])
def test_a_program_is_followed_however_it_is_started(tmp_path: Path, ending: str) -> None:
    program = f"{LOADS}def main():\n    {MODEL}    {TRAINS}{ending}\n"
    found = facts_of(tmp_path, "run.sh", {"train.py": program, "run.sh": "python train.py\n"})
    assert (found["adapter"], found["precision"]) == ("none", "bf16")


def test_a_table_with_an_adapter_in_one_entry_leaves_it_open(tmp_path: Path) -> None:
    body = (
        "import sys\nfrom peft import LoraConfig, get_peft_model\n"
        "TABLE = {'a': lambda m: m, 'b': lambda m: get_peft_model(m, LoraConfig(r=8))}\n"
        "model = TABLE[sys.argv[9]](model)\n"
    )
    files = {"train.py": f"{LOADS}{MODEL}{body}{TRAINS}", "run.sh": "python train.py\n"}
    found = facts_of(tmp_path, "run.sh", files)
    assert "adapter" not in found
    assert "frozen_params" not in found


CHOOSES = """
import os
if os.environ["KIND"] == "a":
    from a import build
else:
    from b import build
model = build()
"""


@pytest.mark.parametrize(("second", "expected"), [("", "none"), ("adds", None)])
def test_both_of_two_imports_are_followed(tmp_path: Path, second: str, expected: str | None) -> None:
    build = "from transformers import AutoModelForCausalLM\ndef build():\n    return AutoModelForCausalLM.from_pretrained('x')\n"
    adds = build.replace("return ", "model = ") + (
        "    from peft import LoraConfig, get_peft_model\n    return get_peft_model(model, LoraConfig(r=8))\n"
    )
    files = {"train.py": LOADS + CHOOSES + TRAINS, "a.py": build, "b.py": adds if second else build}
    found = facts_of(tmp_path, "run.sh", {**files, "run.sh": "python train.py\n"})
    assert found.get("adapter") == expected


def test_options_set_on_configuration_classes_in_a_loop_are_known(tmp_path: Path) -> None:
    program = """
import fire
from configs import fsdp_config, train_config
from peft import LoraConfig, get_peft_model

def update(config, **kwargs):
    if isinstance(config, (tuple, list)):
        for each in config:
            update(each, **kwargs)
    else:
        for name, value in kwargs.items():
            if hasattr(config, name):
                setattr(config, name, value)

def main(**kwargs):
    update((train_config, fsdp_config), **kwargs)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    if train_config.use_peft:
        model = get_peft_model(model, LoraConfig(r=8))
    Trainer(model, args=TrainingArguments("out")).train()

fire.Fire(main)
"""
    configs = """
from dataclasses import dataclass

@dataclass
class train_config:
    use_peft: bool = False

@dataclass
class fsdp_config:
    pure_bf16: bool = False
"""
    files = {"train.py": LOADS + program, "configs.py": configs}
    files["run.sh"] = "python train.py --seed 1\n"
    assert facts_of(tmp_path, "run.sh", files)["adapter"] == "none"
    files["run.sh"] = "python train.py --use_peft --pure_bf16\n"
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["adapter"], found["precision"]) == ("lora", "bf16")


def test_a_file_beside_the_program_is_found_by_the_path_of_the_program(tmp_path: Path) -> None:
    program = """
import argparse, os
from pathlib import Path
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
parser = argparse.ArgumentParser()
parser.add_argument("--stage")
args = parser.parse_args()
config = os.path.join(ROOT, "configs", args.stage)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, args=TrainingArguments("out", deepspeed=config)).train()
"""
    files = {
        "src/train.py": LOADS + program,
        "configs/two.json": '{"zero_optimization": {"stage": 2}}',
        "run.sh": "deepspeed src/train.py --stage two.json\n",
    }
    assert facts_of(tmp_path, "run.sh", files)["zero_stage"] == 2
    files["src/train.py"] = LOADS + program.replace(
        "os.path.dirname(os.path.dirname(os.path.abspath(__file__)))",
        "Path(__file__).resolve().parent.parent",
    )
    assert facts_of(tmp_path, "run.sh", files)["zero_stage"] == 2


def test_what_the_code_switches_on_stays_on_whatever_the_arguments_say(tmp_path: Path) -> None:
    program = """
from transformers import HfArgumentParser
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.gradient_checkpointing_enable()
Trainer(model, args=args).train()
"""
    line = "python train.py --output_dir o --bf16 --save_steps 5 --gradient_checkpointing false\n"
    files = {"train.py": LOADS + program, "run.sh": line}
    assert facts_of(tmp_path, "run.sh", files)["gradient_checkpointing"] is True
    files["train.py"] = files["train.py"].replace("model.gradient_checkpointing_enable()\n", "")
    assert facts_of(tmp_path, "run.sh", files)["gradient_checkpointing"] is False


def test_unsloth_loads_in_four_bits_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    program = """
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048{more})
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model, args=SFTConfig("out")).train()
"""
    for more, expected in (("", "nf4"), (", load_in_4bit=False", None), (", load_in_8bit=True", "int8")):
        found = facts_of(tmp_path, "train.py", {"train.py": program.format(more=more)})
        assert found.get("quantization") == expected, more
    several = facts_of(tmp_path, "train.py", {"train.py": program.format(more=", **options()")})
    assert "quantization" not in several


def test_a_launch_that_only_predicts_does_not_count(tmp_path: Path) -> None:
    train = "llamafactory-cli train --stage sft --do_train --finetuning_type lora --bf16\n"
    predict = "llamafactory-cli train --stage sft --do_predict --finetuning_type lora --fp16\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": train + predict})
    assert found["precision"] == "bf16"
    assert facts_of(tmp_path, "run.sh", {"run.sh": predict})["precision"] == "fp16"
    both = train + predict.replace("--do_predict", "--do_predict --do_train")
    assert "precision" not in facts_of(tmp_path, "run.sh", {"run.sh": both})


def test_a_configuration_refers_to_its_own_values(tmp_path: Path) -> None:
    text = (
        "lora:\n  rank: 64\nactor_rollout_ref:\n  model:\n    path: a/b\n    lora_rank: ${lora.rank}\n"
        "  rollout:\n    name: vllm\n  actor:\n    ppo_mini_batch_size: 4\n"
    )
    assert facts_of(tmp_path, "ppo.yaml", {"ppo.yaml": text})["adapter"] == "lora"
    other = text.replace("${lora.rank}", "${other.rank}")
    assert "adapter" not in facts_of(tmp_path, "ppo.yaml", {"ppo.yaml": other})


HOSTILE = {
    "modules in a circle": {
        "train.py": "from a import x\nx()\n",
        "a.py": "from b import x\n",
        "b.py": "from a import x\n",
    },
    "a function that calls itself": {"train.py": "def f(n):\n    return f(n + 1) + f(n)\nf(1)\n"},
    "a deep expression": {"train.py": f"import torch\nx = {'-' * 3000}1\nx = {'[' * 80}{']' * 80}\n"},
    "a class of itself": {"train.py": "class A(A):\n    pass\nA()\n"},
    "many branches": {
        "train.py": "import os\n" + "".join(f"if os.a({i}):\n    x = {i}\n" for i in range(3000))
    },
    "loops in loops": {
        "train.py": "".join(f"{'    ' * i}for a{i} in ({'1, ' * 16}):\n" for i in range(12))
        + f"{'    ' * 12}x = 1\n"
    },
    "a list that doubles": {"train.py": "x = [1]\n" + "x = x + x\n" * 64 + "s = 'a'\n" + "s = s + s\n" * 64},
    "a number that grows": {"train.py": "x = 9\n" + "x = x * x\n" * 64},
    "a configuration outside": {
        "train.py": "import yaml\nc = yaml.safe_load(open('../../../../etc/hosts'))\n"
    },
    "interpolation in a circle": {
        "train.py": "import hydra\n@hydra.main(config_path='.', config_name='c')\ndef main(cfg):\n    cfg.a.b\nmain()\n",
        "c.yaml": "a: ${b}\nb: ${a}\ndefaults:\n  - c\n",
    },
}


@pytest.mark.parametrize("files", HOSTILE.values(), ids=HOSTILE)
def test_hostile_programs_are_read_within_a_second(tmp_path: Path, files: dict[str, str]) -> None:
    start = time.process_time()
    with contextlib.suppress(InputError):
        facts_of(tmp_path, "run.sh", {"run.sh": "python train.py --learning_rate 1e-5\n", **files})
    assert time.process_time() - start < 5  # CPU time of this process, which loads the matrix once


def test_a_fifo_in_place_of_a_module_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.py")
    files = {
        "run.sh": "python train.py --learning_rate 1e-5\n",
        "train.py": "from models import build\nbuild()\n",
    }
    with pytest.raises(InputError):
        facts_of(tmp_path, "run.sh", files)


def test_a_refused_value_does_not_leave_the_default_of_the_trainer(tmp_path: Path) -> None:
    text = "base_model: x\nsequence_len: 8\nmicro_batch_size: 1\nload_in_4bit: {}\n"
    refused = facts_of(tmp_path, "a.yaml", {"a.yaml": text.format("yes please")})
    assert refused.get("quantization") is None
    accepted = facts_of(tmp_path, "b.yaml", {"b.yaml": text.format("false")})
    assert accepted["quantization"] == "none"


LONG = "import os\ndef f(n):\n    return os.a(n) + os.b(n)\n" + "x = f(1)\n" * 20_000


def test_a_program_that_is_too_long_is_followed_briefly_for_further_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    def counted(*given: Any, **named: Any) -> Any:
        found = follow(*given, **named)
        steps.append(len(found.calls) if found is not None else 0)
        return found

    monkeypatch.setattr(_program_source, "follow", counted)
    script = "".join(f"torchrun --nproc_per_node 2 train.py --bf16 --seed {n}\n" for n in range(3))
    facts_of(tmp_path, "run.sh", {"run.sh": script, "train.py": LONG})

    first, *others = steps
    assert len(others) == 2
    assert all(0 < each < first / 3 for each in others)
