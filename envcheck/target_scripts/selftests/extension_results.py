"""Compiled extensions load, and compute what plain torch computes.

There is one variant per extension, which runs if the extension is installed: it is imported, called on small
random tensors, and compared with the same computation in plain torch in float32 (with gradients, where
training differentiates it). Tolerances, relative to the largest value: 0.02 for bf16 and fp16 kernels (eight
bits, and sums of a hundred terms), 1e-4 for float32 (another order of summing), one step of the grid for
quantization.

On a CPU, extensions with CPU kernels are called. The others are imported, which already finds a wrong ABI,
and are then skipped because they need a GPU. Only triton compiles a kernel, because that is its purpose.

Seconds: 1 to 10 each, mostly imports. Memory: below 2 GiB, mostly libraries.

A failure means an extension built for another torch, CUDA, Python or GPU; what uses it will fail or learn
from wrong numbers.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 90
VARIANTS = {
    "bitsandbytes": {"needs": {"pkg.bitsandbytes": "present"}},
    "flash-attn": {"needs": {"pkg.flash-attn": "present"}},
    "xformers": {"needs": {"pkg.xformers": "present"}},
    "triton": {"needs": {"pkg.triton": "present"}},
    "deepspeed-ops": {"needs": {"pkg.deepspeed": "present"}},
    "torchvision": {"needs": {"pkg.torchvision": "present"}},
    "torchao": {"needs": {"pkg.torchao": "present"}},
    "causal-conv1d": {"needs": {"pkg.causal-conv1d": "present"}},
    "mamba-ssm": {"needs": {"pkg.mamba-ssm": "present"}},
    "apex": {"needs": {"pkg.apex": "present"}},
}

HALF, SINGLE = 0.02, 1e-4
"""Tolerances of kernels in 16 and in 32 bits, relative to the largest value."""


def run(test, variant):
    torch = test.import_torch()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    check = {
        "bitsandbytes": bitsandbytes,
        "flash-attn": flash_attn,
        "xformers": xformers,
        "triton": triton,
        "deepspeed-ops": deepspeed_ops,
        "torchvision": torchvision,
        "torchao": torchao,
        "causal-conv1d": causal_conv1d,
        "mamba-ssm": mamba_ssm,
        "apex": apex,
    }[variant]
    check(test, torch, test.devices()[0])


def imported(test, name):
    """Import and return a module; an error is the result of the test, unless it is about a missing driver."""
    import importlib

    with test.call(f"import {name}"):
        try:
            return importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            test.skip_without_gpu(error)
            raise


def require_gpu(test, least=None):
    """Skip on a CPU, where the extension has no kernels, and on a GPU older than its kernels need."""
    import torch

    if test.device_type == "cpu":
        test.skip("loads; its kernels need a GPU")
    if least is not None and torch.cuda.get_device_capability(0) < least:
        test.skip(f"loads; its kernels need compute capability {least[0]}.{least[1]}")


def plain_attention(torch, q, k, v):
    """Compute causal attention of (batch, tokens, heads, width) in float32, step by step."""
    q, k, v = (tensor.float().transpose(1, 2) for tensor in (q, k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    tokens = scores.shape[-1]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def check_attention(test, torch, device, dtype, attend, name):
    """Compare an attention and its gradients with `plain_attention`."""
    shape = (2, 128, 4, 64)
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    plain = [tensor.detach().float().requires_grad_() for tensor in inputs]
    slope = torch.randn(shape, device=device, dtype=dtype)
    with test.must_succeed(name):
        found = attend(*inputs)
        test.synchronize(device)
    expected = plain_attention(torch, *plain)
    test.check_close(found, expected, HALF, f"{name}, forward")
    with test.must_succeed(f"backward of {name}"):
        found.backward(slope)
        test.synchronize(device)
    expected.backward(slope.float())
    for letter, tensor, reference in zip("qkv", inputs, plain):
        test.check_close(tensor.grad, reference.grad, HALF, f"{name}, gradient of {letter}")


def flash_attn(test, torch, device):
    module = imported(test, "flash_attn")
    require_gpu(test, (8, 0))
    check_attention(
        test,
        torch,
        device,
        torch.bfloat16,
        lambda q, k, v: module.flash_attn_func(q, k, v, causal=True),
        "flash_attn_func",
    )


def xformers(test, torch, device):
    imported(test, "xformers")
    library = imported(test, "xformers._cpp_lib")
    # xformers only warns when its library does not load, and fails at the first call.
    broken = getattr(library, "_cpp_library_load_exception", None)
    if broken is not None:
        cause = broken
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__
        test.skip_without_gpu(cause)
        lines = [line.strip() for line in str(broken).splitlines()]
        test.fail(" ".join(lines[:3]) + (f" ({cause})" if cause is not broken else ""))
    require_gpu(test, (7, 0))
    ops = imported(test, "xformers.ops")
    dtype = torch.bfloat16 if torch.cuda.get_device_capability(0) >= (8, 0) else torch.float16
    check_attention(
        test,
        torch,
        device,
        dtype,
        lambda q, k, v: ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask()),
        "memory_efficient_attention",
    )


def triton(test, torch, device):
    module = imported(test, "triton")
    language = imported(test, "triton.language")
    require_gpu(test)
    globals()["tl"] = language  # kernels look names up in the module

    @module.jit
    def add(x, y, out, count, BLOCK: tl.constexpr):  # noqa: F821, N803
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # noqa: F821
        valid = index < count
        total = tl.load(x + index, mask=valid) + tl.load(y + index, mask=valid)  # noqa: F821
        tl.store(out + index, total, mask=valid)  # noqa: F821

    count, block = 1000, 256  # the count is not a multiple of the block, so that the last block is masked
    x, y = (torch.randn(count, device=device) for _ in range(2))
    out = torch.full((count + block,), 7.0, device=device)
    with test.must_succeed("compiling and launching a kernel"):
        add[(-(-count // block),)](x, y, out, count, BLOCK=block)
        test.synchronize(device)
    test.check_close(out[:count], x + y, 1e-6, "x + y by triton")
    if not bool((out[count:] == 7.0).all()):
        test.fail("the kernel wrote outside of its mask")


def bitsandbytes(test, torch, device):
    imported(test, "bitsandbytes")
    F = imported(test, "bitsandbytes.functional")  # noqa: N806 - the name in its documentation
    library = imported(test, "bitsandbytes.cextension")
    native = type(getattr(library, "lib", None)).__name__
    test.record(library=native)
    if test.device_type == "cpu" and native in ("NoneType", "ErrorHandlerMockBNBNativeLibrary"):
        test.skip("imports; this release has no native library for a CPU, or none that loads")
    x = torch.randn(64, 64, device=device)
    block = 256
    with test.must_succeed("quantize_blockwise"):
        codes, state = F.quantize_blockwise(x, blocksize=block)
        back = F.dequantize_blockwise(codes, state)
        test.synchronize(device)
    grid = state.code.to(device).float()
    eight = grid[codes.long()].view(-1, block) * state.absmax.view(-1, 1)
    test.check_close(back.view(-1, block), eight, 1e-5, "dequantize_blockwise")
    check_nearest_code(test, x.view(-1, block), eight, grid, "quantize_blockwise")
    check_four_bits(test, torch, device, F)
    if test.device_type == "cuda":
        check_optimizer(test, torch, device)


def check_nearest_code(test, x, found, grid, what):
    """Fail unless every value was rounded to the nearest value of the grid; each row is one block."""
    scale = x.abs().amax(dim=1, keepdim=True)
    best = ((x / scale).unsqueeze(-1) - grid).abs().amin(dim=-1)
    worse = float((((x - found) / scale).abs() - best).max())
    # An eighth of the widest step: a value halfway between two may go either way.
    allowed = float(grid.sort().values.diff().max()) / 8
    if not worse <= allowed:
        test.fail(
            f"{what}: {worse:.2g} of a block's largest value from its nearest code, allowed {allowed:.2g}"
        )


def check_four_bits(test, torch, device, functional):
    """Check NF4, in which QLoRA stores a base model: packed codes, a layer's output and its gradient."""
    import bitsandbytes as bnb

    weight = torch.randn(32, 64, device=device)
    if test.device_type == "cpu" and not hasattr(bnb, "backends"):
        test.record(four_bits="not on a CPU in this release")
        return
    with test.must_succeed("quantize_4bit"):
        codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        back = functional.dequantize_4bit(codes, state)
        test.synchronize(device)
    grid = state.code.to(device).float()
    packed = codes.flatten().long()
    picked = torch.stack([packed >> 4, packed & 15], dim=1).flatten()
    four = grid[picked].view(32, 64) * state.absmax.float().view(32, 1)
    test.check_close(back, four, 1e-5, "dequantize_4bit")
    check_nearest_code(test, weight, four, grid, "quantize_4bit")
    layer = bnb.nn.Linear4bit(64, 32, bias=False, quant_type="nf4", compute_dtype=torch.float32)
    layer.weight = bnb.nn.Params4bit(
        weight.cpu(), requires_grad=False, quant_type="nf4", blocksize=64, compress_statistics=False
    )
    x = torch.randn(4, 64, device=device, requires_grad=True)
    with test.must_succeed("Linear4bit"):
        layer = layer.to(device)
        found = layer(x)
        found.sum().backward()
        test.synchronize(device)
    test.check_close(found, x.detach() @ four.t(), 1e-2, "Linear4bit")
    test.check_close(x.grad, four.sum(dim=0).expand(4, 64), 1e-2, "Linear4bit, gradient of its input")


