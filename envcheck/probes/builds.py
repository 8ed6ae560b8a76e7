"""Read what binaries were built for, from files that their build wrote; nothing is imported.

torch writes `torch/version.py`, DeepSpeed `deepspeed/git_version_info_installed.py`. Only assignments of
literals are read; anything else in these files is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from envcheck.core.facts import Absent, Fact, Key, Kind, Known, Reading, Unknown

YIELDS = {
    "build.torch.cuda": Key(
        Kind.VERSION, "CUDA torch was built with, e.g. 12.4; absent in a CPU or ROCm build"
    ),
    "build.torch.hip": Key(Kind.VERSION, "HIP torch was built with, e.g. 6.2.41133-dd7f95766"),
    "build.torch.git": Key(Kind.WORD, "commit torch was built from"),
    "build.deepspeed.torch": Key(Kind.VERSION, "torch DeepSpeed's ops were built with, major and minor"),
    "build.deepspeed.cuda": Key(Kind.VERSION, "CUDA DeepSpeed's ops were built with"),
    "build.deepspeed.ops": Key(Kind.WORDS, "ops that DeepSpeed's installation compiled, e.g. fused_adam"),
}

_TORCH = {"build.torch.cuda": "cuda", "build.torch.hip": "hip", "build.torch.git": "git_version"}
_DEEPSPEED = {"build.deepspeed.torch": "version", "build.deepspeed.cuda": "cuda_version"}
_OPS = "build.deepspeed.ops"
_LONGEST_LITERAL = 16 * 1024

ReadText = Callable[[str], str | None]
"""Return the text of a file, given its path in the package folder, or None."""


def torch_facts(
    read: ReadText, source: Callable[[str], str], conda_build: str | None, pytorch_cuda: str = ""
) -> Iterator[Fact]:
    """Yield what torch was built with, from version.py or else from the build string of its conda package.

    `pytorch_cuda` is the version of the conda package that selects a build by its CUDA.
    """
    path = "torch/version.py"
    text = read(path)
    if text is not None:
        values = assignments(text)
        return (Fact(key, _torch_reading(values, name), source(path)) for key, name in _TORCH.items())
    if conda_build is not None:
        cuda = conda_cuda(conda_build)
        if isinstance(cuda, Unknown) and pytorch_cuda:
            cuda = Known(pytorch_cuda)
        return iter([Fact("build.torch.cuda", cuda, "conda-meta")])
    return (Fact(key, Unknown("torch/version.py cannot be read"), source(path)) for key in _TORCH)


def stated_version(read: ReadText) -> str:
    """Return the version in torch/version.py; empty if it has none."""
    return assignments(read("torch/version.py") or "").get("__version__") or ""


def _torch_reading(values: Mapping[str, str | None], name: str) -> Reading:
    value = values.get(name)
    if value:
        return Known(value)
    # Releases before ROCm have no `hip` line. A version.py without a `cuda` line is not torch's.
    if name == "hip" or name in values:
        return Absent()
    return Unknown(f"no assignment of {name} found")


def deepspeed_facts(read: ReadText, source: Callable[[str], str]) -> Iterator[Fact]:
    """Yield what DeepSpeed's ops were built against, from the `torch_info` that its installation wrote."""
    path = "deepspeed/git_version_info_installed.py"
    text = read(path)
    if text is None:
        reading = Absent() if read("deepspeed/__init__.py") is not None else Unknown(f"no {path}")
        return (Fact(key, reading, source(path)) for key in (*_DEEPSPEED, _OPS))
    info = _dictionary(text, "torch_info")
    found = {key: _deepspeed_reading(info, name) for key, name in _DEEPSPEED.items()}
    found[_OPS] = _compiled_ops(_dictionary(text, "installed_ops"))
    return (Fact(key, reading, source(path)) for key, reading in found.items())


def _compiled_ops(installed: Mapping[object, object] | None) -> Reading:
    if installed is None:
        return Unknown("no literal installed_ops found")
    ops = tuple(str(name) for name, compiled in installed.items() if compiled)
    return Known(ops) if ops else Absent()


def _deepspeed_reading(info: Mapping[object, object] | None, name: str) -> Reading:
    if info is None:
        return Unknown("no literal torch_info found")
    value = info.get(name)
    # DeepSpeed writes 0.0 for "none", as in a build on a machine without CUDA.
    return Known(value) if isinstance(value, str) and value not in ("", "0.0") else Absent()


def assignments(text: str) -> dict[str, str | None]:
    """Return the values of `name = 'literal'` and `name: Optional[str] = None`; the last one counts.

    None stands for a literal None; other right-hand sides are left out.
    """
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        left, equals, right = line.partition("=")
        name = left.partition(":")[0].rstrip()
        if not equals or not name.isidentifier():
            continue
        value = right.partition("#")[0].strip()
        if value == "None":
            found[name] = None
        elif len(value) > 1 and value[0] in "'\"" and value.find(value[0], 1) == len(value) - 1:
            found[name] = value[1:-1]
    return found


def _dictionary(text: str, name: str) -> Mapping[object, object] | None:
    """Return the dictionary literal that is assigned to a name on one line, or None."""
    import ast

    for line in text.splitlines():
        left, _, right = line.partition("=")
        if left.strip() == name and len(right) < _LONGEST_LITERAL:
            try:
                value = ast.literal_eval(right.strip())
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                return None
            return value if isinstance(value, dict) else None
    return None


def conda_cuda(build: str) -> Reading:
    """Return the CUDA version in a conda build string: 12.1 in `py3.11_cuda12.1_cudnn8.9.2_0`."""
    for part in build.split("_"):
        digits = part.removeprefix("cuda").partition("py")[0]
        if part.startswith("cuda") and digits.replace(".", "").isdecimal():
            return Known(digits if "." in digits else f"{digits[:-1]}.{digits[-1]}")
        if part.startswith("cpu"):
            return Absent()
    return Unknown(f"conda build string {build} names no CUDA")
