"""Try to wrap a tiny Llama in LoRA, and to run forward, backward and one step, on the CPU."""

import sys


def train():
    """Train one step; raise what the libraries raise."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules=["q_proj"]))
    tokens = torch.arange(8).reshape(1, 8)
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1).step()


try:
    train()
except (ImportError, TypeError, AttributeError, ValueError) as error:
    print("%s: %s" % (type(error).__name__, str(error).strip().splitlines()[0]))
    sys.exit(1)
