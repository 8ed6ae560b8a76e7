"""Who lacks an attribute or an argument, who sets or passes it, and in which releases."""

from __future__ import annotations

from tests.support.logs import SITE, Explain, answer, cause_of, of_own_code, traceback


def test_a_release_that_takes_an_argument_is_not_blamed_for_it(explained: Explain) -> None:
    said = "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'"
    log = of_own_code(said, "args = TrainingArguments(evaluation_strategy='steps')")

    old, new = explained(log, transformers="4.30.2"), explained(log, transformers="4.57.1")

    assert "no longer takes" not in answer(old)
    assert "transformers 4.30.2 takes evaluation_strategy" in answer(old).splitlines()[0]
    assert "no longer takes" in answer(new).splitlines()[0]


def test_a_keyword_that_libraries_pass_says_nothing_of_the_users_class(explained: Explain) -> None:
    said = (
        "TypeError: mDPODataCollatorBunny.__init__() got an unexpected keyword argument 'max_prompt_length'\n"
    )

    found = answer(explained(said))

    assert "in this release" not in found
    assert "    passes  " not in found


def test_an_attribute_is_not_set_by_a_package_that_does_not_have_the_class(explained: Explain) -> None:
    said = "AttributeError: 'AutoModelForCausalLMWithValueHead' object has no attribute 'base_model_prefix'\n"

    assert "set by" not in answer(explained(said))


def test_the_class_of_a_constructor_is_taken_from_the_line_that_calls_it(explained: Explain) -> None:
    said = "TypeError: __init__() got an unexpected keyword argument 'limit_mm_per_prompt'"

    found = explained(of_own_code(said, "AsyncLLMEngine.from_engine_args(AsyncEngineArgs(**engine_args))"))

    assert "AsyncEngineArgs.limit_mm_per_prompt" in answer(found)


def test_a_function_that_takes_any_number_did_not_get_too_many(explained: Explain) -> None:
    said = "TypeError: Seq2SeqTrainer.training_step() takes 3 positional arguments but 4 were given"

    found = answer(explained(f"{said}\n"))

    assert "takes   transformers from 4.46 on" in found
    assert "ms-swift" not in found


def test_an_attribute_is_looked_up_in_the_base_of_another_package(explained: Explain) -> None:
    asked = (f"{SITE}/trl/trainer/sft_trainer.py", 300, "train", "self.tokenizer.padding_side")
    found = answer(
        explained(traceback("AttributeError: 'SFTTrainer' object has no attribute 'tokenizer'", asked))
    )

    assert "has it  transformers up to 4.57: Trainer.tokenizer" in found
    assert "ms-swift" not in found


def test_the_tokenizer_of_any_model_derives_from_the_base_of_all(explained: Explain) -> None:
    found = answer(explained("AttributeError: BertTokenizer has no attribute batch_encode_plus\n"))

    assert "has it  transformers up to 4.57: PreTrainedTokenizerBase.batch_encode_plus" in found


def test_a_trainer_with_a_word_of_its_own_derives_from_the_one_without(explained: Explain) -> None:
    found = answer(explained("AttributeError: 'GRPOEnvTrainer' object has no attribute 'llm'\n"))

    assert "GRPOTrainer.llm" in found
    assert "if a file of trl asks, the class was written for an older one" in found


def test_a_library_that_asks_its_own_attribute_of_a_projects_class_is_newer(explained: Explain) -> None:
    asked = (f"{SITE}/trl/trainer/grpo_trainer.py", 900, "_prepare", "if step % self.num_iterations == 0:")
    found = answer(
        explained(traceback("AttributeError: 'XGRPOTrainer' object has no attribute 'num_iterations'", asked))
    )

    assert "asks    trl itself, whose GRPOTrainer has num_iterations: from 0.16.0 on" in found
    assert "has it" not in found


def test_the_function_that_fails_is_not_said_to_set_what_it_misses(explained: Explain) -> None:
    asked = (
        f"{SITE}/accelerate/utils/other.py",
        180,
        "extract_model_from_parallel",
        "model = model._orig_mod",
    )
    found = answer(
        explained(
            traceback("AttributeError: 'DistributedDataParallel' object has no attribute '_orig_mod'", asked)
        )
    )

    assert "set by" not in found