def check_optimizer(test, torch, device):
    """Compare one step of 8-bit AdamW with torch's; its 8-bit states are read only in the next step."""
    import bitsandbytes as bnb

    start, slope = torch.randn(128, 64, device=device), torch.randn(128, 64, device=device)
    ours, plain = (torch.nn.Parameter(start.clone()) for _ in range(2))
    ours.grad, plain.grad = slope.clone(), slope.clone()
    with test.must_succeed("AdamW8bit.step"):
        bnb.optim.AdamW8bit([ours], lr=1e-2, weight_decay=0.0).step()
        test.synchronize(device)
    torch.optim.AdamW([plain], lr=1e-2, weight_decay=0.0).step()
    # The step is compared, and not the parameter, which would look right without any step.
    test.check_close(ours - start, plain - start, 0.02, "the step of AdamW8bit")


def torchvision(test, torch, device):
    imported(test, "torchvision")
    ops = imported(test, "torchvision.ops")
    corners = torch.rand(64, 2) * 50
    boxes = torch.cat([corners, corners + 5 + torch.rand(64, 2) * 20], dim=1)
    scores = torch.linspace(1, 0, 64)
    with test.must_succeed("nms"):
        found = ops.nms(boxes.to(device), scores.to(device), 0.3).tolist()
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    expected = []
    for box in range(64):
        corner = torch.minimum(boxes[box, 2:], boxes[expected, 2:])
        overlap = (corner - torch.maximum(boxes[box, :2], boxes[expected, :2])).clamp(min=0).prod(dim=1)
        if bool((overlap / (area[box] + area[expected] - overlap) <= 0.3).all()):
            expected.append(box)
    if found != expected:
        test.fail(f"nms kept the boxes {found}, expected {expected}")


