"""What a followed program does to a model: parameters that stay frozen, adapters that it loads, its own trainer."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import indent

import pytest

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.trainable import path_of
from tests.unit.training_config.test_programs import facts_of

PROGRAM = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--tune_head", action="store_true")
args = parser.parse_args()
{functions}
model = AutoModelForCausalLM.from_pretrained("gpt2")
{work}
Trainer(model=model, args=TrainingArguments("out")).train()
"""
FREEZE = """
def freeze_base(network):
    for parameter in network.parameters():
        parameter.requires_grad = False
"""
BY_NAME = """
for n, p in model.named_parameters():
    if "{name}" in n:
        p.requires_grad = True
"""


def of_program(folder: Path, work: str, functions: str = FREEZE) -> dict[str, object]:
    program = PROGRAM.format(functions=functions, work=work)
    return facts_of(folder, "run.sh", {"run.sh": "python train.py\n", "train.py": program})


@pytest.mark.parametrize(
    "work",
    [
        "freeze_base(model)",
        "freeze_base(model.transformer)",
        "freeze_base(model)\nmodel.lm_head.weight.requires_grad = True",
        f"freeze_base(model)\n{BY_NAME.format(name='head')}",
        "for n, p in model.named_parameters():\n    p.requires_grad = 'head' in n",
        "for n, p in model.named_parameters():\n    if 'wte' in n:\n        p.requires_grad_(False)",
        "freeze_base(model)\nif args.tune_head:\n    model.lm_head.weight.requires_grad = True",
    ],
)
def test_what_a_function_freezes_stays_frozen(tmp_path: Path, work: str) -> None:
    assert of_program(tmp_path, work)["frozen_params"] is True


@pytest.mark.parametrize(
    "work",
    [
        "freeze_base(model)\nfor p in model.parameters():\n    p.requires_grad = True",
        "freeze_base(model)\nfor m in model.modules():\n    for p in m.parameters():\n        p.requires_grad = True",
        "freeze_base(model)\nmodel.requires_grad_(True)",
        "if args.tune_head:\n    pass\nelif unknown():\n    freeze_base(model)",
        # Together they may train all of it again.
        f"freeze_base(model)\n{BY_NAME.format(name='h.')}{BY_NAME.format(name='w')}",
    ],
)
def test_what_is_trained_again_is_not_called_frozen(tmp_path: Path, work: str) -> None:
    functions = f"import os\n{FREEZE}\ndef unknown():\n    return os.getpid() % 2\n"
    assert of_program(tmp_path, work, functions).get("frozen_params") is not True


def test_a_function_that_freezes_another_model_says_nothing_of_the_trained_one(tmp_path: Path) -> None:
    reference = 'ref_model = AutoModelForCausalLM.from_pretrained("gpt2")\nfreeze_base(ref_model)'
    assert of_program(tmp_path, reference)["frozen_params"] is False
    loads = """
def load():
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    for parameter in model.parameters():
        parameter.requires_grad = False
    return model
"""
    assert of_program(tmp_path, "teacher = load()", loads)["frozen_params"] is False


def test_a_function_counts_by_its_body_and_not_by_its_name(tmp_path: Path) -> None:
    functions = "import gc\ndef freeze_objects():\n    gc.collect()\n"
    assert of_program(tmp_path, "freeze_objects()", functions)["frozen_params"] is False
    library = "from helpers_of_others import freeze_objects\n"
    assert of_program(tmp_path, "freeze_objects(model)", library).get("frozen_params") is not False


ADAPTER = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
model = AutoModelForCausalLM.from_pretrained("gpt2")
model = PeftModel.from_pretrained(model, "adapter"{given})
{more}
GRPOTrainer(model=model, reward_funcs=len, args=GRPOConfig("out", num_generations=4)).train()
"""


@pytest.mark.parametrize(
    ("given", "more", "frozen"),
    [
        (", is_trainable=True", "", True),
        (", is_trainable=True", "model = model.merge_and_unload()", None),
        ("", "", None),
    ],
)
def test_an_adapter_that_is_loaded_leaves_its_kind_open(
    tmp_path: Path, given: str, more: str, frozen: object
) -> None:
    program = ADAPTER.format(given=given, more=more)
    files = {"run.sh": "python train.py --num_generations 4 --max_prompt_length 8\n", "train.py": program}
    found = facts_of(tmp_path, "run.sh", files)
    assert found.get("adapter") is None or isinstance(found["adapter"], Unknown)
    assert (found.get("frozen_params") is True) is bool(frozen)
    assert found.get("frozen_params") is not False


PREPARED = """
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=quantised)
model = prepare_model_for_kbit_training(model{given})
model = get_peft_model(model, LoraConfig(r=8))
Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=False)).train()
"""


@pytest.mark.parametrize(("given", "on"), [("", True), (", use_gradient_checkpointing=False", False)])
def test_preparing_a_model_switches_checkpointing_on_whatever_arguments_say(
    tmp_path: Path, given: str, on: bool
) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": PREPARED.format(given=given)})
    assert found["gradient_checkpointing"] is on


OWN_ARGUMENTS = """
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from trl import GRPOConfig{more}
@dataclass
class Arguments(TrainingArguments):
    bf16: bool = True
