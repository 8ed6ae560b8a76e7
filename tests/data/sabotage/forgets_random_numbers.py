"""A recompute draws other random numbers."""

AFTER = "torch.utils.checkpoint"


def sabotage(module):
    checkpoint = module.checkpoint

    def forgetful(function, *arguments, **keywords):
        return checkpoint(function, *arguments, **{**keywords, "preserve_rng_state": False})

    module.checkpoint = forgetful
