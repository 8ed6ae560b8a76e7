"""Torch builds for another CUDA, which the default index lacks: find one that fits, say how to install it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core.errors import NoSolutionError
from envcheck.resolution import resolver
from envcheck.resolution.resolver import SearchProblem


def fitting_versions(problem: SearchProblem) -> Mapping[str, str]:
    """Return fitting versions with a torch for another CUDA; empty if there are none."""
    try:
        chosen = resolver.solve(resolver.with_variants(problem)).versions
    except NoSolutionError:  # the search gave up
        return {}
    return chosen if chosen is not None and "torch" in chosen else {}


def manual_install(chosen: Mapping[str, str], why_not: Sequence[str]) -> str:
    """Return how to install such a torch by hand; if a lock with it was tried, also why there is none."""
    release, _, tag = chosen["torch"].partition("+")
    rest = ", ".join(f"{name} {version}" for name, version in chosen.items() if name != "torch")
    beside = f", with {rest}" if rest else ""
    what = f"torch {release}+{tag}, a build for another CUDA that the default index does not hold{beside}:"
    lines = [what, f"uv pip install --torch-backend {tag} torch=={release}", *why_not]
    return "\n      ".join(lines)
