"""What `fuzz_inputs.py` mutates: a file of every kind that envcheck reads, and the commands that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

FACTS = b"""complete = ["pkg"]
[python]
version = "3.11.7"
[pkg]
torch = "2.6.0+cu124"
deepspeed = "0.15.4"
peft = { version = "0.14.0", requires = ["torch>=1.13", "numpy; python_version < '3.10' and extra == 'x'"] }
[driver]
version = "535.54"
[train]
zero_stage = 3
[[gpu]]
name = "NVIDIA A100-SXM4-80GB"
compute_capability = "8.0"
[unknown]
"cuda.toolkit" = "not read"
"""
FACTS_JSON = (
    b'{"complete": ["pkg"], "pkg": {"torch": "2.6.0", "peft": {"version": "0.14", "requires": ["torch>9"]}},'
    b' "gpu": [{"name": "A100", "memory_mib": 81920}], "gpus": {"count": 1}, "env": {"NCCL_ALGO": "Ring"}}'
)
SHA = b"sha256:" + b"0123456789abcdef" * 4


class Kind(NamedTuple):
    """A kind of input: the file that is mutated, what is in it, other files, and the commands that read it."""

    file: str
    seeds: tuple[bytes, ...]
    commands: tuple[tuple[str, ...], ...]
    beside: Mapping[str, bytes] = {}


def _of_environment(file: str, *seeds: bytes, beside: Mapping[str, bytes] | None = None) -> Kind:
    """Return the kind of a file in a virtual environment, which is read without running anything."""
    site = "env/lib/python3.11/site-packages"
    files = {
        "env/pyvenv.cfg": b"home = /usr/bin\nversion = 3.11.7\n",
        "env/bin/python": b"#!/bin/false\n",
        f"{site}/torch-2.6.0.dist-info/METADATA": b"Name: torch\nVersion: 2.6.0\nRequires-Dist: filelock\n",
        f"{site}/asks-1.0.dist-info/METADATA": b"Name: asks\nVersion: 1.0\nRequires-Dist: torch>=2.7\n",
        **{f"{site}/{name}": content for name, content in (beside or {}).items()},
    }
    commands = (
        ("doctor", "--static", "--python", "env"),
        ("gate", "--static", "--python", "env", "--verify-files", "--no-manifest", "--format", "json"),
    )
    return Kind(f"{site}/{file}" if not file.startswith("env/") else file, seeds, commands, files)


def _train(file: str, *seeds: bytes) -> Kind:
    return Kind(file, seeds, (("doctor", "--facts", "facts.toml", "--train", file),), {"facts.toml": FACTS})


def _listing(file: str, *seeds: bytes) -> Kind:
    commands = (("check", file), ("check", file, "--format", "sarif"))
    return Kind(file, seeds, commands, {"other.txt": b"numpy<3\n"})


EVIL = "evil-1.0.dist-info"
HEAD = b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
KINDS: Mapping[str, Kind] = {
    "facts-toml": Kind(
        "facts.toml",
        (FACTS,),
        tuple(("doctor", "--facts", "facts.toml", "--format", each) for each in ("text", "html")),
    ),
    "facts-json": Kind(
        "facts.json",
        (FACTS_JSON,),
        tuple(("gate", "--facts", "facts.json", "--format", each) for each in ("json", "junit")),
    ),
    "settings": Kind(
        "envcheck.toml",
        (
            (
                b'threshold = "warning"\nundecided = "fail"\nmachines = ["a"]\n[severity]\n"datasets-lt216-huggingface-hub1" = "error"\n'
                b'[machine.a]\ndriver = "535.54"\ngpu = ["A100 80GB"]\n[[waive]]\nrule = "datasets-lt2147-pyarrow21"\nreason = "b"\nuntil = 2030-01-01\n'
            ),
        ),
        (("gate", "--facts", "facts.toml", "--no-manifest"),),
        {"facts.toml": FACTS},
    ),
    "overlay": Kind(
        "own.toml",
        (
            (
                b'[[rule]]\nid = "own"\nseverity = "error"\nbasis = "measured"\ntitle = "t"\nwhy = "w"\n'
                b'when = { "pkg.torch" = ">=2.6,<2.7", "gpu.name" = "present" }\n[[rule.fix]]\nset = { "pkg.torch" = ">=2.7" }\n'
                b'[[rule.sources]]\nurl = "https://corp.example/1"\nkind = "issue"\nchecked = 2026-11-01\n'
                b'[target.mine]\ntitle = "t"\npackages = ["torch"]\ntrain = { zero_stage = 3 }\n[machine.m]\ndriver = "535.54"\n'
            ),
        ),
        (
            ("doctor", "--facts", "facts.toml", "--matrix", "own.toml"),
            ("matrix", "show", "--matrix", "own.toml"),
        ),
        {"facts.toml": FACTS},
    ),
    "requirements": _listing(
        "requirements.txt",
        b"torch==2.6.0+cu124 --hash=" + SHA + b"\n-r other.txt\ndeepspeed>=0.15 ; python_version < '3.12'\n"
        b"--extra-index-url https://download.example/whl/cu124\npeft @ https://x.example/peft-0.14.0-py3-none-any.whl\n",
    ),
    "pylock": _listing(
        "pylock.toml",
        b'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\n'
        b'marker = "python_version >= \'3.9\'"\nwheels = [{ name = "torch-2.6.0-py3-none-any.whl", '
        b'url = "https://x.example/t.whl", hashes = { sha256 = "00" } }]\n',
    ),
    "conda": _listing(
        "environment.yml",
        b"name: train\nchannels: [pytorch, nvidia]\ndependencies:\n  - python=3.11\n  - pytorch=2.4.0=py3.11_cuda12.1\n"
        b"  - pytorch-cuda=12.1\n  - &a numpy=1.26.4\n  - pip:\n    - peft==0.14.0\n",
    ),
    "conda-lock": _listing(
        "conda-lock.yml",
        b"version: 1\npackage:\n- name: pytorch\n  version: 2.4.0\n  manager: conda\n  platform: linux-64\n"
        b"  url: https://conda.example/linux-64/pytorch-2.4.0-cuda120_py311_301.conda\n"
        b"- name: deepspeed\n  version: 0.14.0\n  manager: pip\n  platform: linux-64\n",
    ),
    "conda-list": _listing(
        "conda-linux-64.lock",
        b"# Generated by conda-lock.\n@EXPLICIT\n"
        b"https://conda.example/linux-64/pytorch-2.4.0-cuda120_py311_301.conda#0123\n"
        b"# pip deepspeed @ https://files.example/deepspeed-0.14.0.tar.gz#sha256=45\n",
        b"_libgcc_mutex=0.1=conda_forge\npython=3.11.8=hab00c5b_0\npytorch=2.4.0=cpu_mkl_py311\npeft=0.14.0=pypi_0\n",
        b"# packages in environment at /opt/conda:\n#\n# Name  Version  Build  Channel\n"
        b"numpy  1.26.4  py311_0  conda-forge\ntorch  2.4.0  pypi_0  pypi\n",
    ),
    "pixi-lock": _listing(
        "pixi.lock",
        b"version: 6\nenvironments:\n  default:\n    channels:\n    - url: https://conda.example/x/\n    packages:\n"
        b"      linux-64:\n      - conda: https://conda.example/linux-64/pytorch-2.4.0-cuda120_py311h4ee7bbc_301.conda\n"
        b"      - pypi: https://files.example/deepspeed-0.14.0.tar.gz\npackages:\n"
        b"- pypi: https://files.example/deepspeed-0.14.0.tar.gz\n  name: deepspeed\n  version: 0.14.0\n",
    ),
    "poetry-lock": _listing(
        "poetry.lock",
        b'[[package]]\nname = "torch"\nversion = "2.4.0"\npython-versions = ">=3.8"\ngroups = ["main"]\n'
        b'markers = "sys_platform == \'linux\'"\n[metadata]\npython-versions = ">=3.10,<3.13"\n',
        b'[metadata]\ngroups = ["default"]\n[[metadata.targets]]\nrequires_python = ">=3.10"\n'
        b'[[package]]\nname = "torch"\nversion = "2.4.0"\nrequires_python = ">=3.8"\nmarker = "os_name == \'posix\'"\n',
    ),
    "uv-lock": _listing(
        "uv.lock",
        b'version = 1\nrequires-python = ">=3.11"\nconflicts = [[{ package = "app", extra = "old" },'
        b' { package = "app", extra = "new" }]]\n[[package]]\nname = "app"\nversion = "0.1.0"\n'
        b'source = { virtual = "." }\ndependencies = [{ name = "torch", version = "2.3.1", marker ='
        b' "extra == \'extra-3-app-old\'" }]\n[[package]]\nname = "torch"\nversion = "2.3.1"\n'
        b'source = { registry = "x" }\n',
    ),
    "dockerfile": _listing(
        "Dockerfile",
        b"# syntax=docker/dockerfile:1\nARG V=2.6.0\nFROM nvidia/cuda:12.4.1-devel-ubuntu22.04 AS build\n"
        b"ENV A=1\nRUN pip install torch==${V} \\\n  deepspeed==0.15.4 && rm -rf /x\nCOPY <<EOT /r.txt\nnumpy==2.0\nEOT\n"
        b'RUN ["pip", "install", "peft"]\nFROM build\nRUN python3 -m pip install -r /r.txt\n',
    ),
    "pyproject": _listing(
        "pyproject.toml",
        b'[project]\nname = "x"\ndependencies = ["torch==2.6.0", "peft>=0.14"]\ndynamic = ["version"]\n',
    ),
    "lock": Kind(
        "lock.txt",
        (
            b"# envcheck: lock=1 target=zero3-lora\ntorch==2.6.0 --hash="
            + SHA
            + b"\npeft==0.14.0 \\\n  --hash="
            + SHA
            + b"\n",
        ),
        (("gate", "--facts", "facts.toml", "--lock", "lock.txt", "--no-manifest"),),
        {"facts.toml": FACTS},
    ),
    "lock-pylock": Kind(
        "pylock.toml",
        (
            (
                b'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\n'
                b'wheels = [{ name = "t-2.6.0-py3-none-any.whl", url = "https://x.example/t.whl", hashes = { sha256 = "00" } }]\n'
            ),
        ),
        (("gate", "--facts", "facts.toml", "--lock", "pylock.toml", "--no-manifest"),),
        {"facts.toml": FACTS},
    ),
    "train-toml": _train(
        "train.toml",
        b'[model_arguments]\npretrained_model_name_or_path = "m"\nnetwork_module = "networks.lora"\nnetwork_dim = 32\n'
        b'[training]\nlearning_rate = 1e-4\nmixed_precision = "bf16"\ndates = [1979-05-27]\npeft = {use_lora = true}\n'
        b'[[data]]\npath = "d"\n',
    ),
    "train-yaml": _train(
        "train.yaml",
        b"model_name_or_path: x\nfinetuning_type: lora\ndeepspeed: ds.json\nbf16: true\nlearning_rate: 1.0e-4\n"
        b"base: &b {a: 1}\nmore:\n  <<: *b\n  list: [1, no, ~]\n",
    ),
    "train-json": _train(
        "ds.json",
        b'{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true},\n'
        b' // a comment\n "train_batch_size": "auto", "gradient_clipping": 1.0}\n',
    ),
    "train-shell": _train(
        "run.sh",
        b'#!/bin/bash\nset -e\nN=${SLURM_NNODES:-2}\nARGS="--bf16 true $(cat x)"\nfor i in 1 2 3; do echo $i; done\n'
        b"if [ $N -gt 1 ]; then P=$((N * 8 / 2)); else P=8; fi\ncase $P in 8) X=1;; *) X=2;; esac\n"
        b"torchrun --nproc_per_node $P train.py --deepspeed ds.json $ARGS <<EOT\nhello\nEOT\n",
    ),
    "train-accelerate": _train(
        "accelerate.yaml",
        b"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\ndowncast_bf16: 'no'\nfsdp_config:\n"
        b"  fsdp_version: 2\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: FULL_SHARD\n"
        b"mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
        b"distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n  zero_stage: 3\n",
    ),
    "train-arguments": _train(
        "args.txt",
        b"--model_name_or_path x --use_lora True --bf16 'true' --deepspeed ds.json \\\n --lr=$LR --lora_target_modules q v\n",
        b"trainer.n_gpus_per_node=8 actor_rollout_ref.actor.strategy=fsdp2 +data.x=[1,2] algorithm.adv_estimator=grpo\n",
    ),
    "train-python": _train(
        "train.py",
        b"import torch\nfrom peft import LoraConfig\nfrom transformers import Trainer, TrainingArguments\nR = 16\n"
        b'C = {"bf16": {"enabled": True}}\nargs = TrainingArguments("o", bf16=True, deepspeed=C, **C)\n'
        b'x = LoraConfig(r=R * 2, target_modules=["q_proj"])\nif R > 3:\n    Trainer(args=args).train()\n',
    ),
    "train-notebook": _train(
        "n.ipynb",
        b'{"cells": [{"cell_type": "code", "source": ["%pip install trl\\n", "from trl import SFTConfig\\n",'
        b' "a = SFTConfig(bf16=True)\\n"]}, {"cell_type": "code", "source": "!accelerate launch t.py --bf16 True"}],'
        b' "nbformat": 4}',
    ),
    "train-dockerfile": _train(
        "Dockerfile",
        b'FROM base:1\nENV GPUS=4 A="b c"\nENTRYPOINT ["torchrun", "--nproc_per_node", "4"]\n'
        b'CMD ["train.py", "--bf16", "True", \\\n     "--use_lora", "True"]\n',
    ),
    "train-makefile": _train(
        "Makefile",
        b"GPUS ?= 4\nOUT = runs/$(NAME)\n.PHONY: train\ntrain: clean ## trains\n\ttorchrun --nproc_per_node $(GPUS) \\\n"
        b"\t\ttrain.py --bf16 True --output_dir $(OUT)\nclean:\n\t$(eval NOW := $(shell date))\n\t@rm -rf $(OUT)\n",
    ),
    "train-job": _train(
        "job.yaml",
        b"apiVersion: v1\nkind: Service\n---\napiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n"
        b'      containers:\n        - name: t\n          env: [{ name: N, value: "2" }]\n          command: ["bash", "-c"]\n'
        b"          args:\n            - |\n              torchrun --nproc_per_node $N train.py --bf16 True\n",
        b"resources:\n  accelerators: H100:8\nnum_nodes: 2\nenvs:\n  M: x\nrun: |\n  torchrun --nnodes $SKYPILOT_NUM_NODES"
        b" train.py --model_name_or_path $M --fp16 True\n",
        b"on: push\njobs:\n  a:\n    steps:\n      - run: |\n          torchrun --nproc_per_node 2 train.py --bf16 True\n",
        b"services:\n  a:\n    environment: [A=b]\n    command: torchrun train.py --bf16 True\n",
        b"program: train.py\nmethod: grid\nparameters:\n  bf16: {value: true}\n  learning_rate: {values: [1, 2]}\n"
        b'command: ["${env}", torchrun, "${program}", "${args}"]\n',
    ),
    "train-debug": _train(
        "launch.json",
        b'{"configurations": [{"request": "launch", "program": "${workspaceFolder}/train.py", "env": {"A": "b"}, '
        b'"args": ["--bf16", "True", "--output_dir", "o"]}]}',
    ),
    "train-hydra": _train(
        "config.yaml",
        b"defaults:\n  - model: a\n  - b@c: d\n  - _self_\nmodel: {lora: {r: 8, alpha: 16}}\nprecision: bf16\nepochs: 1\n",
        b"trainer:\n  accelerator: gpu\n  devices: 4\n  strategy: deepspeed_stage_3\n  precision: bf16-mixed\n",
    ),
    "train-slurm": _train(
        "job.sh",
        b"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsource ./common.sh once\n"
        b"srun --cpu-bind=cores python train.py --bf16 True $EXTRA\n",
    ),
    "train-sourced": Kind(
        "common.sh",
        (
            (
                b'EXTRA="--zero_stage 3 --param_dtype bf16"\nf() { local X=$1; shift; echo "${X%%/*}" "$@"; }\n'
                b"if [[ ${1} != once ]]; then\n  deepspeed --module $EXTRA\nfi\n"
            ),
        ),
        (("doctor", "--facts", "facts.toml", "--train", "run.sh", "-v"),),
        {
            "facts.toml": FACTS,
            "run.sh": b"source ./common.sh once\ntorchrun -m openrlhf.cli.train_sft $EXTRA\n",
        },
    ),
    "difference": Kind(
        "b.json",
        (FACTS_JSON,),
        (("facts", "--diff", "a.json", "b.json"),),
        {"a.json": FACTS_JSON},
    ),
    "nodes": Kind(
        "nodes.jsonl",
        (FACTS_JSON + b"\n" + FACTS_JSON.replace(b"Ring", b"Tree") + b'\n{\n"host": {"name": "n3"}\n}\n',),
        (("fleet", "nodes.jsonl"), ("fleet", "nodes.jsonl", "--json", "--expect", "n[1-3]")),
    ),
    "node-toml": Kind("node.toml", (FACTS,), (("fleet", "node.toml"),)),
    "manifest": Kind(
        "manifest.json",
        (
            (
                b'{"schema_version": 1, "envcheck": "0.1.0", "matrix": {}, "undecided": "warn", "target": null, "train": {},'
                b' "date": "2026-11-20", "python": "3.11.7", "platform": "linux-x86_64",'
                b' "packages": {"torch": "2.6.0"}, "cuda": "12.4", "cuda_compat": null, "minimum_driver": "525.60.13", "architectures": ["sm_80"],'
                b' "unknown": {}, "machines": [{"name": "a", "driver": "535.54", "gpus": ["A100"]}], "gate": {"verdict": "open", "reasons": []}}'
            ),
        ),
        (("gate", "--runtime", "--manifest", "manifest.json", "--timeout", "1"),),
    ),
    "log": Kind(
        "train.log",
        (
            (
                b'[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/train.py", line 3, in main\n'
                b"[rank0]:     x()\n[rank0]: RuntimeError: CUDA error: no kernel image is available for execution\n"
                b"  File \"a.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"
                b'ray.exceptions.RayTaskError(ValueError): ray::f()\n  File "t.py", line 2, in f\nValueError: x\n'
                b"Failures:\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 12)\n  error_file: <N/A>\n"
                b"  traceback : Signal 9 (SIGKILL) received\n 50%|#####     | 5/10 [00:01<00:01]\r 60%|\nKilled\n"
            ),
        ),
        (
            ("explain", "train.log", "--facts", "facts.toml"),
            ("explain", "train.log", "--json", "--facts", "facts.toml"),
        ),
        {"facts.toml": FACTS},
    ),
    "model": Kind(
        "model/config.json",
        (
            (
                b'{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,'
                b' "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "torch_dtype": "bfloat16"}'
            ),
        ),
        (("fit", "--model", "model", "--facts", "facts.toml"),),
        {"facts.toml": FACTS},
    ),
    "safetensors": Kind(
        "model/model.safetensors",
        (
            (
                b"\x62\0\0\0\0\0\0\0"
                b'{"__metadata__": {}, "a.weight": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [0, 128]}}    '
            ),
        ),
        (("fit", "--model", "model", "--facts", "facts.toml"),),
        {"facts.toml": FACTS, "model/config.json": b'{"model_type": "unheard-of"}'},
    ),
    "metadata": _of_environment(
        f"{EVIL}/METADATA",
        HEAD
        + b"Requires-Dist: torch (>=2.0,<3) ; python_version >= '3.8' and (os_name == 'posix' or extra == 'x')\n"
        b"Requires-Dist: numpy\n  >=1.20\nRequires-Dist: a[b,c]~=1.0\nRequires-Dist: u @ https://x.example/u.whl\n\nText\n",
    ),
    "record": _of_environment(
        f"{EVIL}/RECORD",
        b'evil/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\nevil/_C.cpython-311-x86_64-linux-gnu.so,,\n"a,b.py",,\n',
        beside={f"{EVIL}/METADATA": HEAD + b"Requires-Dist: torch\n", "evil/__init__.py": b""},
    ),
    "direct-url": _of_environment(
        f"{EVIL}/direct_url.json",
        b'{"dir_info": {"editable": true}, "url": "file:///src/evil"}',
        beside={f"{EVIL}/METADATA": HEAD, "evil.pth": b"/src/evil\n"},
    ),
    "egg": _of_environment("evil.egg-link", b"/src/evil\n."),
    "requires-txt": _of_environment(
        "evil-1.0.egg-info/requires.txt",
        b"torch>=2\n\n[x]\nnumpy\n\n[:python_version < '3.9']\nsix\n",
        beside={"evil-1.0.egg-info/PKG-INFO": HEAD},
    ),
    "pth": _of_environment("evil.pth", b"/src/evil\nimport os; os.x\n../site-packages\n"),
    "pyvenv": _of_environment(
        "env/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.7\n"
    ),
    "version-py": _of_environment(
        "torch/version.py",
        b"from typing import Optional\n__version__ = '2.6.0+cu124'\ndebug = False\ncuda: Optional[str] = '12.4'\n",
    ),
    "conda-meta": _of_environment(
        "env/conda-meta/pytorch-2.6.0-py3.11_cuda12.4_0.json",
        b'{"name": "pytorch", "files": ["lib/python3.11/site-packages/x"]}',
    ),
}
