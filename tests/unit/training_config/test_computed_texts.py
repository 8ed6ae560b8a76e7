"""What a script computes before it starts a training: texts, numbers, arrays and the files that it writes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from envcheck.training_config.launch_scripts.text_edits import edited
from envcheck.training_config.launch_scripts.text_filters import contains, filtered, printed
from tests.support.launches import known_facts as facts
from tests.unit.training_config.test_ways_to_launch import COMMAND, FILES, MEANT

BATCH = "torchrun --nproc_per_node 4 train.py --learning_rate 1e-5 --num_train_epochs 1 --per_device_train_batch_size"
INSIDE = COMMAND.replace("ds.json", "../ds.json")
STAGE = '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}'


@pytest.mark.parametrize(
    ("before", "size"),
    [
        ("N=$(expr 16 / 4)", 4),
        ("N=$(expr 2 \\* 4)", 8),
        ("N=`expr 16 % 7`", 2),
        ('N=$(echo "64 / 8" | bc)', 8),
        ('N=$(python3 -c "print(64 // 8)")', 8),
        ('N=$(python -c "print(int(64 / 8))")', 8),
        ("G=0,1,2,3; N=$((32 / $(awk -F, '{print NF}' <<< \"$G\")))", 8),
        ("IFS=',' read -ra G <<< 0,1,2,3; N=$((32 / ${#G[@]}))", 8),
        ('IFS=: read -r A N REST <<< "a:8:b:c"', 8),
        ('read -r A N <<< "a 8"', 8),
        ("printf -v N '%d%s' 1 6", 16),
        ("declare -A SIZE=([small]=8 [large]=2); M=small; N=${SIZE[$M]}", 8),
        ("declare -A SIZE; SIZE[large]=2; N=${SIZE[large]}", 2),
        ("NAME=b16.yaml; N=${NAME%.yaml}; N=${N#b}", 16),
        ("NAME=x/b16; N=${NAME##*/b}", 16),
        ("NAME=1-6; N=${NAME//-/}", 16),
        ("NAME=a16b; N=${NAME:1:2}", 16),
        ("N=$(basename x/16.json .json)", 16),
        ("for N in $(seq 8 8); do :; done", 8),
        ("N=$((${GIVEN:-2} * 4))", 8),
    ],
)
def test_a_number_that_the_script_computes(tmp_path: Path, before: str, size: int) -> None:
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{before}\n{BATCH} $N\n"})
    assert found["micro_batch_size"] == size


@pytest.mark.parametrize(
    "before",
    [
        "N=$(expr 16 / 0)",
        "N=$(expr length abc)",
        'N=$(python -c "print(64 / 8)")',  # prints 8.0
        'N=$(echo "scale=2; 64 / 8" | bc)',
        "N=$(nproc)",
        "read -r N < sizes.txt",
        "printf -v N '%5.2f' 8",
        "declare -A SIZE=([small]=8); N=${SIZE[$MODEL]}",
        "declare -A SIZE=([small]=8); for M in *.txt; do SIZE[small]=$M; done; N=${SIZE[small]}",
        "SIZE[small]=8; unset SIZE; N=${SIZE[small]}",
        "N=${OTHER%.yaml}",
        "A=''; N=$($A)",  # no command
        "A=''; N=$(echo 8 | $A)",
        "N=$(seq 1 1000 | wc -l)",  # more numbers than are counted
        'N=$(python -c "print(-7 // 2)")',
        "N=$(printf '%d' abc)",
        "N=$(cat inside/../../../sizes.txt)",  # outside of the project
    ],
)
def test_a_number_that_is_not_known_is_not_guessed(tmp_path: Path, before: str) -> None:
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{before}\n{BATCH} $N\n"})
    assert "micro_batch_size" not in found


@pytest.mark.parametrize(
    "text",
    [
        f"srun bash <<'EOF'\n{COMMAND}\nEOF\n",
        f"sbatch <<EOF\n#!/bin/bash\n#SBATCH --gres=gpu:4\n{COMMAND}\nEOF\n",
        f"ssh node1 <<EOF\ncd work\n{COMMAND}\nEOF\n",
        f"docker exec -i c bash <<'EOF'\n{COMMAND}\nEOF\n",
        f"{{ time {COMMAND}; }} 2>&1 | tee log\n",
        f"PYTHON=$(command -v python3)\n$PYTHON -m torch.distributed.run {COMMAND.removeprefix('torchrun ')}\n",
        f"printf -v CMD '%s %s' '{COMMAND}' ''\neval $CMD\n",
        "make train\n",
        "torchrun --nproc_per_node 4 train.py $(cat arguments.txt)\n",
        f'#SBATCH --gres=gpu:4\nif [ -n "$SLURM_SUBMIT_DIR" ]; then D=$SLURM_SUBMIT_DIR/sub; else D=/x; fi\ncd $D\n{INSIDE}\n',
        f'D="$(cd "$(dirname "${{BASH_SOURCE[0]}}")/sub" && pwd)"\ncd $D\n{INSIDE}\n',
    ],
)
def test_a_command_that_reaches_its_shell_by_a_detour(tmp_path: Path, text: str) -> None:
    more = {
        "Makefile": f"train:\n\t{COMMAND}\n",
        "arguments.txt": COMMAND.partition("train.py ")[2],
        "sub/x.txt": "",
    }
    found = facts(tmp_path, {"run.sh": text, **more, **FILES})
    assert {key: found[key] for key in MEANT} == MEANT


def test_arguments_that_xargs_reads_are_not_known(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\necho '--bf16 true' | xargs torchrun --nproc_per_node 2 train.py --learning_rate 1e-5\n"
    )
    found = facts(tmp_path, {"run.sh": text})
    assert found["world_size"] == 2
    assert not {"parallel", "precision"} & found.keys()


def test_a_place_that_xargs_fills_is_not_known(tmp_path: Path) -> None:
    text = "#!/bin/bash\nls *.json | xargs -I {} deepspeed train.py --deepspeed {} --bf16 true\n"
    found = facts(tmp_path, {"run.sh": text, **FILES})
    assert (found["parallel"], found["precision"], found.get("zero_stage")) == ("deepspeed", "bf16", None)


@pytest.mark.parametrize(
    ("before", "stage", "offload"),
    [
        ("sed 's/\"stage\": 3/\"stage\": 2/' ds.json > run.json", 2, "cpu"),
        ("sed -e 's/3/2/' -e \"s/cpu/none/g\" ds.json > run.json", 2, "none"),
        ("cp ds.json run.json\nsed -i 's/cpu/none/' run.json", 3, "none"),
        ("cat ds.json > run.json", 3, "cpu"),
        ("export STAGE=1\nenvsubst < ds.tpl > run.json", 1, "none"),
        ("export STAGE=1 OTHER=7\nenvsubst '$STAGE' < ds.tpl > run.json", 1, "none"),
        ('sed "s/__STAGE__/${Z:-2}/" ds.in > run.json', 2, "none"),
        ("jq '.zero_optimization.stage = 2' ds.json > run.json", 2, "cpu"),
        ("cp ds.json run.json\njq '.a = 2' run.json > t.json && mv t.json run.json", 3, "cpu"),
        ("jq 'del(.zero_optimization.offload_param) | .zero_optimization.stage=1' ds.json > run.json", 1, "none"),
        ("S=2; jq --argjson s $S '.zero_optimization.stage = $s' ds.json > run.json", 2, "cpu"),
        ("jq '.zero_optimization = {\"stage\": 2}' ds.json > run.json", 2, "none"),
        ("jq . ds.json > run.json", 3, "cpu"),
        ("yq -i '.a = 1' ds.json\ncp ds.json run.json", 3, "cpu"),
        ("cp ds.json run.json\nyq e -i '.zero_optimization.stage = 2' run.json\nsed -i s/cpu/none/ run.json", 2, "none"),
        # The value is not known, or the key may be there.
        ('jq ".zero_optimization.stage = $STAGE" ds.json > run.json', None, "cpu"),
        ("jq '.zero_optimization.offload_param.device += \"x\"' ds.json > run.json", 3, None),
        ("cp ds.json run.json\nif nvidia-smi | grep -q H100; then yq -i '.zero_optimization.stage = 2' run.json; fi", None, "cpu"),
        # What else a filter makes of it is not known, so no value of the file counts.
        ("jq 'walk(if . == 3 then 2 else . end)' ds.json > run.json", None, None),
        ("jq -f change.jq ds.json > run.json", None, None),
        ("cp ds.json run.json\nif nvidia-smi | grep -q H100; then sed -i 's/3/2/' run.json; fi", None, None),
        ("cp ds.json run.json\nsed -i 's/\\(stage\\)/x/' run.json", None, None),
        # What sed puts there is not known; the rest of the file is.
        ('cp ds.json run.json\nsed -i "s/3/$STAGE/" run.json', None, "cpu"),
        ('cp ds.json run.json\nsed -i "s/$OLD/2/" run.json', None, None),
        # An unknown part may be longer than one character, and have what ends a class; `.*` takes all of it.
        ("cp ds.json run.json\nsed -i \"s/3/$STAGE/\" run.json\nsed -i 's/\"stage\": ./\"stage\": 2/' run.json", None, None),
        ("cp ds.json run.json\nsed -i \"s/3/$STAGE/\" run.json\nsed -i 's/\"stage\": [^,]*/\"stage\": 2/' run.json", None, None),
        ("cp ds.json run.json\nsed -i \"s/3/$STAGE/\" run.json\nsed -i 's/\"stage\": .*, /\"stage\": 2, /' run.json", 2, "cpu"),
        # A branch that certainly runs, and one that certainly does not.
        ("cp ds.json run.json\nif grep -q stage run.json; then sed -i 's/3/2/' run.json; fi", 2, "cpu"),
        ("cp ds.json run.json\nif grep -q other run.json; then sed -i 's/3/2/' run.json; fi", 3, "cpu"),
        ("cp ds.json run.json\nif grep -q \"$KEY\" run.json; then sed -i 's/3/2/' run.json; fi", None, None),
        ("cp ds.json run.json\nif grep stage run.json | grep -q x; then sed -i 's/3/2/' run.json; fi", None, None),
        ("set_stage() { sed -i 's/3/2/' run.json; }\ncp ds.json run.json\nset_stage", 2, "cpu"),
        ("set_stage() { sed -i 's/3/2/' run.json; }\ncp ds.json run.json\nif [ $A = b ]; then set_stage; fi", None, None),
    ],
)  # fmt: skip
def test_a_configuration_that_the_script_copies_or_edits(
    tmp_path: Path, before: str, stage: int | None, offload: str | None
) -> None:
    more = {
        "ds.json": STAGE,
        "ds.tpl": '{"zero_optimization": {"stage": $STAGE}, "wall_clock_breakdown": false}',
        "ds.in": '{"zero_optimization": {"stage": __STAGE__}}',
    }
    text = f"#!/bin/bash\n{before}\ndeepspeed train.py --deepspeed run.json --learning_rate 1e-5\n"
    found = facts(tmp_path, {"run.sh": text, **more})
    assert found["parallel"] == "deepspeed"
    assert (found.get("zero_stage"), found.get("offload_param")) == (stage, offload)


def test_an_edit_in_place_counts_instead_of_the_file(tmp_path: Path) -> None:
    text = "#!/bin/bash\nyq -i '.mixed_precision = \"fp16\"' a.yaml\naccelerate launch --config_file a.yaml train.py\n"
    found = facts(
        tmp_path, {"run.sh": text, "a.yaml": "distributed_type: MULTI_GPU\nmixed_precision: bf16\n"}
    )
    assert found["precision"] == "fp16"


@pytest.mark.parametrize(
    ("edit", "offload"),
    [
        ("jq . ds.json", "none"),
        ("jq '.zero_optimization.offload_optimizer.device = \"cpu\"' ds.json", "cpu"),
        ('jq \'.zero_optimization.offload_optimizer = {"device": "cpu"}\' ds.json', "cpu"),
        ('jq ".zero_optimization.offload_optimizer.device = \\"$WHERE\\"" ds.json', None),
        ("jq '.zero_optimization.offload_optimizer.device = env.WHERE' ds.json", None),
        ("jq 'if .a then . else .zero_optimization.offload_optimizer.device = 1 end' ds.json", None),
    ],
)
def test_a_key_that_an_edit_adds_is_not_absent(tmp_path: Path, edit: str, offload: str | None) -> None:
    text = f"#!/bin/bash\n{edit} > run.json\ndeepspeed train.py --deepspeed run.json --learning_rate 1e-5\n"
    found = facts(tmp_path, {"run.sh": text, "ds.json": STAGE})
    assert found["parallel"] == "deepspeed"
    assert found.get("offload_optimizer") == offload


def test_many_edits_of_a_long_text_are_refused_in_one_line(tmp_path: Path) -> None:
    long = "a: 1\n" * 50_000
    edits = "yq -i '.b = 1' a.yaml\n" * 20_000
    text = f"cat > a.yaml <<EOF\n{long}EOF\n{edits}accelerate launch --config_file a.yaml train.py\n"
    start = time.process_time()
    with pytest.raises(InputError, match="grow without limit"):
        facts(tmp_path, {"run.sh": text})
    assert time.process_time() - start < 5


def test_a_job_of_amlt_runs_its_commands(tmp_path: Path) -> None:
    text = f"""description: a run
