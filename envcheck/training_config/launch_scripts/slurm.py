"""The variables that Slurm sets when a job runs, derived from the `#SBATCH` lines of its script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.patterns import pattern

_DIRECTIVE = pattern(r"^#SBATCH[ \t]+(\S.*)$", re.MULTILINE)
_OPTION = pattern(r"(--?[\w-]+)(?:[= \t]\s*|(?<=^-[A-Za-z]))([^\s#]+)")
_NAMES = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus"}
_COUNT = pattern(r"[0-9]{1,6}")
_MOST_DEVICES = 64  # of one node
_GPUS = pattern(r"gpu:(?:[\w.-]+:)?([0-9]{1,4})")


def variables(text: str) -> dict[str, tuple[str, int]]:
    """Return the variables that follow from `#SBATCH` lines: value and offset in the text, by name."""
    asked = {name: (value, at) for name, value, at in _options(text)}
    found: dict[str, tuple[str, int]] = {}

    def put(option: str, *names: str) -> None:
        value, at = asked.get(option, ("", 0))
        value = value.rpartition(":")[2]  # `a100:4` names a kind of GPU
        if _COUNT.fullmatch(value):
            found.update(dict.fromkeys(names, (value, at)))

    put("--nodes", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    put("--ntasks-per-node", "SLURM_NTASKS_PER_NODE")
    put("--gpus", "SLURM_GPUS")
    one_node = found.get("SLURM_NNODES", ("1", 0))[0] == "1"
    if one_node and (found.get("SLURM_GPUS", ("", 0))[0] == "1" or "SLURM_NNODES" in found):
        put("--gpus", "SLURM_GPUS_ON_NODE")
    put("--gpus-per-node", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE")
    if "--gres" in asked and (gpus := _GPUS.search(asked["--gres"][0])):
        found.setdefault("SLURM_GPUS_ON_NODE", (gpus.group(1), asked["--gres"][1]))
    if "SLURM_GPUS_ON_NODE" in found:
        count, at = found["SLURM_GPUS_ON_NODE"]
        found["CUDA_VISIBLE_DEVICES"] = (",".join(map(str, range(min(int(count), _MOST_DEVICES)))), at)
    nodes, each = found.get("SLURM_NNODES"), found.get("SLURM_NTASKS_PER_NODE")
    if nodes and each:
        found.update(dict.fromkeys(_TASKS, (str(int(nodes[0]) * int(each[0])), each[1])))
    put("--ntasks", *_TASKS)
    if asked:
        found["SLURM_SUBMIT_DIR"] = (_HERE, next(iter(asked.values()))[1])
    return found


_HERE = "."
"""The folder from which a job is submitted is the one in which the script is read."""

_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")


def _options(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the options of all directives: name, value, offset."""
    for directive in _DIRECTIVE.finditer(text):
        for option in _OPTION.finditer(directive.group(1)):
            name = _NAMES.get(option.group(1), option.group(1))
            yield name, option.group(2).strip("\"'"), directive.start(1) + option.start(2)
