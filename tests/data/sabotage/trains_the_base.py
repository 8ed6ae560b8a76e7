"""PEFT forgets to freeze the base."""

AFTER = "peft.mapping_func"


def sabotage(module):
    get_peft_model = module.get_peft_model

    def sabotaged(model, config, **keywords):
        return get_peft_model(model, config, **keywords).requires_grad_(True)

    module.get_peft_model = sabotaged