target: {{service: sing}}
jobs:
  - name: sft
    sku: 80G4
    command:
      - nvidia-smi
      - |
        bash -c '
        GPUS=$${{GPUS:-4}}
        {COMMAND.replace(" 4 ", " $$GPUS ")}
        '
"""
    found = facts(tmp_path, {"job.yaml": text, **FILES})
    assert {key: found[key] for key in (*MEANT, "world_size")} == {**MEANT, "world_size": 4}


@pytest.mark.parametrize(
    ("directive", "parallel"),
    [
        ("--gpus=1", "none"),
        ("--gpus-per-node=a100:1", "none"),
        ("--nodes=1\n#SBATCH --gpus=1", "none"),
    ],
)
def test_a_job_with_one_gpu_is_one_process(tmp_path: Path, directive: str, parallel: str | None) -> None:
    files = {
        "train.py": "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('o')).train()\n"
    }
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n#SBATCH {directive}\npython train.py\n", **files})
    assert found.get("parallel") == parallel


@pytest.mark.parametrize(
    ("text", "operation", "meant"),
    [
        ("a.b.c", "%.*", "a.b"), ("a.b.c", "%%.*", "a"), ("a.b.c", "#*.", "b.c"), ("a.b.c", "##*.", "c"),
        ("abc", "%x", "abc"), ("a-b-c", "/-/_", "a_b-c"), ("a-b-c", "//-/_", "a_b_c"), ("abc", "/b", "ac"),
        ("Ab", ",,", "ab"), ("ab", "^", "Ab"), ("abcd", ":1:2", "bc"), ("abcd", ": -2", "cd"), ("abcd", ":1:-1", "bc"),
        ("abc", "@Q", None), ("abc", "/#a/x", None), ("abc", "/a*/x", None),
    ],
)  # fmt: skip
def test_edits_of_a_variable(text: str, operation: str, meant: str | None) -> None:
    assert edited(text, operation) == meant


@pytest.mark.parametrize(
    ("text", "words", "meant"),
    [
        ("a=1\nb=1\n", ["sed", "s/=1/=2/"], "a=2\nb=2\n"),
        ("a a\n", ["sed", "s|a|b|; s/b/c/"], "c a\n"),
        ("a a\n", ["sed", "s/a/b/g"], "b b\n"),
        ("x: 10 # c\n", ["sed", "s/x: .*/x: 2/"], "x: 2\n"),
        ("a\n", ["sed", "s/a/&&/"], None),
        ("a\n", ["sed", "-n", "p"], None),
        ("aaa\n", ["sed", "s/a+/b/"], None),
        ("a" * 30 + "\n", ["sed", "s/" + "a.*" * 9 + "!/x/"], None),
        (" a: 1\n", ["sed", "-i", "-e", "s|^[[:space:]]*a:.*|a: 2|"], "a: 2\n"),
        ("a: 1\n", ["sed", r"s/a:\s*1/a: 2/"], "a: 2\n"),
        ("a: 1\n", ["sed", "s/[[:weird:]]*a/b/"], None),
        ("a,b\n", ["cut", "-d,", "-f2"], "b\n"),
        ("a\n", ["cut", "-d,", "-f2"], "a\n"),
        ("a\n", ["cut", "-c1"], None),
    ],
)
def test_filters_of_text(text: str, words: list[str], meant: str | None) -> None:
    assert filtered(text, words) == meant


def test_an_unknown_command_prints_nothing_that_is_known() -> None:
    assert printed(["date", "+%s"]) is None
    assert printed(["seq", "1", "x"]) is None
    assert printed(["seq", "1", "9999"]) != ""


def test_a_script_that_starts_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing starts a training"):
        facts(tmp_path, {"run.sh": "ls\n"})


@pytest.mark.parametrize(
    ("given", "meant"), [("false", False), ("true", True), ("out/checkpoint-9", True), ("null", None)]
)
def test_a_run_that_does_not_resume(tmp_path: Path, given: str, meant: bool | None) -> None:
    text = f"per_device_train_batch_size: 1\nnum_train_epochs: 1\nresume_from_checkpoint: {given}\n"
    assert facts(tmp_path, {"sft.yaml": text}).get("resume") is meant


def test_a_command_that_no_trainer_ships_may_start_processes_itself(tmp_path: Path) -> None:
    arguments = "--learning_rate 1e-5 --num_train_epochs 1 --per_device_train_batch_size 2"
    own = facts(tmp_path, {"run.sh": f"own-train {arguments}\n"})
    plain = facts(tmp_path, {"run.sh": f"python train.py {arguments}\n"})
    assert (own.get("parallel"), plain.get("parallel")) == (None, "none")


@pytest.mark.parametrize(
    ("name", "adapter"),
    [("", "none"), ("--config-name ppo_trainer", "none"), ("--config-name own_run", None)],
)
def test_verls_adapter_is_open_where_another_configuration_may_set_it(
    tmp_path: Path, name: str, adapter: str | None
) -> None:
    text = f"python3 -m verl.trainer.main_ppo {name} actor_rollout_ref.model.path=m algorithm.adv_estimator=grpo\n"
    found = facts(tmp_path, {"run.sh": text})
    assert (found["trainer"], found.get("adapter")) == ("verl", adapter)


@pytest.mark.parametrize(
    "other",
    [
        "main.py --mode eval", "main.py --mode=test", "main.py --eval_only", "main.py --eval-only True", "main.py test_only=true",
        "evaluate.py", "main.py --inference_only 1",
    ],
)  # fmt: skip
def test_a_run_that_only_evaluates_is_not_the_training(tmp_path: Path, other: str) -> None:
    text = "torchrun --nproc_per_node 4 main.py --mode train --bf16 true --deepspeed ds.json"
    second = f"torchrun --nproc_per_node 1 {other} --fp16 true"
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{text}\n{second}\n", **FILES})
    assert (found["precision"], found["zero_stage"], found["world_size"]) == ("bf16", 3, 4)


@pytest.mark.parametrize("other", ["--eval_only False", "--mode finetune", "--name test", "mode test"])
def test_a_second_run_that_trains_counts(tmp_path: Path, other: str) -> None:
    text = f"#!/bin/bash\ntorchrun --nproc_per_node 4 main.py --bf16 true\ntorchrun --nproc_per_node 4 main.py {other} --fp16 true\n"
    assert "precision" not in facts(tmp_path, {"run.sh": text})


def test_variables_that_a_command_prints_may_be_any(tmp_path: Path) -> None:
    start = "torchrun --nproc_per_node ${NPROC:-8} train.py --bf16 true"
    files = {".env": "NPROC=4\n", "list.txt": "NPROC=4"}
    assert "world_size" not in facts(
        tmp_path, {"run.sh": f"export $(grep -v '^#' .env | xargs)\n{start}\n", **files}
    )
    assert facts(tmp_path, {"run.sh": f"export $(cat list.txt)\n{start}\n", **files})["world_size"] == 4
    assert facts(tmp_path, {"run.sh": f"export OTHER\n{start}\n", **files})["world_size"] == 8


def test_gnu_parallel_starts_a_command_with_each_argument(tmp_path: Path) -> None:
    text = f"parallel -j 2 {COMMAND} --seed {{}} ::: 1 2\n"
    found = facts(tmp_path, {"run.sh": text, **FILES})
    assert {key: found[key] for key in MEANT} == MEANT


@pytest.mark.parametrize(
    ("classes", "meant"),
    [("(ScriptArguments, SFTConfig)", None), ("(ScriptArguments, TrainingArguments)", False)],
)
def test_a_class_that_only_a_parser_makes_has_defaults_of_its_own(
    tmp_path: Path, classes: str, meant: bool | None
) -> None:
    program = f"""from transformers import Trainer, TrainingArguments