def torchao(test, torch, device):
    imported(test, "torchao")
    quantization = imported(test, "torchao.quantization")
    config = getattr(quantization, "Int8WeightOnlyConfig", None) or getattr(
        quantization, "int8_weight_only", None
    )
    if config is None or not hasattr(quantization, "quantize_"):
        test.skip("imports; this release has no quantize_ with int8 weights")
    layer = torch.nn.Linear(64, 32, bias=False).to(device)
    weight = layer.weight.detach().clone()
    x = torch.randn(4, 64, device=device)
    model = torch.nn.Sequential(layer)
    with test.must_succeed("quantize_"), torch.no_grad():
        quantization.quantize_(model, config())
        found = model(x)
        test.synchronize(device)
    plain = x @ weight.t()
    if torch.equal(found, plain):
        test.fail("quantize_ left the weights as they were")
    # A weight is off by at most half a step of its row; a row of torchao has 127 or 127.5 steps.
    step = weight.abs().amax(dim=1) / 127
    allowed = x.abs().sum(dim=1, keepdim=True) * step / 2 + 1e-3 * plain.abs().max()
    if not bool(((found - plain).abs() <= allowed).all()):
        test.fail("a layer with int8 weights is further off than half a step of its weights")


def causal_conv1d(test, torch, device):
    module = imported(test, "causal_conv1d")
    require_gpu(test)
    x = torch.randn(2, 64, 128, device=device)
    weight, bias = torch.randn(64, 4, device=device), torch.randn(64, device=device)
    with test.must_succeed("causal_conv1d_fn"):
        found = module.causal_conv1d_fn(x, weight, bias, activation=None)
        test.synchronize(device)
    windows = torch.nn.functional.pad(x, (3, 0)).unfold(2, 4, 1)
    test.check_close(
        found, (windows * weight[:, None, :]).sum(-1) + bias[:, None], SINGLE, "causal_conv1d_fn"
    )


def mamba_ssm(test, torch, device):
    module = imported(test, "mamba_ssm.ops.selective_scan_interface")
    require_gpu(test)
    batch, width, tokens, states = 2, 16, 32, 8
    u, delta = (
        torch.randn(batch, width, tokens, device=device),
        torch.rand(batch, width, tokens, device=device),
    )
    a = -torch.rand(width, states, device=device)
    b, c = (torch.randn(batch, states, tokens, device=device) for _ in range(2))
    with test.must_succeed("selective_scan_fn"):
        found = module.selective_scan_fn(u, delta, a, b, c)
        test.synchronize(device)
    state, steps = torch.zeros(batch, width, states, device=device), []
    for t in range(tokens):
        now = delta[:, :, t, None]
        state = (now * a).exp() * state + now * b[:, None, :, t] * u[:, :, t, None]
        steps.append((state * c[:, None, :, t]).sum(-1))
    test.check_close(found, torch.stack(steps, dim=-1), 1e-3, "selective_scan_fn")


