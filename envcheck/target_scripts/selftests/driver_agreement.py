"""torch imports, is the release it was installed as, and agrees with the driver about CUDA and the GPUs.

import: a tensor is made and added to on the CPU. Versions are compared by their numbers, up to the first
letter or "+": a vendor's build may say more in one place than in the other. driver: what
`cudaDriverGetVersion` says is of torch's CUDA major or a newer one (within a major an older driver does,
NVIDIA's minor version compatibility), torch can use a GPU, and it counts those that the driver shows.
Seconds: what importing torch takes. Memory: below 1 GiB, nearly all of it libraries.
A failure means that nothing will train here.
"""

import re

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
VARIANTS = {"import": {}, "driver": {"devices": ("cuda",)}}


def run(stage, variant):
    torch = stage.torch()
    stage.saw(torch=torch.__version__, cuda=torch.version.cuda)
    if variant == "driver":
        through_the_driver(stage, torch)
        return
    installed_as(stage, torch)
    with stage.must("a tensor on the CPU"):
        found = torch.arange(10, dtype=torch.float32).add(1).tolist()
    if found != [float(each) for each in range(1, 11)]:
        stage.fail(f"0 … 9 plus 1 is {found} on the CPU")


def numbers(version):
    """The release of a version as a tuple: (2, 6, 0) of 2.6.0+cu124 and of 2.6.0a0+git."""
    found = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    parts = [int(each) for each in found[1].split(".")] if found else []
    return tuple([*parts, 0, 0, 0][:3])


def installed_as(stage, torch):
    """Fail if the torch that was imported is another release than the one that is installed."""
    from importlib import metadata

    try:
        installed = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return  # a conda or source build may have no metadata: then there is nothing to differ from
    if installed and numbers(installed) != numbers(torch.__version__):
        stage.fail(
            f"torch {torch.__version__} was imported, but {installed} is what is installed: "
            "files of two releases are mixed, or another torch comes first on the path"
        )


def through_the_driver(stage, torch):
    """Fail unless torch is built for CUDA, the driver speaks it, and both see the same GPUs."""
    built = torch.version.cuda
    if built is None:
        stage.fail(f"torch {torch.__version__} is a build without CUDA")
    with stage.must("cudaDriverGetVersion"):
        spoken = torch._C._cuda_getDriverVersion()
    if spoken == 0:
        stage.fail(f"torch is built for CUDA {built} and finds no NVIDIA driver (libcuda.so.1)")
    driver = (spoken // 1000, spoken % 1000 // 10)
    shown = f"{driver[0]}.{driver[1]}"
    stage.saw(driver_cuda=shown)
    if driver[0] < int(built.split(".")[0]):
        stage.fail(f"torch is built for CUDA {built}, this driver speaks CUDA {shown} at most")
    if not torch.cuda.is_available():
        with stage.must("torch.cuda.init"):
            torch.cuda.init()  # says why
        stage.fail(
            f"torch.cuda.is_available() is false; torch is built for CUDA {built}, the driver for {shown}"
        )
    with stage.must("torch.cuda.device_count"):
        by_torch = torch.cuda.device_count()
    with stage.must("torch.cuda.init"):
        torch.cuda.init()
        by_cuda = torch._C._cuda_getDeviceCount()
    names = [torch.cuda.get_device_name(each) for each in range(by_cuda)]
    stage.saw(gpus=names)
    visible = stage.order.get("gpus")
    if by_torch != by_cuda:
        stage.fail(f"torch counts {by_torch} GPUs by NVML, and CUDA opens {by_cuda}")
    if visible is not None and by_cuda != visible:
        stage.fail(f"the driver shows {visible} GPUs, and CUDA opens {by_cuda}: {', '.join(names)}")
