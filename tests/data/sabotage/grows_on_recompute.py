"""An MLP works on one token more, but only when it is recomputed."""

AFTER = "transformers.models.llama.modeling_llama"


def sabotage(module):
    import torch

    forward = module.LlamaMLP.forward

    def grown(self, x):
        self.times = getattr(self, "times", 0) + 1
        return forward(self, x) if self.times % 2 else forward(self, torch.cat([x, x[:, :1]], 1))[:, :-1]

    module.LlamaMLP.forward = grown
