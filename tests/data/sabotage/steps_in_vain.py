"""AdamW steps and moves nothing."""

AFTER = "torch.optim.adamw"


def sabotage(module):
    module.AdamW.step = lambda self, closure=None: None
