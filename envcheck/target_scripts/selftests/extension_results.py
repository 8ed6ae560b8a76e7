"""Compiled extensions load, and compute what plain torch computes.

One variant an extension, asked if it is installed: it is imported, called on small random tensors, and
compared with the same in plain torch in float32 (with its gradients, where it is differentiated in
training). Tolerances, relative to the largest value: 0.02 for bf16 and fp16 kernels (eight bits, and sums
of a hundred), 1e-4 for float32 (another order of summing), what quantizes within one step of its grid.
On a CPU, what has CPU kernels is called; the others are imported, which already finds a wrong ABI, and
say that they need a GPU. Nothing is compiled but the one kernel of triton, whose purpose that is.
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

WITHOUT_GPU = ("libcuda.so.1:", "0 active drivers", "no NVIDIA driver", "No CUDA GPUs are available")
"""What the loader, triton and torch say where there is no driver or no GPU."""


def run(stage, variant):
    torch = stage.torch()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    ask = {
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
    ask(stage, torch, stage.devices()[0])


def imported(stage, name):
    """The module; whatever its import raises is what was to be seen, but for a driver that is not here."""
    import importlib

    with stage.call(f"import {name}"):
        try:
            return importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            only_here(stage, error)
            raise


def only_here(stage, error):
    """Skip if an error only says that there is no GPU or driver, which is known on a CPU."""
    said = str(error)
    if stage.device_type == "cpu" and any(each in said for each in WITHOUT_GPU):
        stage.skip(f"cannot be loaded without a GPU: {said.strip().splitlines()[0]}")


def gpu_only(stage, least=None):
    """Skip on a CPU, where the extension has no kernels, and on a GPU older than its kernels."""
    import torch

    if stage.device_type == "cpu":
        stage.skip("loads; its kernels need a GPU")
    if least is not None and torch.cuda.get_device_capability(0) < least:
        stage.skip(f"loads; its kernels need compute capability {least[0]}.{least[1]}")


def attention(torch, q, k, v):
    """Causal attention of (batch, tokens, heads, width) in float32, written out."""
    q, k, v = (each.float().transpose(1, 2) for each in (q, k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    tokens = scores.shape[-1]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def attends(stage, torch, device, dtype, attend, name):
    """Compare an attention and its gradients with the one written out."""
    shape = (2, 128, 4, 64)
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    plain = [each.detach().float().requires_grad_() for each in inputs]
    slope = torch.randn(shape, device=device, dtype=dtype)
    with stage.must(name):
        found = attend(*inputs)
        stage.settle(device)
    expected = attention(torch, *plain)
    stage.close(found, expected, HALF, f"{name}, forward")
    with stage.must(f"backward of {name}"):
        found.backward(slope)
        stage.settle(device)
    expected.backward(slope.float())
    for letter, each, right in zip("qkv", inputs, plain):
        stage.close(each.grad, right.grad, HALF, f"{name}, gradient of {letter}")


def flash_attn(stage, torch, device):
    module = imported(stage, "flash_attn")
    gpu_only(stage, (8, 0))
    attends(
        stage,
        torch,
        device,
        torch.bfloat16,
        lambda q, k, v: module.flash_attn_func(q, k, v, causal=True),
        "flash_attn_func",
    )


def xformers(stage, torch, device):
    imported(stage, "xformers")
    library = imported(stage, "xformers._cpp_lib")
    # xformers only warns when its library does not load, and fails where it is called.
    broken = getattr(library, "_cpp_library_load_exception", None)
    if broken is not None:
        cause = broken
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__
        only_here(stage, cause)
        lines = [each.strip() for each in str(broken).splitlines()]
        stage.fail(" ".join(lines[:3]) + (f" ({cause})" if cause is not broken else ""))
    gpu_only(stage, (7, 0))
    ops = imported(stage, "xformers.ops")
    dtype = torch.bfloat16 if torch.cuda.get_device_capability(0) >= (8, 0) else torch.float16
    attends(
        stage,
        torch,
        device,
        dtype,
        lambda q, k, v: ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask()),
        "memory_efficient_attention",
    )


def triton(stage, torch, device):
    module = imported(stage, "triton")
    language = imported(stage, "triton.language")
    gpu_only(stage)
    globals()["tl"] = language  # where a kernel looks names up

    @module.jit
    def add(x, y, out, count, BLOCK: tl.constexpr):  # noqa: F821, N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # noqa: F821
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)  # noqa: F821

    count, block = 1000, 256  # not a multiple: the last block is masked
    x, y = (torch.randn(count, device=device) for _ in range(2))
    out = torch.full((count + block,), 7.0, device=device)
    with stage.must("compiling and launching a kernel"):
        add[(-(-count // block),)](x, y, out, count, BLOCK=block)
        stage.settle(device)
    stage.close(out[:count], x + y, 1e-6, "x + y by triton")
    if not bool((out[count:] == 7.0).all()):
        stage.fail("the kernel wrote outside of its mask")


def bitsandbytes(stage, torch, device):
    imported(stage, "bitsandbytes")
    F = imported(stage, "bitsandbytes.functional")  # noqa: N806 - as its own documentation calls it
    library = imported(stage, "bitsandbytes.cextension")
    native = type(getattr(library, "lib", None)).__name__
    stage.saw(library=native)
    if stage.device_type == "cpu" and native in ("NoneType", "ErrorHandlerMockBNBNativeLibrary"):
        stage.skip("imports; this release has no native library for a CPU, or none that loads")
    x = torch.randn(64, 64, device=device)
    block = 256
    with stage.must("quantize_blockwise"):
        codes, state = F.quantize_blockwise(x, blocksize=block)
        back = F.dequantize_blockwise(codes, state)
        stage.settle(device)
    grid = state.code.to(device).float()
    eight = grid[codes.long()].view(-1, block) * state.absmax.view(-1, 1)
    stage.close(back.view(-1, block), eight, 1e-5, "dequantize_blockwise")
    nearest(stage, x.view(-1, block), eight, grid, "quantize_blockwise")
    four_bits(stage, torch, device, F)
    if stage.device_type == "cuda":
        optimizer(stage, torch, device)


def nearest(stage, x, found, grid, what):
    """Fail unless every value became the value of the grid that is nearest to it (one block a row)."""
    scale = x.abs().amax(dim=1, keepdim=True)
    best = ((x / scale).unsqueeze(-1) - grid).abs().amin(dim=-1)
    worse = float((((x - found) / scale).abs() - best).max())
    # An eighth of the widest step: a value halfway between two may go either way.
    allowed = float(grid.sort().values.diff().max()) / 8
    if not worse <= allowed:
        stage.fail(
            f"{what}: {worse:.2g} of a block's largest value from its nearest code, allowed {allowed:.2g}"
        )


def four_bits(stage, torch, device, functional):
    """NF4, as QLoRA stores a base model: the packed codes, a layer's output and its gradient."""
    import bitsandbytes as bnb

    weight = torch.randn(32, 64, device=device)
    if stage.device_type == "cpu" and not hasattr(bnb, "backends"):
        stage.saw(four_bits="not on a CPU in this release")
        return
    with stage.must("quantize_4bit"):
        codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        back = functional.dequantize_4bit(codes, state)
        stage.settle(device)
    grid = state.code.to(device).float()
    packed = codes.flatten().long()
    picked = torch.stack([packed >> 4, packed & 15], dim=1).flatten()
    four = grid[picked].view(32, 64) * state.absmax.float().view(32, 1)
    stage.close(back, four, 1e-5, "dequantize_4bit")
    nearest(stage, weight, four, grid, "quantize_4bit")
    layer = bnb.nn.Linear4bit(64, 32, bias=False, quant_type="nf4", compute_dtype=torch.float32)
    layer.weight = bnb.nn.Params4bit(
        weight.cpu(), requires_grad=False, quant_type="nf4", blocksize=64, compress_statistics=False
    )
    x = torch.randn(4, 64, device=device, requires_grad=True)
    with stage.must("Linear4bit"):
        layer = layer.to(device)
        found = layer(x)
        found.sum().backward()
        stage.settle(device)
    stage.close(found, x.detach() @ four.t(), 1e-2, "Linear4bit")
    stage.close(x.grad, four.sum(dim=0).expand(4, 64), 1e-2, "Linear4bit, gradient of its input")