def test_an_argument_that_a_line_hands_on_comes_from_elsewhere(explained: Explain) -> None:
    made = (f"{SITE}/trl/trainer/sft_trainer.py", 152, "__init__", "args = SFTConfig(**args_as_dict)")
    found = answer(
        explained(
            traceback("TypeError: SFTConfig.__init__() got an unexpected keyword argument 'my_cache'", made)
        )
    )

    assert "trl hands my_cache on (in **args_as_dict) to SFTConfig.__init__()" in found
    assert "my_cache comes from what args_as_dict holds" in found


def test_nobody_is_said_to_pass_an_argument_to_a_function_of_no_library(explained: Explain) -> None:
    said = (
        "TypeError: resolve_chat_template_format() got an unexpected keyword argument 'trust_remote_code'\n"
    )

    assert "    passes  " not in answer(explained(said))


def test_a_field_of_every_object_of_a_release_is_not_said_to_be_set_somewhere(explained: Explain) -> None:
    name = "dataloader_persistent_workers"
    place = (f"{SITE}/sentence_transformers/trainer.py", 420, "get_train_dataloader", f"self.args.{name},")
    message = f"AttributeError: 'SentenceTransformerTrainingArguments' object has no attribute '{name}'"

    said = answer(explained(traceback(message, place)))

    assert "transformers from 4.36 on: TrainingArguments" in said
    assert "set by" not in said


def test_the_line_that_asks_stands_above_a_class_that_answers_for_its_attributes(explained: Explain) -> None:
    found = explained(
        traceback(
            "AttributeError: 'LlamaConfig' object has no attribute 'rope_theta'",
            ("/home/me/models/llama.py", 85, "__init__", "self.rope_theta = args.rope_theta"),
            (f"{SITE}/transformers/configuration_utils.py", 261, "__getattribute__", "return super()…"),
        )
    )

    assert "transformers 4.33 to 4.57: LlamaConfig.rope_theta" in answer(found)


def test_what_deletes_an_attribute_is_not_told_to_set_it_first(explained: Explain) -> None:
    colab = (
        "[/usr/local/lib/python3.11/dist-packages/torch/nn/modules/module.py](https://localhost:8080/#) in "
        "{}(self, name)\n-> 2077             super().{}(name)\n\n"
        "AttributeError: 'PeftModel' object has no attribute '_flag_for_generation'\n"
    )
    head = "AttributeError                            Traceback (most recent call last)\n"

    deleted = answer(explained(head + colab.format("__delattr__", "__delattr__")))
    read = answer(explained(head + colab.format("__getattr__", "__getattr__")))

    assert "deletes an attribute" in deleted
    assert "set by" not in deleted
    assert "deletes an attribute" not in read


def test_a_private_keyword_is_not_said_to_be_passed_by_another_package(explained: Explain) -> None:
    said = "TypeError: LoraModel.forward() got an unexpected keyword argument '{}'\n"

    assert "passes  transformers" not in answer(explained(said.format("_from_model_config")))
    assert "passes  transformers" in answer(explained(said.format("only_modules")))


def test_a_configuration_without_a_type_is_not_one_that_peft_wrote(explained: Explain) -> None:
    said = "TypeError: {}.__init__() got an unexpected keyword argument '_from_model_config'"
    frame = (f"{SITE}/peft/config.py", 134, "from_pretrained", "config = config_cls(**kwargs)")
    prefix = "2023-11-22 17:35:14 | ERROR | stderr | "  # of FastChat, before each line that a process printed

    log = "".join(f"{prefix}{line}\n" for line in traceback(said.format("PeftConfig"), frame).splitlines())
    found = explained(log)

    assert cause_of(found).place is not None
    assert "PEFT does not know the adapter's own class" in answer(found)
    assert "own class" not in answer(explained(traceback(said.format("LoraConfig"), frame)))


