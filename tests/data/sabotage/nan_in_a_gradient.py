"""Checkpointing leaves one gradient full of NaN."""

AFTER = "peft.mapping_func"


def sabotage(module):
    get_peft_model = module.get_peft_model

    def sabotaged(model, *arguments, **keywords):
        checkpointed = model.is_gradient_checkpointing
        model = get_peft_model(model, *arguments, **keywords)
        if checkpointed:
            trained = [each for each in model.parameters() if each.requires_grad]
            trained[0].register_hook(lambda gradient: gradient * float("nan"))
        return model

    module.get_peft_model = sabotaged
