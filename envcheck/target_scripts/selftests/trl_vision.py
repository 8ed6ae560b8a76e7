"""The SFTTrainer of TRL trains a vision-language model on images and texts.

A tiny random Qwen2.5-VL (hidden size 64, two layers in the language model, two in the vision tower) takes two
steps through `SFTTrainer.train` with a LoRA on its language model, on images of 56 by 56 pixels that are made
in memory and texts of one word a token. Its processor is Qwen2.5-VL's own, with torchvision behind it. TRL's
defaults hold, among them bfloat16 and gradient checkpointing. The trainer must have taken the steps, the
losses must be finite, another image must give another loss, and the steps must have moved the adapter and
nothing else. Seconds: 3 to 20. Memory: below 1 GiB, nearly all of it libraries.

A failure means that TRL, transformers, torchvision, pillow, PEFT and torch do not fit together, although each
of them imports.
"""

LEVEL = 2
NEEDS = {
    "pkg.torch": "present",
    "pkg.torchvision": "present",
    "pkg.transformers": ">=4.57",
    "pkg.accelerate": "present",
    "pkg.peft": "present",
    "pkg.trl": ">=0.24.0",
}
IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._inductor.scheduler",
    "transformers",
    "peft",
    "accelerate",
    "datasets",
)
SECONDS = 240

TRAIN = {
    "trainer": "trl",
    "method": "sft",
    "parallel": "none",
    "adapter": "lora",
    "quantization": "none",
    "gradient_checkpointing": True,
    "precision": "bf16",
}
VARIANTS = {"trl-sft-vision": {"train": {"model_type": "qwen2_5_vl"}}}

STEPS = 2
IMAGE, VIDEO, BEGIN, END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
PROMPT = f"{BEGIN}{IMAGE}{END}this is"
WORDS = ("red", "green", "blue", "this", "is")


def run(test, variant):
    test.require_bf16()
    with test.call("import trl"):
        import trl
    processor = build_processor(test)
    trainer = build_trainer(test, trl, processor)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    check_sees(test, trainer.model, processor)
    with test.call("SFTTrainer.train"):
        trainer.train()
    if trainer.state.global_step != STEPS:
        test.fail(f"{STEPS} steps were asked for, the trainer took {trainer.state.global_step}")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    test.check_losses_finite(losses)
    moved = {
        name: bool((weight.detach() != before[name]).any())
        for name, weight in trainer.model.named_parameters()
    }
    strange = [name for name, changed in moved.items() if changed and "lora_" not in name]
    if strange:
        test.fail(f"{STEPS} steps moved {strange[0]}, which is frozen")
    if not any(moved.values()):
        test.fail(f"{STEPS} steps did not move the adapter")
    test.record(losses=losses)


def check_sees(test, model, processor):
    """Fail unless another image gives another loss: a model that does not see would train, too."""
    import torch

    found = []
    with test.call("forward with an image"), torch.no_grad():
        for colour in ("red", "blue"):
            inputs = processor(images=[[image(colour)]], text=[f"{PROMPT} red"], return_tensors="pt")
            inputs = {name: tensor.to(test.device) for name, tensor in inputs.items()}
            inputs["pixel_values"] = inputs["pixel_values"].to(torch.bfloat16)
            found.append(float(model(**inputs, labels=inputs["input_ids"]).loss))
    if found[0] == found[1]:
        test.fail(f"the loss is {found[0]} whatever the image shows")


def image(colour):
    from PIL import Image

    return Image.new("RGB", (56, 56), colour)


def build_processor(test):
    import transformers

    tokenizer = test.word_tokenizer(WORDS, special=(IMAGE, VIDEO, BEGIN, END))
    with test.call("Qwen2_5_VLProcessor"):
        return transformers.Qwen2_5_VLProcessor(
            image_processor=transformers.Qwen2VLImageProcessorFast(min_pixels=56 * 56, max_pixels=56 * 56),
            tokenizer=tokenizer,
            video_processor=transformers.Qwen2VLVideoProcessor(),
            chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
        )


def build_model(test, tokenizer):
    """Return a tiny random Qwen2.5-VL in bfloat16."""
    import torch
    import transformers

    torch.manual_seed(0)
    numbers = tokenizer.convert_tokens_to_ids
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
            "rope_scaling": {"rope_type": "default", "type": "default", "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        },
        image_token_id=numbers(IMAGE),
        video_token_id=numbers(VIDEO),
        vision_start_token_id=numbers(BEGIN),
        vision_end_token_id=numbers(END),
    )
    with test.call("Qwen2_5_VLForConditionalGeneration"):
        return transformers.Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16).to(test.device)


def build_trainer(test, trl, processor):
    import datasets
    import peft

    colours = ("red", "green", "blue", "red")
    rows = datasets.Dataset.from_dict(
        {
            "prompt": [PROMPT] * len(colours),
            "completion": [f" {colour}" for colour in colours],
            "images": [[image(colour)] for colour in colours],
        }
    )
    with test.call("SFTTrainer"):
        arguments = trl.SFTConfig(
            output_dir=f"{test.scratch}/{test.key}.{test.rank}.out",
            max_steps=STEPS,
            per_device_train_batch_size=2,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=test.device_type == "cpu",
            bf16=True,
            gradient_checkpointing=True,
            max_length=None,
        )
        return trl.SFTTrainer(
            model=build_model(test, processor.tokenizer),
            args=arguments,
            train_dataset=rows,
            processing_class=processor,
            peft_config=peft.LoraConfig(
                task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False
            ),
        )