def test_of_objects_inside_one_another_the_innermost_lacks_the_attribute(explained: Explain) -> None:
    """PEFT asks the model inside for what it lacks, so that three classes report one attribute in a row."""
    hook = (f"{SITE}/torch/nn/modules/module.py", 1931, "__getattr__", "raise AttributeError(")
    asked = ("/w/unsloth_compiled_cache/GRPOTrainer.py", 225, "__init__", "self.llm = model.vllm_engine")
    said = "AttributeError: '{}' object has no attribute '{}'"
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"

    def chain(last: str) -> str:
        return during.join(
            [
                traceback(said.format("PeftModelForCausalLM", "vllm_engine"), hook),
                traceback(said.format("LoraModel", "vllm_engine"), hook),
                traceback(said.format("Gemma2ForCausalLM", last), asked, hook),
            ]
        )

    one, another = (answer(explained(chain(last))) for last in ("vllm_engine", "quant_state"))

    assert "if fast_inference" in one
    assert "if fast_inference" not in another  # another attribute is another failure


def test_an_attribute_that_comes_back_may_have_moved_in_between(explained: Explain) -> None:
    """LlamaAttention of transformers 4.31 to 4.42 sets rotary_emb in _init_rope, which __init__ calls."""
    said = "AttributeError: '{}' object has no attribute '{}'\n"
    gone, never_back, in_init = (
        answer(explained(said.format(*names)))
        for names in (
            ("PreTrainedModel", "contrastive_search"),
            ("MistralAttention", "rotary_emb"),
            ("LlamaAttention", "rotary_emb"),
        )
    )

    assert "may set it in another function" in gone
    assert "has it  transformers 4.34 to 4.47" in never_back
    assert "may set it in another function" not in never_back
    assert "transformers has it: up to 4.47" in in_init


def test_an_attribute_that_the_release_sets_in_some_cases_is_not_one_of_another_release(
    explained: Explain,
) -> None:
    said = "AttributeError: 'AcceleratorState' object has no attribute 'fsdp_plugin'\n"

    found, older = explained(said, accelerate="0.23.0"), explained(said, accelerate="0.6.0")

    assert "another release" not in answer(found)
    assert "ACCELERATE_USE_FSDP" in answer(found)
    assert "has it  accelerate from 0.7.0 on" in answer(older)


def test_what_a_librarys_base_class_asks_of_itself_is_told_by_the_method_that_sets_it(
    explained: Explain,
) -> None:
    said = "AttributeError: 'Enformer' object has no attribute 'all_tied_weights_keys'"
    place = f"{SITE}/transformers/modeling_utils.py"

    of_self = answer(explained(traceback(said, (place, 1, "f", "keys - self.all_tied_weights_keys"))))
    of_model = answer(explained(traceback(said, (place, 1, "f", "keys - model.all_tied_weights_keys"))))

    assert "PreTrainedModel.post_init sets all_tied_weights_keys: from 5.0 on" in of_self
    assert "call self.post_init()" in of_self
    assert "post_init" not in of_model


def test_a_column_of_datasets_4_is_no_list(explained: Explain) -> None:
    found = answer(explained("AttributeError: 'Column' object has no attribute 'mean'\n"))
    of_every = answer(explained("AttributeError: 'Dataset' object has no attribute 'mean'\n"))

    assert "'datasets<4'" in found
    assert "datasets<4" not in of_every


def test_nobody_is_said_to_pass_what_a_class_of_settings_refuses(explained: Explain) -> None:
    config = answer(
        explained("TypeError: SFTConfig.__init__() got an unexpected keyword argument 'cache_dir'\n")
    )

    assert "    passes  " not in config


def test_what_configurations_lost_in_a_release_is_told_of_classes_that_derive_from_them(
    explained: Explain,
) -> None:
    said = "AttributeError: '{}' object has no attribute 'pad_token_id'\n"

    published = explained(said.format("Qwen3VLTextConfig"))
    remote, own = explained(said.format("SomeVLConfig")), explained(said.format("LoraConfig"))

    assert "transformers up to 4.57: PretrainedConfig.pad_token_id" in answer(published)
    assert published.code == 1
    assert "PretrainedConfig.pad_token_id" in answer(remote)
    assert remote.code == 3  # a project may call a class of its own so
    assert "PretrainedConfig" not in answer(own)


def test_what_models_lost_in_a_release_is_told_of_classes_that_end_like_models(explained: Explain) -> None:
    """PreTrainedModel of transformers derives from GenerationMixin up to 4.51."""
    said = "AttributeError: '{}' object has no attribute 'generate'\n"

    remote = explained(said.format("InternLM2ForCausalLM"))
    own = explained(said.format("FSDPModel"))

    assert "transformers up to 4.51: PreTrainedModel.generate" in answer(remote)
    assert remote.code == 1
    assert own.code == 3  # the name alone says little
    assert "PreTrainedModel" not in answer(explained(said.format("RewardHead")))


