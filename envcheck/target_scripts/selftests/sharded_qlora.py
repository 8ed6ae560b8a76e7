"""A 4-bit base that FSDP shares among ranks trains as it does in one process.

A tiny random Llama (see `_training.py`) is loaded in NF4 with its 4-bit weights stored in bfloat16, as PEFT's
guide to FSDP with QLoRA asks, and gets a LoRA. Two steps of AdamW run under FullyShardedDataParallel with
PEFT's wrap policy, and again in one process with the same batch on every rank. The losses must agree within
2^-5, a few rounding errors of bfloat16 (2^-9 each), and the adapter must have moved. Seconds: 2 to 8. Memory:
below 1 GiB, nearly all of it libraries.

A failure means that the 4-bit weights do not survive being flattened, sharded and gathered.
"""

import os

LEVEL = 3
NEEDS = {
    "pkg.torch": ">=2.4",
    "pkg.transformers": ">=4.46",
    "pkg.peft": ">=0.12.0",
    "pkg.bitsandbytes": ">=0.46",
}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft")
SECONDS = 120
RANKS = (2, 16)

TRAIN = {
    "trainer": "custom",
    "parallel": "fsdp1",
    "fsdp_wrap": "peft",
    "fsdp_mixed_precision": True,
    "fsdp_use_orig_params": False,
    "adapter": "lora",
    "quantization": "nf4",
    "quant_storage": "bfloat16",
    "compute_dtype": "bfloat16",
    "gradient_checkpointing": True,
    "precision": "bf16",
}
VARIANTS = {
    "fsdp1-qlora-nonreentrant": {"train": {"use_reentrant": False}},
    "fsdp1-qlora-reentrant": {"train": {"use_reentrant": True}},
}

STEPS, RATE, TOLERANCE = 2, 1e-2, 2.0**-5


def run(test, variant):
    test.require_bf16()
    reentrant = VARIANTS[variant]["train"]["use_reentrant"]
    # Before the ranks join: transformers 5 saves a model on the first rank of a group only.
    expected, _ = train(test, build(test, reentrant), "alone")
    test.join_process_group()
    losses, moved = train(test, wrap(test, build(test, reentrant)), "under FSDP")
    test.record(losses=losses, alone=expected)
    test.check_losses_finite(losses)
    for step, (found, loss) in enumerate(zip(losses, expected)):
        if not abs(found - loss) <= TOLERANCE * abs(loss):
            test.fail(f"the loss of step {step} is {found:.6g} under FSDP, {loss:.6g} in one process")
    # The shard of one rank may hold frozen weights only.
    if not any(test.exchange(moved, "moved")):
        test.fail(f"{STEPS} steps did not move the adapter")


def build(test, reentrant):
    """Return the 4-bit model with its adapter in bfloat16, as FSDP needs all weights of a unit."""
    import torch
    import transformers

    bf16 = torch.bfloat16
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=bf16,
        bnb_4bit_quant_storage=bf16,
    )
    with test.call("from_pretrained in 4 bits"):
        model = test.pretrained_model(
            family="llama",
            quantization_config=config,
            torch_dtype=bf16,
            device_map={"": test.device},
            prepare=False,
        )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    model = test.with_adapter(model, "lora", autocast_adapter_dtype=False)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(bf16)
    return model.train()


def wrap(test, model):
    """Return the model in FullyShardedDataParallel, as accelerate wraps it with PEFT's policy."""
    import torch
    from peft.utils.other import fsdp_auto_wrap_policy
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    bf16 = torch.bfloat16
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = "LlamaDecoderLayer"
    with test.call("wrapping in FSDP"):
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=fsdp_auto_wrap_policy(model),
            mixed_precision=MixedPrecision(param_dtype=bf16, reduce_dtype=bf16, buffer_dtype=bf16),
            use_orig_params=False,
            device_id=test.device,
        )


def train(test, model, where):
    """Take the steps; return the losses, and whether a weight that trains moved on this rank."""
    import torch

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    before = [weight.detach().clone() for weight in trained]
    optimizer = torch.optim.AdamW(trained, lr=RATE)
    ids = test.batch()
    losses = []
    for _ in range(STEPS):
        with test.call(f"forward {where}"):
            loss = model(input_ids=ids, labels=ids).loss
        with test.call(f"backward {where}"):
            loss.backward()
        with test.call(f"step {where}"):
            optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, any(bool((now.detach() != was).any()) for now, was in zip(trained, before))
