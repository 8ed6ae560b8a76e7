"""What self-tests that train share: a tiny random model, its batches, and DeepSpeed around it."""

from __future__ import annotations

import contextlib
import math
import os

from _context import TestContext
from _recompute import LayerPasses

HIDDEN, LAYERS, VOCABULARY, SEQUENCE = 64, 2, 128, 16
"""The tiny model: hidden 64, two layers, four heads, two key heads; about 0.1 million parameters."""


class TrainingContext(TestContext):
    """A test context that makes models and trains them."""

    # --- models --------------------------------------------------------------------------------------

    def tiny_model(
        self,
        adapter="none",
        checkpointing=None,
        family="qwen2",
        dtype=None,
        context=None,
        seed=0,
        dropout=0.0,
        **peft_options,
    ):
        """Return a tiny random Llama or Qwen2, made in memory, in training mode, on the CPU.

        Args:
            adapter: "none", "lora" or "dora", on q_proj and v_proj, rank 8.
            checkpointing: None for off, else the value of `use_reentrant`.
            family: "llama" or "qwen2".
            dtype: torch dtype of the base; float32 if None.
            context: a context manager under which the base is made (`deepspeed.zero.Init`).
            seed: seed of all weights.
            dropout: the adapter's dropout; with 0 a recompute has no random state to restore.
            peft_options: further arguments of PEFT's get_peft_model (`autocast_adapter_dtype`).
        """
        import torch
        import transformers

        torch.manual_seed(seed)
        model_class, config_class = {
            "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
            "qwen2": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config),
        }[family]
        with context or contextlib.nullcontext():
            model = model_class(
                config_class(
                    vocab_size=VOCABULARY,
                    hidden_size=HIDDEN,
                    intermediate_size=2 * HIDDEN,
                    num_hidden_layers=LAYERS,
                    num_attention_heads=4,
                    num_key_value_heads=2,
                    max_position_embeddings=64,
                    use_cache=False,
                )
            )
        if dtype is not None:
            model = model.to(dtype)
        if checkpointing is not None:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": checkpointing}
            )
            if adapter != "none":
                # Otherwise reentrant checkpointing finds no input that requires a gradient.
                model.enable_input_require_grads()
        if adapter != "none":
            model = self.with_adapter(model, adapter, seed, dropout, **peft_options)
        return model.train()

    def pretrained_model(
        self,
        adapter="none",
        checkpointing=None,
        family="qwen2",
        zero=None,
        dropout=0.0,
        prepare=True,
        **load_options,
    ):
        """Return the tiny model, saved to a folder and loaded with from_pretrained as users load theirs.

        `zero` is a DeepSpeed configuration; with ZeRO stage 3, the weights are sharded while they are loaded.
        With `prepare`, PEFT prepares a quantised base, which turns its other weights into float32.
        `load_options` are further arguments of from_pretrained (`quantization_config`, `device_map`). The
        other arguments are those of `tiny_model`.
        """
        import transformers

        folder = os.path.join(self.scratch, f"{self.key}.{self.rank}.model")
        if not os.path.isdir(folder):
            self.tiny_model(family=family).save_pretrained(folder)
        if zero is not None:
            self.import_deepspeed()
            from transformers.integrations import HfDeepSpeedConfig

            # from_pretrained finds the configuration only while this object is alive.
            registered = HfDeepSpeedConfig(zero)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **load_options)
        if zero is not None and zero["zero_optimization"]["stage"] == 3:
            whole = [name for name, weight in model.named_parameters() if not hasattr(weight, "ds_id")]
            if whole:
                self.fail(f"from_pretrained under ZeRO-3 left {whole[0]} whole")
        model.config.use_cache = False
        quantized = "quantization_config" in load_options and prepare
        if checkpointing is not None and not quantized:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": checkpointing}
            )
            model.enable_input_require_grads()
        if quantized:
            import peft

            model = peft.prepare_model_for_kbit_training(
                model,
                use_gradient_checkpointing=checkpointing is not None,
                gradient_checkpointing_kwargs={"use_reentrant": bool(checkpointing)},
            )
        if adapter != "none":
            model = self.with_adapter(model, adapter, dropout=dropout)
        if zero is not None:
            del registered
        return model.train()

    def with_adapter(self, model, adapter, seed=0, dropout=0.0, **peft_options):
        """Return the model with a PEFT adapter whose two matrices are random.

        PEFT starts the second matrix at zero, which would hide half of the gradients.
        """
        import peft
        import torch

        dora = {"use_dora": True} if adapter == "dora" else {}
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=8,
            lora_alpha=16,
            target_modules=["q_proj", "v_proj"],
            lora_dropout=dropout,
            init_lora_weights=False,
            **dora,
        )
        torch.manual_seed(seed + 1)
        return peft.get_peft_model(model, config, **peft_options)

    def record_passes(self, model):
        """Record every pass through the decoder layers of a model from now on; see `LayerPasses`."""
        layers = [module for module in model.modules() if type(module).__name__.endswith("DecoderLayer")]
        if len(layers) != LAYERS:
            raise RuntimeError(f"{len(layers)} decoder layers in the tiny model, expected {LAYERS}")
        return LayerPasses(self, layers)

    def word_tokenizer(self, words, special=()):
        """Return a tokenizer with a token for each word; `special` are tokens that stand within a text."""
        import tokenizers
        import transformers

        pad, end, unknown = "<pad>", "<eos>", "<unk>"
        numbers = {word: number for number, word in enumerate((pad, end, unknown, *special, *words))}
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=unknown))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        inner.add_special_tokens(list(special))
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=inner, pad_token=pad, eos_token=end, unk_token=unknown, padding_side="left"
        )

    # --- training ------------------------------------------------------------------------------------

    def batch(self, step=0, device=None):
        """Return token ids of shape (1, SEQUENCE), the same for the same step on every rank."""
        import torch

        generator = torch.Generator().manual_seed(1000 + step)
        ids = torch.randint(0, VOCABULARY, (1, SEQUENCE), generator=generator)
        return ids.to(device if device is not None else self.device)

    def check_losses_finite(self, losses):
        """Fail if a loss is NaN or infinite."""
        for step, loss in enumerate(losses):
            if not math.isfinite(loss):
                self.fail(f"the loss of step {step} is {loss}")

    # --- DeepSpeed -----------------------------------------------------------------------------------

    def deepspeed_config(self, stage, precision="fp32", clipping=1.0, offload=(), **zero_options):
        """Return a DeepSpeed configuration of one micro batch.

        `stage` is the ZeRO stage; `offload` names "optimizer", "param" or both.
        """
        optimization = {
            "stage": stage,
            "overlap_comm": False,
            "contiguous_gradients": True,
            # gloo of older torch has no reduce_scatter.
            "reduce_scatter": self.device_type != "cpu",
            **zero_options,
        }
        if stage == 3:
            # With a threshold of 0 no parameter stays whole: tiny tensors are sharded like large ones.
            optimization.setdefault("stage3_param_persistence_threshold", 0)
        for part in offload:
            optimization[f"offload_{part}"] = {"device": "cpu", "pin_memory": self.device_type != "cpu"}
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": clipping,
            "zero_optimization": optimization,
            # DeepSpeedCPUAdam would have to be compiled; these tests are about where tensors are.
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 1000000,
        }
        if precision != "fp32":
            config[precision] = {"enabled": True}
        return config

    def import_deepspeed(self):
        """Import DeepSpeed and join its process group, without the op it would first compile on a CPU."""
        dist = self.join_process_group()
        with self.call("import deepspeed"):
            import deepspeed
        if self.device_type == "cpu":
            # Plain gloo is enough; otherwise a shared-memory op is compiled at first use (30 to 60 s).
            for name in list(deepspeed.ops.__compatible_ops__):
                if "shm" in name:
                    deepspeed.ops.__compatible_ops__[name] = False
        with self.call("deepspeed.init_distributed"):
            deepspeed.init_distributed(dist_backend=dist.get_backend())
        return deepspeed

    def deepspeed_engine(self, deepspeed, model, config, rate=1e-3):
        """Return the model under DeepSpeed, with torch's AdamW over its trainable parameters."""
        import torch

        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        with self.call("deepspeed.initialize"):
            engine, *_ = deepspeed.initialize(
                model=model,
                config=config,
                model_parameters=trainable,
                optimizer=torch.optim.AdamW(trainable, lr=rate),
            )
        # A test that silently trained without DeepSpeed would prove nothing.
        if type(engine).__name__ != "DeepSpeedEngine":
            self.fail(f"deepspeed.initialize gave a {type(engine).__name__}, not a DeepSpeedEngine")
        self.settle()
        return engine

    def settle(self):
        """Wait on the CPU until every collective that a rank has started is complete.

        gloo works on several collectives at a time. DeepSpeed before 0.19.8 starts many gathers and waits for
        the last of them only, which is enough in a CUDA stream; a weight read then may not be written yet. A
        barrier of gloo waits for all earlier collectives.
        """
        if self.device_type == "cpu":
            self.join_process_group().barrier()
