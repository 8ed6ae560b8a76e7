"""What passes through the decoder layers of a model, in the forward pass and when it is recomputed."""

from __future__ import annotations


class LayerPasses:
    """The tensors of each decoder layer, pass after pass: the forward, and what is recomputed of it.

    A pass records the tensors that enter and leave each module of a layer, and the dtype of the weight that a
    linear layer computes with. A pass starts where the module that ran first runs again; the layer's own
    hooks cannot mark it, because transformers 5 does not call them when it recomputes. Of an adapter only
    the weights are recorded: a cast inside it, which the next line undoes, is not saved for the backward
    pass, and of what is saved, torch compares the metadata or the gradients show a difference.
    """

    def __init__(self, test, layers):
        """Register hooks in the layers, which nothing may have wrapped yet."""
        self.test = test
        self.layers = [[] for _ in layers]
        self.first = [None for _ in layers]
        for number, layer in enumerate(layers):
            adapted = [name for name, module in layer.named_modules() if hasattr(module, "lora_A")]
            for name, module in layer.named_modules():
                if name:
                    in_adapter = any(name.startswith(f"{outer}.") for outer in adapted)
                    self._hook(number, name, module, in_adapter)

    def _hook(self, number, name, module, in_adapter):
        import torch

        def enter(module, args, kwargs):
            self.first[number] = self.first[number] or name
            if name == self.first[number]:
                self.layers[number].append([])
            if type(module) is torch.nn.Linear:
                self._record(number, f"{name} computes with a weight of", module.weight, values=False)
            if not in_adapter:
                self._record(number, f"{name} takes", (args, kwargs))

        def leave(_module, _args, result):
            self._record(number, f"{name} gives", result)

        module.register_forward_pre_hook(enter, with_kwargs=True)
        if not in_adapter:
            module.register_forward_hook(leave)

    def _record(self, number, what, found, values=True):
        for tensor in self._tensors(found):
            # A weight may be sharded at this moment, and then only its dtype is meaningful.
            shape = list(tensor.shape) if values else []
            about = f"{str(tensor.dtype)[6:]} {shape or ''} on {tensor.device.type}".replace("  ", " ")
            self.layers[number][-1].append((what, about, tensor.detach().clone() if values else None))

    def _tensors(self, found):
        import torch

        if isinstance(found, torch.Tensor):
            yield found
        elif isinstance(found, dict):
            for item in found.values():
                yield from self._tensors(item)
        elif isinstance(found, (tuple, list)):
            for item in found:
                yield from self._tensors(item)

    def clear(self):
        """Forget all passes, before the next step."""
        for passes in self.layers:
            passes.clear()

    def dtypes(self, what):
        """Return the dtypes of all tensors whose record contains `what`, over all passes: `{"bfloat16"}`."""
        return {
            about.partition(" ")[0]
            for passes in self.layers
            for records in passes
            for name, about, _ in records
            if what in name
        }

    def check_count(self, times):
        """Fail unless each layer ran this many times: 2 with checkpointing, 1 without."""
        for number, passes in enumerate(self.layers):
            if len(passes) != times:
                self.test.fail(
                    f"layer {number}: its forward ran {len(passes)} times in a step, expected {times}: "
                    + ("nothing was recomputed" if len(passes) < times else "recomputed without being asked")
                )

    def check_recompute(self, complete, tolerance):
        """Fail unless each recompute repeats its forward: the same modules, shapes, dtypes, devices, values.

        `complete` says whether the recompute must reach the end of the layer: non-reentrant checkpointing
        stops once it has what it needs. Return the largest difference of values, relative to the largest
        value of their tensor.
        """
        worst = 0.0
        for number, (forward, again) in enumerate(self.layers):
            if not again or (complete and len(again) < len(forward)) or len(again) > len(forward):
                self.test.fail(
                    f"layer {number}: the recompute saw {len(again)} tensors, the forward {len(forward)}"
                )
            for before, after in zip(forward, again):
                worst = max(worst, self._compare(number, before, after, tolerance))
        return worst

    def _compare(self, number, before, after, tolerance):
        """Fail unless one tensor of a recompute equals that of the forward; return their difference."""
        (what, about, value), (what_then, about_then, value_then) = before, after
        if what != what_then:
            self.test.fail(f'layer {number}: the recompute came to "{what_then}", the forward to "{what}"')
        if about != about_then:
            self.test.fail(f"layer {number}: {what} {about_then} when recomputed, {about} before")
        if value is None or not value.is_floating_point():
            return 0.0
        where = f"layer {number}: what {what} when recomputed"
        return self.test.check_close(value_then, value, tolerance, where)