def apex(test, torch, device):
    import importlib.util

    if importlib.util.find_spec("fused_layer_norm_cuda") is None:
        test.skip("this apex has no compiled extensions, or is another package of that name")
    imported(test, "fused_layer_norm_cuda")
    normalization = imported(test, "apex.normalization")
    require_gpu(test)
    x = torch.randn(8, 256, device=device)
    with test.must_succeed("FusedLayerNorm"):
        found = normalization.FusedLayerNorm(256).to(device)(x)
        test.synchronize(device)
    centred = x - x.mean(dim=1, keepdim=True)
    expected = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    test.check_close(found, expected, SINGLE, "FusedLayerNorm")


# --- DeepSpeed's ops ----------------------------------------------------------------------------------


def deepspeed_ops(test, torch, device):
    """Check the ops that were built when DeepSpeed was installed; it compiles the others at first use."""
    built, accelerator = built_ops()
    if not built:
        test.skip("none was built when DeepSpeed was installed; it compiles them at first use")
    if accelerator and accelerator != test.device_type:
        test.skip(f"were built for {accelerator}, this is {test.device_type}")
    imported(test, "deepspeed")
    builders = imported(test, "deepspeed.ops.op_builder")
    builder_class = imported(test, "deepspeed.ops.op_builder.builder").OpBuilder

    def refuse(builder, *args, **kwargs):
        raise RuntimeError(f"{builder.name} was built, and would be compiled all the same")

    builder_class.jit_load = refuse
    known = imported(test, "deepspeed.ops.op_builder.all_ops").ALL_OPS
    checks = {
        "cpu_adam": lambda: check_adam(
            test, torch, torch.device("cpu"), "deepspeed.ops.adam", "DeepSpeedCPUAdam"
        ),
        "fused_adam": lambda: check_adam(test, torch, device, "deepspeed.ops.adam", "FusedAdam"),
        "utils": lambda: check_flatten(test, torch, builders.UtilsBuilder().load()),
    }
    called = []
    for name in sorted(built & set(known)):
        with test.must_succeed(f"loading {name}"):
            known[name].load()
        if name in checks and (name != "fused_adam" or test.device_type == "cuda"):
            checks[name]()
            called.append(name)
    test.record(loaded=sorted(built & set(known)), called=called)


def built_ops():
    """Return the names of the built ops and their accelerator, as DeepSpeed's installation recorded them."""
    import importlib.util
    import os
    import runpy

    found = importlib.util.find_spec("deepspeed")
    folder = next(iter(found.submodule_search_locations or ()), "") if found else ""
    record = os.path.join(folder, "git_version_info_installed.py")
    if not os.path.isfile(record):
        return set(), ""
    values = runpy.run_path(record)  # a file of assignments; DeepSpeed itself is not imported
    built = {name for name, installed in values.get("installed_ops", {}).items() if installed}
    return built - {"deepspeed_not_implemented"}, values.get("accelerator_name", "")


def check_adam(test, torch, device, module, name):
    """Compare three steps of one of DeepSpeed's Adams with three of torch's AdamW."""
    optimizer_class = getattr(imported(test, module), name)
    start = torch.randn(33, 70, device=device)
    ours, plain = (torch.nn.Parameter(start.clone()) for _ in range(2))
    settings = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    with test.must_succeed(name):
        optimizer = optimizer_class([ours], **settings)
    reference = torch.optim.AdamW([plain], **settings)
    for _ in range(3):
        ours.grad = torch.randn_like(start)
        plain.grad = ours.grad.clone()
        with test.must_succeed(f"{name}.step"):
            optimizer.step()
            test.synchronize(device)
        reference.step()
    test.check_close(ours - start, plain - start, 1e-3, f"three steps of {name}")


def check_flatten(test, torch, module):
    """Join tensors into one and split it again, as ZeRO does with gradients."""
    tensors = [torch.randn(3, 4), torch.randn(5)]
    with test.must_succeed("flatten"):
        flat = module.flatten(tensors)
    test.check_close(flat, torch.cat([tensor.flatten() for tensor in tensors]), 0.0, "flatten")
    with test.must_succeed("unflatten"):
        parts = module.unflatten(flat, tensors)
    for part, tensor in zip(parts, tensors):
        test.check_close(part, tensor, 0.0, "unflatten")
