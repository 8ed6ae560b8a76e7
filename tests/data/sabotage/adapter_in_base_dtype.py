"""PEFT leaves the adapter in the dtype of the base, though it promises fp32."""

AFTER = "peft.mapping_func"


def sabotage(module):
    get_peft_model = module.get_peft_model

    def sabotaged(model, config, **keywords):
        return get_peft_model(model, config, **{**keywords, "autocast_adapter_dtype": False})

    module.get_peft_model = sabotaged
