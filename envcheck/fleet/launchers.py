"""Which rank of which job a launcher made of this process, from the variables it set. Pure.

torchrun, Slurm's srun, and the mpiruns of Open MPI, MPICH and Intel MPI say it each in names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.fleet import hostlist


class Started(NamedTuple):
    """One of `world` ranks; `local` counts those of a node, None where the launcher does not say.

    `job` is the same for all ranks of one start and another for every other start, as far as the launcher
    says; empty if it says nothing. `node` is what it calls this node, `nodes` all of the job. `address` and
    `port` are where rank 0 is reached; empty and 0 if nobody says.
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
    launcher: str
    rank: str
    worlds: tuple[str, ...]  # the first that is set
    locals: tuple[str, ...]
    jobs: tuple[tuple[str, ...], ...]  # the first of which something is set, all its parts together


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
    # Hydra, of MPICH and Intel MPI; its port is another at every start.
    _Names(
        "mpirun", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), (("PMI_PORT",), *_JOBS)
    ),
)


def started(environ: Mapping[str, str]) -> Started | None:
    """What the launcher says of this process; None if none started it.

    Raises:
        InputError: a variable is no number, or the rank is not below the world's size.
    """
    for names in _LAUNCHERS:
        size = next((name for name in names.worlds if environ.get(name)), "")
        if environ.get(names.rank) and size:
            return _started(names, size, environ)
    return None


def _started(names: _Names, size: str, environ: Mapping[str, str]) -> Started:
    rank, world = _number(environ, names.rank), _number(environ, size)
    if rank >= world:
        raise InputError(names.rank, f"expected less than {size}={world}, found {rank}")
    local = next((_number(environ, name) for name in names.locals if environ.get(name)), None)
    parts = next((each for each in names.jobs if environ.get(each[0])), ())
    slurm = names.launcher == "srun"
    listed = _listed(environ, "SLURM_STEP_NODELIST") if slurm else ()
    address = environ.get("MASTER_ADDR", "")
    port = _number(environ, "MASTER_PORT") if environ.get("MASTER_PORT") else 0
    if slurm and (first := listed or _listed(environ, "SLURM_JOB_NODELIST")):
        # Rank 0 runs on the first node, and a number of the job makes a port that all agree on.
        address = address or ("127.0.0.1" if len(first) == 1 else first[0])
        port = port or 20000 + _digits(environ.get("SLURM_JOB_ID", "")) % 20000
    return Started(
        names.launcher,
        rank,
        world,
        local,
        _job([environ.get(part, "") for part in parts]),
        environ.get("SLURMD_NODENAME", "") if slurm else "",
        listed,
        address,
        port,
    )


def _listed(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The nodes that a variable of Slurm names; none if it is not set."""
    text = environ.get(name)
    if not text:
        return ()
    try:
        return tuple(hostlist.unfold(text))
    except ValueError as error:
        raise InputError(name, f"no list of nodes: {error}") from None


def _job(parts: list[str]) -> str:
    """The parts as one word that a file's name may hold."""
    joined = "-".join(part for part in parts if part)
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in joined)[:100]


def _digits(text: str) -> int:
    return int("".join(letter for letter in text if letter in "0123456789")[:18] or 0)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004 - more are no rank or port
        raise InputError(name, f"expected a number, found {text!r}")
    return int(text)
