"""Models and trainings of seconds on the CPU, for the programs of proofs: `from tiny import llama, train`."""


def llama(**settings):
    """Return a Llama with random weights, of one layer, 2 heads, hidden size 16 and 32 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**{**sizes, "num_attention_heads": 2, **settings}))


def lora(model, **settings):
    """Return a model with LoRA of rank 8 on the query projections."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model, LoraConfig(**{"target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **settings})
    )


def rows(count=4, length=8):
    """Return `count` examples with `length` tokens: input_ids, attention_mask and labels as lists."""
    tokens = [each % 32 for each in range(length)]
    row = {"input_ids": tokens, "attention_mask": [1] * length, "labels": tokens}
    return [dict(row) for _ in range(count)]


def arguments(**settings):
    """Return TrainingArguments for one step, which write nothing and report to nobody."""
    from transformers import TrainingArguments

    settings = {
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "save_strategy": "no",
        **settings,
    }
    return TrainingArguments(output_dir="out", **settings)


def train(model, examples=None, callbacks=None, **settings):
    """Train one step with the Trainer of transformers, and return the Trainer; raise what it raises."""
    from transformers import Trainer

    trainer = Trainer(
        model=model, args=arguments(**settings), train_dataset=examples or rows(), callbacks=callbacks
    )
    trainer.train()
    return trainer
