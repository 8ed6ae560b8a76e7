"""An MLP gives float16, but only when it is recomputed."""

AFTER = "transformers.models.llama.modeling_llama"


def sabotage(module):
    forward = module.LlamaMLP.forward

    def cast(self, x):
        self.times = getattr(self, "times", 0) + 1
        return forward(self, x) if self.times % 2 else forward(self, x).half()

    module.LlamaMLP.forward = cast
