"""The search of `pin` over the real tables: every package of the user's joins it with its own metadata."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from packaging.version import Version

from envcheck.commands import declared_machine, loading
from envcheck.commands.pin import search
from envcheck.commands.pin.releases import needing_source
from envcheck.commands.pin.search import named_in, search_problem
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.commands.pin.unpinned import needs_one, reason_lines
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Fact, Inventory, Known, Tri
from envcheck.core.rules import UserRequirement
from envcheck.core.versions import satisfies
from envcheck.resolution import conflicts, resolver
from envcheck.resolution.resolver import Answer, SearchProblem
from envcheck.resolver_backends.index import availability


def asked(
    target: str,
    *packages: tuple[str, str],
    python: str = "3.12",
    driver: str = "580.95.05",
    glibc: str = GLIBC,
) -> SearchProblem:
    """Return the problem of `pin --target T --with P` on a machine with an H100."""
    known = loading.knowledge()
    values = {
        "python.version": f"{python}.0",
        "host.os": "linux",
        "host.arch": "x86_64",
        "driver.version": driver,
    }
    facts = {key: Fact(key, Known(value), "declared") for key, value in values.items()}
    gpu = declared_machine.declared_gpu("H100", known)[1]
    machine = Inventory(facts, ({"gpu.name": Fact("gpu.name", Known(gpu), "declared")},))
    return search_problem(
        LockTarget(
            machine=machine,
            python=python,
            platform="linux-x86_64",
            glibc=glibc,
            target=known.targets[target],
            matrix=known,
            requirements=tuple(UserRequirement(name, bound, "--with") for name, bound in packages),
        )
    )


def meets_metadata(problem: SearchProblem, answer: Answer) -> bool:
    """Return whether the chosen releases meet each other's published requirements."""
    chosen = {**(answer.versions or {}), **answer.brought}
    releases = {(each.package, each.version): each for each in problem.releases}
    for pair in chosen.items():
        for line in releases[pair].requires:
            bare, _, marker = line.partition(";")
            name = next(
                (name for name in chosen if bare.split("[")[0].rstrip("<>=!~., 0123456789*") == name), ""
            )
            bound = bare.removeprefix(name)
            if name and not marker and satisfies(chosen[name], bound, unknown=Tri.YES) is Tri.NO:
                return False
    return True


def test_vllm_and_the_stack_meet_at_an_older_torch() -> None:
    problem = asked("qlora", ("vllm", "<0.26,>=0.17"), ("trl", ""))
    answer = resolver.solve(problem)
    assert answer.versions is not None
    assert answer.versions["vllm"] == "0.25.1"
    assert answer.versions["torch"] == "2.11.0"
    assert answer.brought["torchvision"] == "0.26.0"
    assert meets_metadata(problem, answer)


@pytest.mark.parametrize("name", ["unsloth", "vllm", "llamafactory", "axolotl", "ms-swift", "diffusers"])
def test_a_required_package_is_new_and_what_it_brings_along_fits(name: str) -> None:
    problem = asked("qlora", (name, ""))
    answer = resolver.solve(problem)
    assert answer.versions is not None
    releases = sorted(
        (each for each in problem.releases if each.package == name and not each.yanked),
        key=lambda each: each.date,
    )
    assert answer.versions[name] in {each.version for each in releases[-3:]}
    assert meets_metadata(problem, answer)


def test_unsloth_takes_a_transformers_that_it_can_import() -> None:
    versions = resolver.solve(asked("qlora", ("unsloth", ""))).versions
    assert versions is not None
    assert satisfies(versions["transformers"], "<=5.17.0", unknown=Tri.NO) is Tri.YES


def test_a_clash_between_required_packages_is_told_in_few_lines() -> None:
    problem = asked("qlora", ("vllm", "==0.33.0"), ("torch", "<2.10"))
    answer = resolver.solve(problem)
    assert answer.versions is None
    found = conflicts.prove(problem, answer.reasons)
    assert len(found.conflict) + len(found.ways_out) <= 8
    assert any("vllm" in line and "0.33.0" in line for line in found.conflict)
    assert any("without the bound torch<2.10" in way for way in found.ways_out)


