"""Torch builds for another CUDA, which the default index lacks: find one that fits, say how to install it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.commands.pin.completion import COMPILED_FOR_TORCH
from envcheck.core.errors import NoSolutionError
from envcheck.core.rules import Matrix
from envcheck.resolution import resolver
from envcheck.resolution.resolver import SearchProblem


def fitting_versions(problem: SearchProblem) -> Mapping[str, str]:
    """Return fitting versions with a torch for another CUDA; empty if there are none."""
    try:
        chosen = resolver.solve(resolver.with_variants(problem)).versions
    except NoSolutionError:  # the search gave up
        return {}
    if chosen is None or "torch" not in chosen or _compiled_for_another(chosen, problem.known):
        return {}
    return chosen


def _compiled_for_another(chosen: Mapping[str, str], known: Matrix) -> bool:
    """Return whether a chosen package has GPU code that needs the CUDA of the default torch.

    Such a wheel (vLLM's) links libcudart of one major version, which a torch for another major version does
    not bring. Packages that are published for several CUDA versions state them.
    """
    wanted = next(
        row.cuda for row in known.tables.torch_variants if f"{row.torch}+{row.tag}" == chosen["torch"]
    )
    release = chosen["torch"].partition("+")[0]
    usual = next(row.cuda for row in known.tables.torch_builds if row.version == release)
    if _major(usual) == _major(wanted):
        return False
    for name, version in chosen.items():
        build = known.builds(name, version) or {}
        elsewhere = name == "torch" or name in COMPILED_FOR_TORCH
        if not elsewhere and "gpu" in build and _major(wanted) not in map(_major, build.get("cuda", ())):
            return True
    return False


def _major(cuda: str) -> str:
    return cuda.partition(".")[0]


def manual_install(chosen: Mapping[str, str], why_not: Sequence[str]) -> str:
    """Return how to install such a torch by hand; if a lock with it was tried, also why there is none."""
    release, _, tag = chosen["torch"].partition("+")
    rest = ", ".join(f"{name} {version}" for name, version in chosen.items() if name != "torch")
    beside = f", with {rest}" if rest else ""
    what = f"torch {release}+{tag}, a build for another CUDA that the default index does not hold{beside}:"
    lines = [what, f"uv pip install --torch-backend {tag} torch=={release}", *why_not]
    return "\n      ".join(lines)
