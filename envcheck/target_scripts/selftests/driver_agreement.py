"""torch imports, is the release it was installed as, and agrees with the driver about CUDA and the GPUs.

Variant `import`: a tensor is made and added to on the CPU. Versions are compared by their numbers, up to the
first letter or "+", because a vendor's build may write more in one place than in the other.

Variant `driver`: the version from `cudaDriverGetVersion` has torch's CUDA major or a newer one (within a
major an older driver is enough: NVIDIA's minor version compatibility), torch can use a GPU, and it counts the
GPUs that the driver shows.

Seconds: what importing torch takes. Memory: below 1 GiB, nearly all of it libraries.

A failure means that nothing will train here.
"""

import re

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
VARIANTS = {"import": {}, "driver": {"devices": ("cuda",)}}


def run(test, variant):
    torch = test.import_torch()
    test.record(torch=torch.__version__, cuda=torch.version.cuda)
    if variant == "driver":
        check_driver(test, torch)
        return
    check_release(test, torch)
    with test.must_succeed("a tensor on the CPU"):
        found = torch.arange(10, dtype=torch.float32).add(1).tolist()
    if found != [float(number) for number in range(1, 11)]:
        test.fail(f"0 … 9 plus 1 is {found} on the CPU")


def numbers(version):
    """Return the release of a version as a tuple: (2, 6, 0) of 2.6.0+cu124 and of 2.6.0a0+git."""
    found = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    parts = [int(part) for part in found[1].split(".")] if found else []
    return tuple([*parts, 0, 0, 0][:3])


def check_release(test, torch):
    """Fail if the imported torch is another release than the installed one."""
    from importlib import metadata

    try:
        installed = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return  # a conda or source build may have no metadata, and so no installed release to compare
    if installed and numbers(installed) != numbers(torch.__version__):
        test.fail(
            f"torch {torch.__version__} was imported, but {installed} is what is installed: "
            "files of two releases are mixed, or another torch comes first on the path"
        )


def check_driver(test, torch):
    """Fail unless torch is built for CUDA, the driver supports it, and both see the same GPUs."""
    built = torch.version.cuda
    if built is None:
        test.fail(f"torch {torch.__version__} is a build without CUDA")
    with test.must_succeed("cudaDriverGetVersion"):
        supported = torch._C._cuda_getDriverVersion()
    if supported == 0:
        test.fail(f"torch is built for CUDA {built} and finds no NVIDIA driver (libcuda.so.1)")
    driver = (supported // 1000, supported % 1000 // 10)
    shown = f"{driver[0]}.{driver[1]}"
    test.record(driver_cuda=shown)
    if driver[0] < int(built.split(".")[0]):
        test.fail(f"torch is built for CUDA {built}, this driver speaks CUDA {shown} at most")
    if not torch.cuda.is_available():
        with test.must_succeed("torch.cuda.init"):
            torch.cuda.init()  # raises with the reason
        test.fail(
            f"torch.cuda.is_available() is false; torch is built for CUDA {built}, the driver for {shown}"
        )
    with test.must_succeed("torch.cuda.device_count"):
        by_torch = torch.cuda.device_count()
    with test.must_succeed("torch.cuda.init"):
        torch.cuda.init()
        by_cuda = torch._C._cuda_getDeviceCount()
    names = [torch.cuda.get_device_name(index) for index in range(by_cuda)]
    test.record(gpus=names)
    visible = test.order.get("gpus")
    if by_torch != by_cuda:
        test.fail(f"torch counts {by_torch} GPUs by NVML, and CUDA opens {by_cuda}")
    if visible is not None and by_cuda != visible:
        test.fail(f"the driver shows {visible} GPUs, and CUDA opens {by_cuda}: {', '.join(names)}")