@dataclass
class Others(GRPOConfig):
    pass
def parse(plain=True):
    return HfArgumentParser((Arguments if plain else Others,)).parse_args_into_dataclasses()
(arguments,) = parse()
model = AutoModelForCausalLM.from_pretrained("gpt2")
{trainer}(model=model, args=arguments).train()
"""


@pytest.mark.parametrize(
    ("more", "trainer", "expected"),
    [("", "Trainer", "transformers"), (", GRPOTrainer", "GRPOTrainer", "trl")],
)
def test_the_class_of_the_trainer_counts_more_than_names_of_options(
    tmp_path: Path, more: str, trainer: str, expected: str
) -> None:
    program = OWN_ARGUMENTS.format(more=more, trainer=trainer)
    command = "python train.py --output_dir out --num_generations 4 --max_prompt_length 64\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": command, "train.py": program})
    assert found["trainer"] == expected


HYDRA = """
import hydra
from {package} import thing
@hydra.main(config_path="configs", config_name="grpo", version_base=None)
def main(cfg):
    thing(cfg)
main()
"""
LIKE_VERL = "bf16: true\ndata:\n  max_prompt_length: 256\n  max_response_length: 512\n  train_batch_size: 8\n"


@pytest.mark.parametrize(("package", "trainer"), [("torch", None), ("verl", "verl"), ("helpers", None)])
def test_a_configuration_is_that_of_a_trainer_that_its_program_may_run(
    tmp_path: Path, package: str, trainer: str | None
) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 2 train.py training.precision=bf16\n",
        "train.py": HYDRA.format(package=package),
        "configs/grpo.yaml": LIKE_VERL,
    }
    assert facts_of(tmp_path, "run.sh", files).get("trainer") == trainer


CHOSEN = """
import argparse
import typing
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
def build():
    class Sampled(SFTTrainer):
        pass
    return Sampled
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="action")
for name in ("train", "serve"):
    commands.add_parser(name)
args = typing.cast(argparse.Namespace, parser.parse_args())
if args.action == "train":
    import os
    kind = build() if os.getpid() % 2 else SFTTrainer
    model = AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="sdpa")
    kind(model=model, args=SFTConfig("out", bf16=True)).train()
else:
    AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="eager")
"""


def test_a_class_that_a_condition_chooses_is_one_of_both(tmp_path: Path) -> None:
    found = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py train\n", "train.py": CHOSEN})
    assert (found["trainer"], found["precision"], found["attention"]) == ("trl", "bf16", "sdpa")


REWARDED = """
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
def reward(completions):
    total = 0
{lines}
    return total
