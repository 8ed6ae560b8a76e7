"""The trainer of sentence-transformers trains, and brings nearer what belongs together.

A tiny random BERT (hidden size 32, two layers), saved to a folder and loaded as users load it, takes eight
steps through `SentenceTransformerTrainer.train` with in-batch negatives (`MultipleNegativesRankingLoss`) on
eight pairs of words; the tokenizer and the pairs are made in memory. The trainer must have taken the steps,
every loss must be finite and the last one below the first, and the embeddings must have moved. Seconds: 2 to
10. Memory: below 1 GiB, nearly all of it libraries.

A failure in `train` means that sentence-transformers, transformers, accelerate, datasets and torch do not fit
together, although each of them imports.
"""

LEVEL = 2
NEEDS = {
    "pkg.torch": "present",
    "pkg.transformers": "present",
    "pkg.accelerate": "present",
    "pkg.sentence-transformers": ">=3.0.0",
}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "accelerate", "datasets")
SECONDS = 180

TRAIN = {"trainer": "sentence_transformers", "method": "embedding", "parallel": "none", "adapter": "none"}
VARIANTS = {"embedding-bf16": {"train": {"precision": "bf16"}}}

STEPS = 8
PAIRS = tuple((f"a{number}", f"b{number}") for number in range(8))


def run(test, variant):
    test.require_bf16()
    with test.call("import sentence_transformers"):
        import sentence_transformers
    model = build(test, sentence_transformers)
    before = model.encode([one for one, _ in PAIRS], convert_to_tensor=True).float().cpu()
    trainer = build_trainer(test, sentence_transformers, model)
    with test.call("SentenceTransformerTrainer.train"):
        trainer.train()
    if trainer.state.global_step != STEPS:
        test.fail(f"{STEPS} steps were asked for, the trainer took {trainer.state.global_step}")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    test.check_losses_finite(losses)
    if len(losses) != STEPS or not losses[-1] < losses[0]:
        test.fail(f"the loss does not fall in {STEPS} steps: {losses}")
    after = model.encode([one for one, _ in PAIRS], convert_to_tensor=True).float().cpu()
    if not bool((after != before).any()):
        test.fail(f"{STEPS} steps did not move the embeddings")
    test.record(losses=losses)


def build(test, sentence_transformers):
    """Return an embedding model over a BERT that was saved to a folder, with mean pooling."""
    import os

    import torch
    import transformers

    folder = os.path.join(test.scratch, f"{test.key}.{test.rank}.bert")
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(word for pair in PAIRS for word in pair)]
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer(words).save_pretrained(folder)
    with test.call("SentenceTransformer"):
        return sentence_transformers.SentenceTransformer(folder, device=str(test.device))


def tokenizer(words):
    """Return BERT's kind of tokenizer with a token for each word."""
    import tokenizers
    import transformers

    pad, unknown, first, last, mask = words[:5]
    numbers = {word: number for number, word in enumerate(words)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=unknown))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, 2), (last, 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=pad,
        unk_token=unknown,
        cls_token=first,
        sep_token=last,
        mask_token=mask,
        model_max_length=16,
    )


def build_trainer(test, sentence_transformers, model):
    import datasets
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    pairs = datasets.Dataset.from_dict(
        {"anchor": [one for one, _ in PAIRS], "positive": [other for _, other in PAIRS]}
    )
    with test.call("SentenceTransformerTrainer"):
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=f"{test.scratch}/{test.key}.{test.rank}.out",
            max_steps=STEPS,
            per_device_train_batch_size=len(PAIRS),
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=test.device_type == "cpu",
            bf16=True,
        )
        return sentence_transformers.SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=pairs,
            loss=MultipleNegativesRankingLoss(model),
        )