def test_the_release_that_takes_as_many_arguments_is_advised(explained: Explain) -> None:
    asked = (f"{SITE}/transformers/trainer.py", 3033, "_maybe_log", "self.log(logs, start_time)")
    said = traceback("TypeError: DPOTrainer.log() takes 2 positional arguments but 3 were given", asked)

    old, new = answer(explained(said, trl="0.12.1")), answer(explained(said, trl="0.13.0"))

    assert "install trl from 0.13.0 on, which takes as many" in old
    assert "has it, so it is not what ran" not in old
    assert "has it, so it is not what ran" in new


def test_the_class_that_the_failing_file_is_about_is_expected(explained: Explain) -> None:
    said = "AttributeError: 'TrainingArguments' object has no attribute 'model_init_kwargs'"

    def asked_in(file: str) -> str:
        frame = (f"{SITE}/trl/trainer/{file}", 467, "__init__", "if args.model_init_kwargs is None:")
        return answer(explained(traceback(said, frame)))

    assert "DPOConfig" in asked_in("dpo_trainer.py")
    assert "KTOConfig" not in asked_in("dpo_trainer.py")
    assert "KTOConfig" in asked_in("kto_trainer.py")


def test_who_calls_a_package_passes_what_that_only_hands_on(explained: Explain) -> None:
    said = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'worker_use_ray'"
    inner = (f"{SITE}/vllm/entrypoints/llm.py", 210, "__init__", "engine_args = EngineArgs(")
    outer = (
        f"{SITE}/openrlhf/trainer/ray/vllm_engine.py",
        58,
        "__init__",
        "self.llm = vllm.LLM(*args, **kwargs)",
    )
    own = ("/home/me/serve.py", 3, "<module>", "llm = vllm.LLM(model, worker_use_ray=True)")

    by_package = answer(explained(traceback(said, outer, inner))).splitlines()[0]
    by_user = answer(explained(traceback(said, own, inner))).splitlines()[0]

    assert by_package.startswith("Failed: openrlhf passes worker_use_ray to EngineArgs.__init__()")
    assert "vllm passes" not in by_user
    assert "openrlhf" not in by_user


def test_code_of_one_model_may_get_the_configuration_of_another(explained: Explain) -> None:
    def read_of(configuration: str) -> str:
        said = f"AttributeError: '{configuration}' object has no attribute 'local_radius'"
        file = f"{SITE}/transformers/models/longt5/modeling_longt5.py"
        frame = (file, 1383, "__init__", "self.local_radius = config.local_radius")
        return answer(explained(traceback(said, frame)))

    assert "the model type longt5 was given the configuration of another type" in read_of("T5Config")
    assert "of another type" not in read_of("LongT5Config")
    assert "of another type" not in read_of("MyOwnConfig")


def test_a_name_that_a_librarys_own_code_does_not_define_is_its_fault(explained: Explain) -> None:
    said = "NameError: name 'quantization' is not defined"
    of_library = (f"{SITE}/unsloth/save.py", 901, "save", "if quantization is None:")

    found = explained(traceback(said, of_library))

    assert answer(found).startswith("Failed; several causes have this text: NameError: name 'quantization'")
    assert "unsloth's own code uses a name that is not defined there" in answer(found)
    assert "own code uses a name" not in answer(explained(of_own_code(said, "if quantization is None:")))


def test_what_a_librarys_own_code_asks_of_its_own_class_is_its_fault(explained: Explain) -> None:
    said = "AttributeError: 'Scheduler' object has no attribute 'token_to_kv_pool_of_none'"
    source = "self.token_to_kv_pool_of_none.available_size()"
    of_library = (f"{SITE}/sglang/srt/managers/scheduler.py", 935, "check_memory", source)

    found = answer(explained(traceback(said, of_library)))

    assert "sglang's own code asks its class Scheduler for this" in found
    assert "own code asks its class" not in answer(explained(of_own_code(said, source)))