model = AutoModelForCausalLM.from_pretrained("gpt2")
GRPOTrainer(model=model, reward_funcs=reward, args=GRPOConfig("out", bf16=True)).train()
"""


@pytest.mark.parametrize("lines", [10, 5_000])
def test_a_long_function_that_a_library_calls_leaves_the_program_readable(tmp_path: Path, lines: int) -> None:
    program = REWARDED.format(lines=indent("total = total + len(completions)\n" * lines, "    "))
    found = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py\n", "train.py": program})
    assert (found["trainer"], found["adapter"], found["frozen_params"]) == ("trl", "none", False)


def test_a_long_function_that_a_library_calls_may_freeze(tmp_path: Path) -> None:
    lines = indent("total = total + len(completions)\n" * 5_000 + "freeze_all(total)\n", "    ")
    program = f"from helpers import freeze_all\n{REWARDED.format(lines=lines)}"
    found = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py\n", "train.py": program})
    assert found.get("frozen_params") is not False


NAMED = """
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser
class Runner:
    def __init__(self):
        self.args, self.model_args = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
    def train(self):
        GRPOTrainer(model={model}, reward_funcs=len, args=self.args).train()
{more}
Runner().train()
"""


@pytest.mark.parametrize(
    ("model", "more", "adapter"),
    [
        ("self.model_args.model_name_or_path", "", "none"),
        ('"Qwen/Qwen3-0.6B"', "", "none"),
        ("load_it()", "from helpers import load_it", None),
    ],
)
def test_a_trainer_that_is_given_a_name_loads_the_model(
    tmp_path: Path, model: str, more: str, adapter: str | None
) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": NAMED.format(model=model, more=more)})
    assert found["trainer"] == "trl"
    assert found.get("adapter") == adapter


INHERITED = """
import copy
import inspect
import os
import sys
import yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Config:
    def __init__(self, data):
        for key, value in data.items():
            setattr(self, key, Config(value) if isinstance(value, dict) else value)
def merged(base, override):
    result = copy.deepcopy(base)
    for key, value in override.items():
        if key in result and isinstance(result[key], dict) and isinstance(value, dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result
def load(path):
    data = yaml.safe_load(open(path))
    with open(os.path.join("configs", data.pop("inherit") + ".yaml")) as file:
        return Config(merged(yaml.safe_load(file), data))
def supported(function, given):
    parameters = inspect.signature(function).parameters
    if any(each.kind == inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}
config = load("configs/own.yaml")
given = {"output_dir": "out", "bf16": config.training.bf16, "gradient_checkpointing": config.training.checkpointing}
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments(**supported(TrainingArguments, given))).train()
"""


@pytest.mark.parametrize("checkpointing", [True, False])
def test_configurations_that_a_program_merges_by_itself(tmp_path: Path, checkpointing: bool) -> None:
    base = f"training:\n  bf16: true\n  checkpointing: {str(not checkpointing).lower()}\n"
    own = f"inherit: base\ntraining:\n  checkpointing: {str(checkpointing).lower()}\n"
    files = {"train.py": INHERITED, "configs/base.yaml": base, "configs/own.yaml": own}
    found = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py\n", **files})
    assert (found["precision"], found["gradient_checkpointing"]) == ("bf16", checkpointing)


TWO_DICTIONARIES = """
import os
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def options():
    if os.getpid() % 2:
        return {"bf16": True, "gradient_checkpointing": True}
    return {"bf16": True, "gradient_checkpointing": False}
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out", **options())).train()
"""


def test_of_two_dictionaries_only_what_both_say_is_known(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py\n", "train.py": TWO_DICTIONARIES}
    found = facts_of(tmp_path, "run.sh", files)
    assert found["precision"] == "bf16"
    assert "gradient_checkpointing" not in found


FITTED = """
from sklearn.neighbors import NearestNeighbors
from transformers import AutoModelForCausalLM
index = NearestNeighbors(n_neighbors=2)
index.fit([[0], [1]])
AutoModelForCausalLM.from_pretrained("gpt2").generate()
"""


def test_an_index_that_is_fitted_is_no_training(tmp_path: Path) -> None:
    training = INHERITED.replace(
        'load("configs/own.yaml")', "Config({'training': {'bf16': True, 'checkpointing': True}})"
    )
    files = {"run.sh": "python train.py\npython answer.py\n", "train.py": training, "answer.py": FITTED}
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["trainer"], found["precision"]) == ("transformers", "bf16")


COMPUTED_NAMES = """
import os
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
@dataclass
class Options:
    bf16: bool = True
    checkpointing: bool = True
options = Options({rest})
{change}
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments("out", bf16=options.bf16, gradient_checkpointing=options.checkpointing)
Trainer(model=model, args=arguments).train()
"""


@pytest.mark.parametrize(
    ("rest", "change", "known"),
    [
        ("", "", True),
        ("", "setattr(options, os.environ['NAME_OF_IT'], False)", False),
        ("**dict.fromkeys(os.listdir()) or {}", "", False),
    ],
)
def test_fields_that_a_computed_name_may_set_are_not_known(
    tmp_path: Path, rest: str, change: str, known: bool
) -> None:
    program = COMPUTED_NAMES.format(rest=rest, change=change)
    found = facts_of(tmp_path, "run.sh", {"run.sh": "python train.py\n", "train.py": program})
    assert ("precision" in found, "gradient_checkpointing" in found) == (known, known)


NAMES_AN_ADAPTER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("out/checkpoint-100")
for name, parameter in model.named_parameters():
    if "{word}" in name:
        parameter.requires_grad = True
Trainer(model=model, args=TrainingArguments("out")).train()
"""