def optimizer(stage, torch, device):
    """One step of 8-bit AdamW is one of torch's: what is kept in eight bits is read in the next."""
    import bitsandbytes as bnb

    start, slope = torch.randn(128, 64, device=device), torch.randn(128, 64, device=device)
    ours, plain = (torch.nn.Parameter(start.clone()) for _ in range(2))
    ours.grad, plain.grad = slope.clone(), slope.clone()
    with stage.must("AdamW8bit.step"):
        bnb.optim.AdamW8bit([ours], lr=1e-2, weight_decay=0.0).step()
        stage.settle(device)
    torch.optim.AdamW([plain], lr=1e-2, weight_decay=0.0).step()
    # The step itself, not the parameter, which would look right without one.
    stage.close(ours - start, plain - start, 0.02, "the step of AdamW8bit")


def torchvision(stage, torch, device):
    imported(stage, "torchvision")
    ops = imported(stage, "torchvision.ops")
    corners = torch.rand(64, 2) * 50
    boxes = torch.cat([corners, corners + 5 + torch.rand(64, 2) * 20], dim=1)
    scores = torch.linspace(1, 0, 64)
    with stage.must("nms"):
        found = ops.nms(boxes.to(device), scores.to(device), 0.3).tolist()
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    expected = []
    for each in range(64):
        width = torch.minimum(boxes[each, 2:], boxes[expected, 2:])
        inside = (width - torch.maximum(boxes[each, :2], boxes[expected, :2])).clamp(min=0).prod(dim=1)
        if bool((inside / (area[each] + area[expected] - inside) <= 0.3).all()):
            expected.append(each)
    if found != expected:
        stage.fail(f"nms kept the boxes {found}, expected {expected}")