def test_a_resolvers_chain_of_reasons_becomes_a_few_lines() -> None:
    chain = (
        "Because vllm>=0.20 depends on torch==2.11.0 and vllm<0.20 depends on torch==2.10.0, we can conclude "
        "that vllm depends on torch>=2.10. And because you require torch==2.15.0 and vllm, we can conclude "
        "that your requirements are unsatisfiable."
    )
    lines = reason_lines(chain)
    assert lines[0].startswith("vllm>=0.20 depends on torch==2.11.0")
    assert "you require torch==2.15.0 and vllm" in lines
    assert not any("conclude" in line for line in lines)


def test_a_release_that_was_not_read_is_left_to_the_backend() -> None:
    problem = asked("qlora", ("numpy", "==1.21.4"), ("trl", ""))
    assert "numpy" not in {release.package for release in problem.releases}
    assert resolver.solve(problem).versions is not None


def test_of_several_packages_the_one_that_needs_a_source_is_named() -> None:
    reason = (
        "Because all versions of oss2 have no usable wheels and ms-swift>=4.6.0 depends on oss2, we can "
        "conclude that ms-swift>=4.6.0 cannot be used. And because you require sglang==0.3.1"
    )
    found = [name for name in ("ms-swift", "sglang", "swift") if needs_one(reason, name, ("crcmod", "oss2"))]
    assert found == ["ms-swift"]


def test_every_release_that_needs_a_package_without_wheels_is_left_out_at_once() -> None:
    problem = asked("sft-trl", ("ms-swift", ""), python="3.13")
    left = needing_source(problem.releases, ["oss2"], problem.machine)
    needs = {release.version: release.no_wheel for release in left if release.package == "ms-swift"}
    assert needs["4.6.0"] == needs["2.2.2"] == "needs oss2, published as source only"
    assert not needs["2.2.1"]
    assert not needs["1.0.0"]


def test_two_packages_that_leave_no_transformers_between_them_are_a_proof() -> None:
    """No ms-swift with wheels alone can be imported beside a transformers that this vLLM and TRL accept."""
    problem = asked("grpo-trl-vllm", ("ms-swift", "==1.0.0"), ("trl", ">=1.6"), python="3.10")
    answer = resolver.solve(problem)
    assert answer.versions is None
    assert ("rule", "atlas:ms-swift:transformers:trainers") in answer.reasons


def test_a_failed_choice_is_refused_for_the_packages_that_the_reason_names() -> None:
    chain = (
        "Because vllm==0.2.4 depends on pydantic==1.10.13 and ray[default]>=2.60.0 depends on "
        "pydantic>=2.5.0,<3, we can conclude that ray[default]>=2.60.0 and vllm==0.2.4 are incompatible."
    )
    choice = {"verl": "0.4.1", "vllm": "0.2.4", "ray": "2.60.0", "torch": "2.14.1"}
    assert named_in(chain, choice) == {"vllm": "0.2.4", "ray": "2.60.0"}
    assert named_in("no reason is given", choice) == choice


def test_a_package_on_which_two_chosen_ones_disagree_joins_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = ("sglang", "==0.5.15.post1"), ("vllm", "==0.24.0")
    problem = asked("grpo-trl-vllm", *exact, python="3.10", glibc="2.39")
    assert resolver.solve(problem).versions is not None, "tokenspeed-mla is not in the tables"
    offer = availability.Offer(frozenset({Version("0.1.2"), Version("0.1.7")}), frozenset())
    monkeypatch.setattr(availability, "offers", lambda *_: {"tokenspeed-mla": offer})
    completer = SimpleNamespace(host=None, notes=[])
    running = search._Search(None, problem, completer, [])  # type: ignore[arg-type]
    chain = (
        "Because vllm==0.24.0 depends on tokenspeed-mla==0.1.2 and sglang==0.5.15.post1 depends on "
        "tokenspeed-mla==0.1.7, we can conclude that they are incompatible."
    )
    request = SimpleNamespace(build=(), also=())
    assert running._join_disputed(NoSolutionError("no versions", chain), request)  # type: ignore[arg-type]
    answer = resolver.solve(running._problem)
    assert answer.versions is None
    disputed = {("metadata", name, "tokenspeed-mla") for name in ("vllm", "sglang")}
    assert disputed <= answer.reasons