def test_a_librarys_line_that_calls_a_method_of_another_in_another_way_is_named(explained: Explain) -> None:
    said = "TypeError: {}() missing 1 required positional argument: 'eval_dataset'"

    def called(function: str, source: str) -> str:
        frame = (f"{SITE}/axolotl/utils/trainer.py", 160, "_get_eval_sampler", source)
        return answer(explained(traceback(said.format(function), frame)))

    written = called("Trainer._get_eval_sampler", "return super()._get_eval_sampler()")
    handed_on = called("Trainer._get_eval_sampler", "return super()._get_eval_sampler(*args)")
    of_user = called("compute_metrics", "metrics = self.compute_metrics(predictions)")

    assert "a line of axolotl calls a function with other arguments" in written
    assert "a line of axolotl calls" not in handed_on
    assert "a line of axolotl calls" not in of_user


def test_a_field_that_msgspec_refuses_is_looked_up_in_the_class_that_the_line_makes(
    explained: Explain,
) -> None:
    said = "TypeError: Unexpected keyword argument 'use_beam_search'"

    found = explained(of_own_code(said, "params = SamplingParams(use_beam_search=False)"))
    two = explained(of_own_code(said, "params = make(SamplingParams(n=1), GuidedParams(x=2))"))

    assert "has it  vllm up to 0.6.2: SamplingParams.use_beam_search" in answer(found)
    assert "SamplingParams.use_beam_search" not in answer(two)


def test_a_message_that_could_not_be_written_says_what_came_first(explained: Explain) -> None:
    said = "AttributeError: 'list' object has no attribute 'keys'"
    file = f"{SITE}/accelerate/utils/dataclasses.py"
    refusal = 'f"Invalid auto wrap policy: {self.auto_wrap_policy}. Must be one of {list(POLICY.keys())}"'

    found = explained(traceback(said, (file, 1667, "__post_init__", refusal)))
    other = explained(traceback(said, (file, 1667, "__post_init__", 'f"{self.auto_wrap_policy.keys()}"')))

    assert "was writing another message: Invalid auto wrap policy: …. Must be one of …" in answer(found)
    assert "another message" not in answer(other)
    assert found.code == 1


def test_a_token_in_a_message_that_could_not_be_written_is_hidden(explained: Explain) -> None:
    line = 'raise ValueError(f"cannot load with token=hf_abcdefghijklmnopqrstuvwxyz123456 for {name}")'

    found = answer(
        explained(traceback("NameError: name 'name' is not defined", ("/x/train.py", 3, "f", line)))
    )

    assert "was writing another message: cannot load with token=" in found
    assert "hf_abcdef" not in found


def test_a_class_of_one_package_alone_names_the_package(explained: Explain) -> None:
    refused = "got an unexpected keyword argument 'no_such_thing'\n"

    found = answer(explained(f"TypeError: TextIteratorStreamer.__init__() {refused}"))
    own = answer(explained(f"TypeError: MyOwnStreamerClass.__init__() {refused}"))

    assert "TextIteratorStreamer is a class of transformers" in found
    assert "is a class of" not in own


def test_the_rule_on_the_very_releases_is_named_and_not_one_that_uses_the_word(explained: Explain) -> None:
    said = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'device'"
    log = traceback(
        said,
        (f"{SITE}/trl/trainer/grpo_trainer.py", 360, "__init__", "self.llm = LLM("),
        (f"{SITE}/vllm/entrypoints/llm.py", 240, "__init__", "engine_args = EngineArgs("),
    )

    found = answer(explained(log, trl="0.15.2", vllm="0.10.0"))
    older = answer(explained(log, trl="0.15.2", vllm="0.9.2"))

    assert "[trl-014-vllm010-device]" in found
    assert "[trl-grpo-no-gpu-left-for-vllm]" not in found
    assert "[trl-014-vllm010-device]" not in older


def test_a_keyword_that_generate_hands_to_a_projects_model_names_its_releases(explained: Explain) -> None:
    refused = "got an unexpected keyword argument 'cache_position'\n"

    own = answer(explained(f"TypeError: LlavaLlamaForCausalLM.forward() {refused}"))
    library = answer(explained(f"TypeError: LlamaModel.forward() {refused}"))

    assert "from 4.38 on if the class is derived from Llama's" in own
    assert "in this release" not in own.splitlines()[0]
    assert "derived from Llama's" not in library
    assert "takes   transformers 4.38" in library
