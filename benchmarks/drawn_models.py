"""Make the tiny model, the words, the examples and the adapter that a drawn training asks for.

It runs in the target's interpreter, as drawn_training.py does.
"""

import inspect
import json
import os

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SETTINGS = json.loads(os.environ["DRAWN_TRAINING"])
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
OWN_SIZES = {
    "mixtral": {"num_local_experts": 4},
    "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 32},
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 1, "reference_compile": False},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4},
    "bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mamba": {"state_size": 8},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 32},
}
for _half in ("encoder", "decoder"):
    OWN_SIZES["bart"] |= {f"{_half}_ffn_dim": 32, f"{_half}_attention_heads": 4}
for _same, _of in (("mt5", "t5"), ("mbart", "bart"), ("pegasus", "bart")):
    OWN_SIZES[_same] = dict(OWN_SIZES[_of])
STARTS = {"t5": 0, "mt5": 0, "bart": 1, "mbart": 1, "pegasus": 0}
"""The first token of a decoder, for each model that has one."""

CLASSES = {
    "causal": "AutoModelForCausalLM",
    "classification": "AutoModelForSequenceClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
TASKS = {"causal": "CAUSAL_LM", "classification": "SEQ_CLS", "seq2seq": "SEQ_2_SEQ_LM", "vision": None}
TEXTS = ["w1 w2 w3 w4 w5 w6 <eos>", "w3 w4 w5 <eos>", "w9 w8 w7 w6 w5 w4 w3 w2 <eos>", "w2 w2 <eos>"] * 4
IMAGE_TOKEN = 60
NORMS = []
"""Names of the modules that normalise, once the model is written."""


def has(function, name):
    """Return whether a function has a parameter."""
    return name in inspect.signature(function).parameters


def accepted(function, **values):
    """Return the arguments that a function has."""
    return {name: value for name, value in values.items() if has(function, name)}


def tokenizer():
    """Return a tokenizer of words, `w0` to `w60`."""
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(61))]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    if SETTINGS["family"] == "classification":
        special |= {"cls_token": "<eos>", "sep_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=32, **special)


# --- the model --------------------------------------------------------------------------------------


def configuration():
    """Return the configuration of the model."""
    kind = SETTINGS["model_type"]
    if SETTINGS["family"] == "vision":
        return _configuration_with_images(kind)
    values = {**SIZES, **OWN_SIZES.get(kind, {})}
    if isinstance(getattr(CONFIG_MAPPING[kind], "head_dim", None), property):
        del values["head_dim"]
    if SETTINGS["tied"]:
        values["tie_word_embeddings"] = True
    if kind in STARTS:
        values["decoder_start_token_id"] = STARTS[kind]
    if family() == "classification":
        values["num_labels"] = 1 if SETTINGS["method"] == "reward" else 2
    return CONFIG_MAPPING[kind](**values)


def _configuration_with_images(kind):
    text = {**SIZES, "vocab_size": 64}
    if kind == "llava":
        seen = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
        seen |= {"image_size": 8, "patch_size": 4, "projection_dim": 16}
        of = CONFIG_MAPPING["llava"]
        more = accepted(of, image_seq_length=4)
        return of(
            vision_config=CONFIG_MAPPING["clip_vision_model"](**seen),
            text_config=CONFIG_MAPPING["llama"](**text),
            image_token_index=IMAGE_TOKEN,
            **more,
        )
    rope = {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}
    seen = {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3}
    seen |= {"in_chans": 3, "num_heads": 2, "depth": 2, "intermediate_size": 16}
    if kind == "qwen2_vl":
        seen |= {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    else:
        seen |= {"hidden_size": 16, "out_hidden_size": 32, "window_size": 16, "fullatt_block_indexes": [1]}
    special = {"image_token_id": IMAGE_TOKEN, "vision_start_token_id": 58, "vision_end_token_id": 59}
    special["video_token_id"] = 61
    return CONFIG_MAPPING[kind](**text, rope_scaling=rope, vision_config=seen, **special)


def write(words):
    """Write the folder of the model that users have before they train."""
    kind, made = class_of_model(), configuration()
    first = kind.from_config(made) if hasattr(kind, "from_config") else kind(made)
    NORMS.extend({name.split(".")[-1] for name, each in first.named_modules() if _normalises(each)})
    first.save_pretrained("base")
    words.save_pretrained("base")


def _normalises(module):
    return "norm" in type(module).__name__.lower() and bool([*module.parameters()])


def family():
    """Return the family of the model; rewards are those of classifiers."""
    return "classification" if SETTINGS["method"] == "reward" else SETTINGS["family"]


def class_of_model():
    """Return the class that loads the model."""
    return getattr(transformers, CLASSES.get(family()) or _class_with_images())


def model(words, quantisation=None):
    """Return the model, loaded from its folder as users load one."""
    loading = {"torch_dtype": SETTINGS["base_dtype"]}
    if SETTINGS["base_dtype"] != "auto":
        loading["torch_dtype"] = getattr(torch, SETTINGS["base_dtype"])
    if SETTINGS["attention"]:
        loading["attn_implementation"] = SETTINGS["attention"]
    if quantisation is not None:
        loading["quantization_config"] = quantisation
    loaded = class_of_model().from_pretrained("base", **loading)
    loaded.config.use_cache = not SETTINGS["gradient_checkpointing"]
    if SETTINGS["resized"]:
        words.add_tokens(["w61", "w62", "w63"])
        loaded.resize_token_embeddings(len(words))
    return loaded


def _class_with_images():
    """Return the name of the class of models that read images, which releases have changed."""
    for name in ("AutoModelForImageTextToText", "AutoModelForVision2Seq"):
        if hasattr(transformers, name) and SETTINGS["model_type"] != "llava":
            return name
    return {
        "llava": "LlavaForConditionalGeneration",
        "qwen2_vl": "Qwen2VLForConditionalGeneration",
        "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    }[SETTINGS["model_type"]]


def quantisation():
    """Return how the base is quantised while it is loaded; None for not at all."""
    kind = SETTINGS["quantization"]
    if kind in ("int8", "nf4"):
        values = {"load_in_8bit": True} if kind == "int8" else {"load_in_4bit": True}
        values |= {"bnb_4bit_quant_type": "nf4"} if kind == "nf4" else {}
        return transformers.BitsAndBytesConfig(**values)
    if kind == "hqq":
        return transformers.HqqConfig(nbits=4, group_size=16)
    if kind == "quanto":
        return transformers.QuantoConfig(weights="int8")
    if kind == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig

        return transformers.TorchAoConfig(Int8WeightOnlyConfig())
    return None


# --- examples ---------------------------------------------------------------------------------------


def rows(words, loaded):
    """Return the examples of a Trainer, as lists of numbers, and what puts them together."""
    if SETTINGS["family"] == "vision":
        return [_row_with_image() for _ in range(16)], _together
    plain = [{name: words(text)[name] for name in ("input_ids", "attention_mask")} for text in TEXTS]
    if SETTINGS["family"] == "causal":
        return plain, transformers.DataCollatorForLanguageModeling(words, mlm=False)
    if SETTINGS["family"] == "classification":
        labelled = [{**row, "label": number % 2} for number, row in enumerate(plain)]
        return labelled, transformers.DataCollatorWithPadding(words)
    for row in plain:
        row["labels"] = row["input_ids"][:3]
    return plain, transformers.DataCollatorForSeq2Seq(words, model=loaded)


def _row_with_image():
    generator = torch.Generator().manual_seed(1)
    kind = SETTINGS["model_type"]
    if kind == "llava":
        tokens = 4 if has(CONFIG_MAPPING["llava"], "image_seq_length") else 1
        extra = {"pixel_values": torch.rand(1, 3, 8, 8, generator=generator)}
    else:
        tokens = 4
        extra = {"pixel_values": torch.rand(16, 3 * 2 * 4 * 4, generator=generator)}
        extra["image_grid_thw"] = torch.tensor([[1, 4, 4]])
    ids = [5, 58, *[IMAGE_TOKEN] * tokens, 59, 6, 7, 1]
    if kind != "llava" and transformers.__version__.startswith("5"):
        extra["mm_token_type_ids"] = torch.tensor([[int(each == IMAGE_TOKEN) for each in ids]])
    one = torch.tensor([ids])
    return {"input_ids": one, "attention_mask": torch.ones_like(one), "labels": one.clone(), **extra}


def _together(examples):
    return {name: torch.cat([each[name] for each in examples]) for name in examples[0]}


# --- the adapter ------------------------------------------------------------------------------------

_QUERY_AND_VALUE = {
    "gpt2": ["c_attn"],
    "gpt_neox": ["query_key_value"],
    "falcon": ["query_key_value"],
    "bloom": ["query_key_value"],
    "phi3": ["qkv_proj"],
    "mamba": ["in_proj", "x_proj"],
    "distilbert": ["q_lin", "v_lin"],
    "deberta-v2": ["query_proj", "value_proj"],
    "modernbert": ["Wqkv"],
    "t5": ["q", "v"],
    "mt5": ["q", "v"],
    **{each: ["query", "value"] for each in ("bert", "roberta", "electra", "albert")},
}
_HEADS = {"gpt_neox": "embed_out"}


def targets():
    """Return the names of the modules that an adapter changes; None leaves them to PEFT."""
    if SETTINGS["targets"] == "all-linear":
        return "all-linear"
    if SETTINGS["targets"] == "default":
        return None
    return _QUERY_AND_VALUE.get(SETTINGS["model_type"], ["q_proj", "v_proj"])


def adapter():
    """Return the configuration of the adapter; None for full fine-tuning."""
    if SETTINGS["adapter"] == "none":
        return None
    import peft

    task = {"task_type": "SEQ_CLS" if SETTINGS["method"] == "reward" else TASKS[SETTINGS["family"]]}
    on = {**task, "target_modules": targets()}
    if SETTINGS["modules_to_save"] and SETTINGS["family"] != "classification":
        on["modules_to_save"] = [_HEADS.get(SETTINGS["model_type"], "lm_head")]
    virtual = {**task, "num_virtual_tokens": 4}
    norms = {**task, "target_modules": sorted(NORMS)}
    kinds = {
        "lora": ("LoraConfig", {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, **on}),
        "dora": ("LoraConfig", {"r": 4, "use_dora": True, **on}),
        "ia3": ("IA3Config", {"feedforward_modules": [], **on}),
        "prompt": ("PromptTuningConfig", virtual),
        "prefix": ("PrefixTuningConfig", virtual),
        "p_tuning": ("PromptEncoderConfig", {"encoder_hidden_size": 16, **virtual}),
        "vera": ("VeraConfig", {"r": 4, **on}),
        "oft": ("OFTConfig", {"oft_block_size": 8, "r": 0, **on}),
        "boft": ("BOFTConfig", {"boft_block_size": 4, **on}),
        "adalora": ("AdaLoraConfig", {"total_step": 10, **on}),
        "loha": ("LoHaConfig", {"r": 4, **on}),
        "lokr": ("LoKrConfig", {"r": 4, **on}),
        "hra": ("HRAConfig", {"r": 4, **on}),
        "fourierft": ("FourierFTConfig", {"n_frequency": 10, **on}),
        "vblora": ("VBLoRAConfig", {"vector_length": 8, "num_vectors": 16, **on}),
        "ln_tuning": ("LNTuningConfig", norms),
        "randlora": ("RandLoraConfig", {"r": 4, **on}),
        "miss": ("MissConfig", {"r": 4, **on}),
        "bone": ("BoneConfig", {"r": 4, **on}),
        "shira": ("ShiraConfig", {"r": 4, **on}),
        "c3a": ("C3AConfig", {"block_size": 8, **on}),
        "road": ("RoadConfig", {"variant": "road_1", "group_size": 8, **on}),
        "waveft": ("WaveFTConfig", {"n_frequency": 10, **on}),
        "delora": ("DeloraConfig", {"r": 4, **on}),
        "trainable_tokens": ("TrainableTokensConfig", {**task, "token_indices": [3, 4]}),
    }
    name, values = kinds[SETTINGS["adapter"]]
    kind = getattr(peft, name)
    return kind(**accepted(kind, **values))


def adapted(loaded):
    """Return a model with the adapter on it, as PEFT's examples prepare it."""
    settings = adapter()
    if settings is None:
        return loaded
    from peft import get_peft_model, prepare_model_for_kbit_training

    if SETTINGS["quantization"] in ("int8", "nf4"):
        checkpointing = {"use_gradient_checkpointing": SETTINGS["gradient_checkpointing"]}
        loaded = prepare_model_for_kbit_training(loaded, **checkpointing)
    made = get_peft_model(loaded, settings)
    if SETTINGS["gradient_checkpointing"]:
        made.enable_input_require_grads()
    return made
