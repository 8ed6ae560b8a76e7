"""The rank and the job of this process, from the environment variables that its launcher set. Pure.

Each launcher uses its own names: torchrun, Slurm's srun, and mpirun of Open MPI, MPICH and Intel MPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.fleet import hostlist


class Started(NamedTuple):
    """Rank of this process among `world` ranks, and its job.

    `local` is the rank within the node, or None if the launcher does not set it. `job` is the same text for
    all ranks of one start; as far as the launcher's variables allow, it differs between starts. It is empty
    if the launcher sets none of these variables. `node` is the launcher's name for this node, `nodes` are all
    nodes of the job. Rank 0 listens on `address` and `port`; they are empty and 0 if not known.
    """

    launcher: str
    rank: int
    world: int
    local: int | None = None
    job: str = ""
    node: str = ""
    nodes: tuple[str, ...] = ()
    address: str = ""
    port: int = 0


class _Names(NamedTuple):
    """Variables that a launcher sets; if several have one purpose, the first that is set counts."""

    launcher: str
    rank: str
    worlds: tuple[str, ...]
    locals: tuple[str, ...]
    jobs: tuple[tuple[str, ...], ...]  # the first whose first variable is set; all its variables are joined


_JOBS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("PBS_JOBID",),
    ("LSB_JOBID",),
    ("JOB_ID",),
)

_LAUNCHERS = (
    _Names(
        "torchrun",
        "RANK",
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        (("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"), *_JOBS),
    ),
    _Names(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        (("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",), *_JOBS),
    ),
    _Names(
        "srun",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
        _JOBS,
    ),
    # Hydra, the process manager of MPICH and Intel MPI. Its port is different at every start.
    _Names(
        "mpirun", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), (("PMI_PORT",), *_JOBS)
    ),
)


def started(environ: Mapping[str, str]) -> Started | None:
    """Return the rank and job of this process, or None if no launcher started it.

    Raises:
        InputError: a variable is not a number, or the rank is not less than the world size.
    """
    for names in _LAUNCHERS:
        world_name = next((name for name in names.worlds if environ.get(name)), "")
        if environ.get(names.rank) and world_name:
            return _started(names, world_name, environ)
    return None


def _started(names: _Names, world_name: str, environ: Mapping[str, str]) -> Started:
    rank, world = _number(environ, names.rank), _number(environ, world_name)
    if rank >= world:
        raise InputError(names.rank, f"expected less than {world_name}={world}, found {rank}")
    local = next((_number(environ, name) for name in names.locals if environ.get(name)), None)
    parts = next((each for each in names.jobs if environ.get(each[0])), ())
    slurm = names.launcher == "srun"
    nodes = _nodes(environ, "SLURM_STEP_NODELIST") if slurm else ()
    address = environ.get("MASTER_ADDR", "")
    port = _number(environ, "MASTER_PORT") if environ.get("MASTER_PORT") else 0
    if slurm and (job_nodes := nodes or _nodes(environ, "SLURM_JOB_NODELIST")):
        # Rank 0 runs on the first node. All ranks derive the same port from the job ID.
        address = address or ("127.0.0.1" if len(job_nodes) == 1 else job_nodes[0])
        port = port or 20000 + _digits(environ.get("SLURM_JOB_ID", "")) % 20000
    return Started(
        names.launcher,
        rank,
        world,
        local,
        _job([environ.get(part, "") for part in parts]),
        environ.get("SLURMD_NODENAME", "") if slurm else "",
        nodes,
        address,
        port,
    )


def _nodes(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the nodes that one of Slurm's variables names; empty if it is not set."""
    text = environ.get(name)
    if not text:
        return ()
    try:
        return tuple(hostlist.unfold(text))
    except ValueError as error:
        raise InputError(name, f"expected a host list: {error}") from None


def _job(parts: list[str]) -> str:
    """Join the parts to one word that is safe in a file name."""
    joined = "-".join(part for part in parts if part)
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in joined)[:100]


def _digits(text: str) -> int:
    return int("".join(letter for letter in text if letter in "0123456789")[:18] or 0)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004 - digits; longer is neither a rank nor a port
        raise InputError(name, f"expected a number, found {text!r}")
    return int(text)