def torchao(stage, torch, device):
    imported(stage, "torchao")
    quantization = imported(stage, "torchao.quantization")
    config = getattr(quantization, "Int8WeightOnlyConfig", None) or getattr(
        quantization, "int8_weight_only", None
    )
    if config is None or not hasattr(quantization, "quantize_"):
        stage.skip("imports; this release has no quantize_ with int8 weights")
    layer = torch.nn.Linear(64, 32, bias=False).to(device)
    weight = layer.weight.detach().clone()
    x = torch.randn(4, 64, device=device)
    model = torch.nn.Sequential(layer)
    with stage.must("quantize_"), torch.no_grad():
        quantization.quantize_(model, config())
        found = model(x)
        stage.settle(device)
    plain = x @ weight.t()
    if torch.equal(found, plain):
        stage.fail("quantize_ left the weights as they were")
    # A weight is off by half a step of its row at most; torchao's row ends at 127 or 127.5 steps.
    step = weight.abs().amax(dim=1) / 127
    allowed = x.abs().sum(dim=1, keepdim=True) * step / 2 + 1e-3 * plain.abs().max()
    if not bool(((found - plain).abs() <= allowed).all()):
        stage.fail("a layer with int8 weights is further off than half a step of its weights")


def causal_conv1d(stage, torch, device):
    module = imported(stage, "causal_conv1d")
    gpu_only(stage)
    x = torch.randn(2, 64, 128, device=device)
    weight, bias = torch.randn(64, 4, device=device), torch.randn(64, device=device)
    with stage.must("causal_conv1d_fn"):
        found = module.causal_conv1d_fn(x, weight, bias, activation=None)
        stage.settle(device)
    ahead = torch.nn.functional.pad(x, (3, 0)).unfold(2, 4, 1)
    stage.close(found, (ahead * weight[:, None, :]).sum(-1) + bias[:, None], SINGLE, "causal_conv1d_fn")


def mamba_ssm(stage, torch, device):
    module = imported(stage, "mamba_ssm.ops.selective_scan_interface")
    gpu_only(stage)
    batch, width, tokens, states = 2, 16, 32, 8
    u, delta = (
        torch.randn(batch, width, tokens, device=device),
        torch.rand(batch, width, tokens, device=device),
    )
    a = -torch.rand(width, states, device=device)
    b, c = (torch.randn(batch, states, tokens, device=device) for _ in range(2))
    with stage.must("selective_scan_fn"):
        found = module.selective_scan_fn(u, delta, a, b, c)
        stage.settle(device)
    kept, steps = torch.zeros(batch, width, states, device=device), []
    for t in range(tokens):
        now = delta[:, :, t, None]
        kept = (now * a).exp() * kept + now * b[:, None, :, t] * u[:, :, t, None]
        steps.append((kept * c[:, None, :, t]).sum(-1))
    stage.close(found, torch.stack(steps, dim=-1), 1e-3, "selective_scan_fn")


