"""Gradient checkpointing recomputes what was computed.

A tiny random Qwen2 (see `_stage.py`), float32, one sequence of 16 tokens, two steps. torch compares the
shape, dtype and device of every tensor it recomputes with those saved. Seconds: 1 to 3 a variant.
Memory: below 1 GiB, nearly all of it libraries.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present", "pkg.peft": "present"}
IMPORTS = ("torch", "transformers", "peft")
SECONDS = 90
RANKS = (1, 64)
_DEEPSPEED = {"pkg.deepspeed": "present"}
VARIANTS = {
    "zero3-lora-nonreentrant": {
        "needs": {"pkg.deepspeed": "present"},
        "train": {
            "parallel": "deepspeed",
            "zero_stage": 3,
            "adapter": "lora",
            "dora": False,
            "use_reentrant": False,
            "gradient_checkpointing": True,
        },
    },
    "zero3-lora-reentrant": {
        "needs": {"pkg.deepspeed": "present"},
        "train": {
            "parallel": "deepspeed",
            "zero_stage": 3,
            "adapter": "lora",
            "dora": False,
            "use_reentrant": True,
            "gradient_checkpointing": True,
        },
    },
}


def run(stage, variant):
    deepspeed = stage.deepspeed()
    model = stage.model("lora", checkpointing=variant.endswith("-reentrant"))
    engine = stage.engine(deepspeed, model, stage.deepspeed_config(3))
    for step in range(2):
        ids = stage.batch(step)
        with stage.call("forward"):
            loss = engine(input_ids=ids, labels=ids).loss
        with stage.call("backward"):
            engine.backward(loss)
        with stage.call("step"):
            engine.step()