from trl import ScriptArguments, SFTConfig, SFTTrainer, TrlParser
def main():
    parser = TrlParser({classes})
    script_args, training_args = parser.parse_args_and_config()
    SFTTrainer(model="m", args=training_args).train()
main()
""".replace("SFTConfig, SFTTrainer", "SFTTrainer" if "SFTConfig" not in classes else "SFTConfig, SFTTrainer")
    found = facts(tmp_path, {"run.sh": "python sft.py --bf16 true --learning_rate 1e-5\n", "sft.py": program})
    assert found.get("gradient_checkpointing") is meant


READS_ITS_ENVIRONMENT = """
import os
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("o", bf16=True, gradient_checkpointing=os.environ.get("GC", "0") == "1")
Trainer(model=model, args=args).train()
"""


@pytest.mark.parametrize(
    ("before", "known"),
    [
        ("", False),
        ("export GC=1", True),
        ('while IFS="=" read -r K V; do export "$K=$V"; done < .env', None),
        ('export "$1=$2"', None),
        ("source settings.sh", None),
        ('while IFS="=" read -r K V; do export "$K=$V"; done < .env\nexport GC=1', True),
    ],
)
def test_a_program_sees_variables_that_something_unknown_may_set(
    tmp_path: Path, before: str, known: bool | None
) -> None:
    script = f"{before}\npython train.py --output_dir o --per_device_train_batch_size 1\n"
    found = facts(tmp_path, {"run.sh": script, "train.py": READS_ITS_ENVIRONMENT})
    assert found.get("gradient_checkpointing") is known


def test_a_variable_that_the_script_sets_may_be_set_again_by_an_unknown_name(tmp_path: Path) -> None:
    launch = "torchrun --nproc_per_node 2 x.py --output_dir o --per_device_train_batch_size 1 --bf16 $BF\n"
    script = f'BF=true\nwhile IFS="=" read -r K V; do export "$K=$V"; done < .env\n{launch}'
    found = facts(tmp_path, {"run.sh": script})
    assert "precision" not in found
    assert facts(tmp_path, {"run.sh": f"BF=true\n{launch}"})["precision"] == "bf16"


@pytest.mark.parametrize(
    ("reads", "meant"),
    [
        ('IFS= read -r A <<< "--bf16 true"', "bf16"),
        ('read -r A B <<< "--bf16  true"; A="$A $B"', "bf16"),
        ('IFS=" " read -r A B <<< " --bf16   true"; A="$A $B"', "bf16"),
        ('IFS= read -r A B <<< "--bf16 true"; A="$A$B"', "bf16"),
        ('IFS=: read -r A B <<< "--bf16:true"; A="$A $B"', "bf16"),
    ],
)
def test_what_read_takes_from_a_line(tmp_path: Path, reads: str, meant: str) -> None:
    script = f"{reads}\ntorchrun x.py --output_dir o --per_device_train_batch_size 1 $A\n"
    assert facts(tmp_path, {"run.sh": script})["precision"] == meant


@pytest.mark.parametrize(("folder", "stage"), [("outside", None), ("project/configs", 3)])
def test_a_configuration_is_copied_only_from_the_project(
    tmp_path: Path, folder: str, stage: int | None
) -> None:
    source = tmp_path / folder / "ds.json"
    source.parent.mkdir(parents=True)
    source.write_text(STAGE)
    text = (
        f"#!/bin/bash\ncp {source} run.json\ndeepspeed train.py --deepspeed run.json --learning_rate 1e-5\n"
    )
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    assert facts(project, {"run.sh": text}).get("zero_stage") == stage
    named = f"#!/bin/bash\ndeepspeed train.py --deepspeed {source} --learning_rate 1e-5\n"
    assert facts(project, {"run.sh": named})["zero_stage"] == 3


SORTED = """
TEMP=$(getopt --options '' --longoptions gpus:,help --name "$0" -- "$@")
eval set -- "${TEMP}"
while true; do
  case "$1" in
    --gpus) gpus="$2"; shift 2 ;;
    --) shift; break ;;
  esac
done
"""


@pytest.mark.parametrize(("more", "known"), [("", True), ("set -- --gpus 2", False)])
def test_getopt_sorts_no_arguments_where_a_script_is_given_none(
    tmp_path: Path, more: str, known: bool
) -> None:
    command = COMMAND.replace("--nproc_per_node 4", '--nproc_per_node ${gpus:-4} ${gpus:+"--tee=3"}')
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{more}{SORTED}{command}\n", **FILES})

    assert (found.get("world_size") == 4) is known


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-q", "^b: [[:digit:]]*$"], True), (["-qs", "^b$"], False), (["-Fq", "b: 2"], True), (["--quiet", "x.y"], False),
        (["b"], None), (["-c", "b"], None), (["-q", "-v", "b"], None), (["-q", "b*c*d*"], None), (["-q", "[[:weird:]]"], None),
    ],
)  # fmt: skip
def test_grep_finds_a_line_quietly(words: list[str], found: bool | None) -> None:
    assert contains("a: 1\nb: 2\n", words) is found