def apex(stage, torch, device):
    import importlib.util

    if importlib.util.find_spec("fused_layer_norm_cuda") is None:
        stage.skip("this apex has no compiled extensions, or is another package of that name")
    imported(stage, "fused_layer_norm_cuda")
    normalization = imported(stage, "apex.normalization")
    gpu_only(stage)
    x = torch.randn(8, 256, device=device)
    with stage.must("FusedLayerNorm"):
        found = normalization.FusedLayerNorm(256).to(device)(x)
        stage.settle(device)
    centred = x - x.mean(dim=1, keepdim=True)
    expected = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    stage.close(found, expected, SINGLE, "FusedLayerNorm")


# --- DeepSpeed's ops ----------------------------------------------------------------------------------


def deepspeed_ops(stage, torch, device):
    """Ops that were built when DeepSpeed was installed; the others it would compile at first use."""
    built, accelerator = built_ops()
    if not built:
        stage.skip("none was built when DeepSpeed was installed; it compiles them at first use")
    if accelerator and accelerator != stage.device_type:
        stage.skip(f"were built for {accelerator}, this is {stage.device_type}")
    imported(stage, "deepspeed")
    builders = imported(stage, "deepspeed.ops.op_builder")
    builder_class = imported(stage, "deepspeed.ops.op_builder.builder").OpBuilder

    def refuse(builder, *args, **kwargs):
        raise RuntimeError(f"{builder.name} was built, and would be compiled all the same")

    builder_class.jit_load = refuse
    known = imported(stage, "deepspeed.ops.op_builder.all_ops").ALL_OPS
    calls = {
        "cpu_adam": lambda: adam(stage, torch, torch.device("cpu"), "deepspeed.ops.adam", "DeepSpeedCPUAdam"),
        "fused_adam": lambda: adam(stage, torch, device, "deepspeed.ops.adam", "FusedAdam"),
        "utils": lambda: flatten(stage, torch, builders.UtilsBuilder().load()),
    }
    called = []
    for name in sorted(built & set(known)):
        with stage.must(f"loading {name}"):
            known[name].load()
        if name in calls and (name != "fused_adam" or stage.device_type == "cuda"):
            calls[name]()
            called.append(name)
    stage.saw(loaded=sorted(built & set(known)), called=called)


def built_ops():
    """Names of the ops that are built, and the accelerator they are for, as the installation noted them."""
    import importlib.util
    import os
    import runpy

    found = importlib.util.find_spec("deepspeed")
    folder = next(iter(found.submodule_search_locations or ()), "") if found else ""
    noted = os.path.join(folder, "git_version_info_installed.py")
    if not os.path.isfile(noted):
        return set(), ""
    values = runpy.run_path(noted)  # assignments of literals, without importing DeepSpeed
    built = {name for name, there in values.get("installed_ops", {}).items() if there}
    return built - {"deepspeed_not_implemented"}, values.get("accelerator_name", "")


def adam(stage, torch, device, module, name):
    """Three steps of one of DeepSpeed's Adams are three of torch's AdamW."""
    optimizer = getattr(imported(stage, module), name)
    start = torch.randn(33, 70, device=device)
    ours, plain = (torch.nn.Parameter(start.clone()) for _ in range(2))
    settings = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    with stage.must(name):
        one = optimizer([ours], **settings)
    other = torch.optim.AdamW([plain], **settings)
    for _ in range(3):
        ours.grad = torch.randn_like(start)
        plain.grad = ours.grad.clone()
        with stage.must(f"{name}.step"):
            one.step()
            stage.settle(device)
        other.step()
    stage.close(ours - start, plain - start, 1e-3, f"three steps of {name}")


def flatten(stage, torch, module):
    """Tensors made into one and taken apart again, as ZeRO does with gradients."""
    tensors = [torch.randn(3, 4), torch.randn(5)]
    with stage.must("flatten"):
        flat = module.flatten(tensors)
    stage.close(flat, torch.cat([each.flatten() for each in tensors]), 0.0, "flatten")
    with stage.must("unflatten"):
        apart = module.unflatten(flat, tensors)
    for each, right in zip(apart, tensors):
        stage.close(each, right, 0.0, "unflatten")
