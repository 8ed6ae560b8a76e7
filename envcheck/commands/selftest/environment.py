"""The environment that the self-tests run in, and the tests that envcheck declares."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from envcheck import probes
from envcheck.commands import examine, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.core.errors import ExamineError
from envcheck.core.facts import Inventory, Vocabulary
from envcheck.core.rules import Matrix, Target
from envcheck.host.files import folder_texts
from envcheck.host.machine import Host
from envcheck.host.package_files import package_folder
from envcheck.probes.layout import find_interpreter
from envcheck.selftest.declaration import SelftestDeclaration, read_declaration

TESTS_FOLDER = "target_scripts/selftests"


@dataclass(frozen=True, kw_only=True, slots=True)
class SelftestOptions:
    """Which self-tests to run, and how.

    Attributes:
        level: run the tests up to this level, unless `only` names some.
        device: `cpu` or `cuda`; None takes `cuda` if it is available.
        ranks: the number of processes; None takes the least that a test needs.
        only: names of tests or variants.
        patience: a factor on each test's own deadline.
    """

    level: int = 1
    device: str | None = None
    ranks: int | None = None
    only: tuple[str, ...] = ()
    patience: float = 1.0


class TestEnvironment(NamedTuple):
    """An environment that the tests can run in: its interpreter, its facts, and the knowledge."""

    subject: str
    interpreter: str
    inventory: Inventory
    matrix: Matrix
    keys: Vocabulary
    target: Target | None


def prepare(request: ExamineRequest, host: Host) -> TestEnvironment:
    """Find the environment and read its facts.

    Raises:
        InputError: no such environment or target.
        ExamineError: it cannot be examined, or holds no torch.
    """
    all_probes = probes.every_probe()
    keys = loading.vocabulary(all_probes)
    matrix = loading.load_matrix(keys, request.overlays)
    target = loading.find_target(request.target, matrix)
    # The target's training facts select variants; they must not become facts of the environment.
    untrained = request._replace(target=None, train=())
    path, _ = examine.environment_to_run(request.python, host)
    subject, read, _ = examine.take_inventory(untrained, host, all_probes, matrix, keys)
    interpreter = find_interpreter(host, os.path.abspath(path))  # noqa: PTH100 - links tell a venv from its base
    if read.known("pkg.torch") is None:
        raise ExamineError(f"{subject}: no torch in this environment: nothing to test there")
    return TestEnvironment(subject, interpreter, read, matrix, keys, target)


def claims() -> tuple[SelftestDeclaration, ...]:
    """Return every declared self-test, sorted by level and then by the number of imports.

    Modules that a test imports stay loaded, so tests that import less run first, without those modules.
    """
    texts = folder_texts(package_folder(TESTS_FOLDER), ".py")
    # The modules with a leading underscore run the tests, so a test's digest covers them too.
    runner = "\0".join(text for name, text in texts.items() if name.startswith("_"))
    read = [
        read_declaration(name.removesuffix(".py"), text, runner)
        for name, text in texts.items()
        if not name.startswith("_")
    ]
    return tuple(sorted(read, key=lambda claim: (claim.level, len(claim.imports), claim.name)))