@pytest.mark.parametrize(("word", "adapter"), [("lora", None), ("lm_head", "none")])
def test_parameters_of_an_adapter_are_asked_for_only_if_there_is_one(
    tmp_path: Path, word: str, adapter: str | None
) -> None:
    files = {"run.sh": "python train.py\n", "train.py": NAMES_AN_ADAPTER.format(word=word)}
    assert facts_of(tmp_path, "run.sh", files).get("adapter") == adapter


@pytest.mark.parametrize(
    "work",
    [
        "for n, p in model.named_parameters():\n    if flags.freeze and 'head' in n:\n        p.requires_grad = False",
        "for n, p in model.named_parameters():\n    p.requires_grad = flags.full or 'head' in n",
        "for n, p in model.named_parameters():\n    p.requires_grad = True if flags.full else 'head' in n",
        "for n, p in model.named_parameters():\n    pass\nn = flags.freeze\nif n:\n    freeze_base(model)",
    ],
)
def test_a_switch_beside_the_name_of_a_parameter_leaves_freezing_open(tmp_path: Path, work: str) -> None:
    found = of_program(tmp_path, work, f"from settings_of_mine import flags\n{FREEZE}")
    assert not isinstance(found.get("frozen_params"), bool)


def test_a_shortened_name_is_still_that_of_a_parameter(tmp_path: Path) -> None:
    work = """
for n, p in model.named_parameters():
    n = n.removeprefix("module.")
    if "wte" in n:
        p.requires_grad = False
"""
    assert of_program(tmp_path, work)["frozen_params"] is True


def test_many_functions_that_a_library_is_given_are_read_once(tmp_path: Path) -> None:
    count = 250
    functions = "\n".join(f"def f{number}(x):\n" + "    x.step(x)\n" * 40 for number in range(count))
    work = "\n".join(f"library.register(f{number})" for number in range(count))
    started = time.process_time()
    of_program(tmp_path, work, f"import library\n{functions}")
    assert time.process_time() - started < 20  # seconds; it took minutes when each call read the module again


def test_a_long_expression_is_cut_in_little_time() -> None:
    started = time.process_time()
    assert path_of("list(model.modules().parameters())") == "model"
    assert not path_of("model" + ".parameters()" * 20_000 + "x")
    assert time.process_time() - started < 1


OWN_LOOP = """
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments{more}
from helpers import criteria
class {name}:
    def __init__(self, model, args):
        self.model, self.args = model, args
    def train(self):
        loss = criteria[self.args.kind](self.model)
        loss.backward()
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
{start}(model, args).train()
"""


@pytest.mark.parametrize(
    ("more", "name", "start", "expected"),
    [
        ("", "Trainer", "Trainer", False),
        (", Trainer", "OwnTrainer", "Trainer", True),
        (", Trainer", "OwnTrainer", "OwnTrainer", False),
    ],
)
def test_a_loop_of_its_own_with_options_of_transformers_is_not_its_trainer(
    tmp_path: Path, more: str, name: str, start: str, expected: bool
) -> None:
    files = {
        "run.sh": "torchrun train.py --output_dir o --save_strategy no --logging_steps 1 --bf16\n",
        "train.py": OWN_LOOP.format(more=more, name=name, start=start),
        "helpers.py": "criteria = load_all()\n",
    }
    assert (facts_of(tmp_path, "run.sh", files).get("trainer") == "transformers") is expected


WRAPPED = """
from accelerate import Accelerator
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrap
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("gpt2")
{work}
accelerator.backward(accelerator.prepare(model)(**batch).loss)
"""


@pytest.mark.parametrize(
    ("work", "expected"),
    [("for i, block in enumerate(model.h):\n    model.h[i] = wrap(block)", True), ("", False)],
)
def test_wrapped_layers_are_computed_again_in_the_backward_pass(
    tmp_path: Path, work: str, expected: bool
) -> None:
    files = {"run.sh": "torchrun train.py\n", "train.py": WRAPPED.format(work=work)}

    assert facts_of(tmp_path, "run.sh", files)["gradient_checkpointing"] is expected
