"""Try to build a Trainer around a model of one layer, on the CPU."""

import sys
import tempfile


def build():
    """Build it; raise what the libraries raise."""
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, inputs):
            return {"loss": self.layer(inputs).sum()}

    rows = [{"inputs": torch.ones(2)}] * 2
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, max_steps=1, report_to=[], save_strategy="no")
        Trainer(model=Model(), args=arguments, train_dataset=rows).train()


try:
    build()
except (ImportError, TypeError, AttributeError, ValueError) as error:
    print("%s: %s" % (type(error).__name__, str(error).strip().splitlines()[0]))
    sys.exit(1)
