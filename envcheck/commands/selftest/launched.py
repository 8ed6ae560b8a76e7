"""Find the rank that torchrun or Slurm gave this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.host.machine import Host


class LaunchedRank(NamedTuple):
    """Rank of this process, and the address and port of rank 0."""

    rank: int
    world: int
    local_rank: int
    address: str
    port: int


_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
"""Variables with a rank, the number of ranks and the rank on its node, as torchrun and Slurm name them."""


def launched_rank(host: Host) -> LaunchedRank | None:
    """Return the rank that torchrun or Slurm gave this process, or None if it was started alone.

    Raises:
        InputError: a variable is not a number, or the address of rank 0 is not given.
    """
    environ = host.environ
    for rank, world, local in _VARIABLES:
        # A batch script has SLURM_PROCID and SLURM_NTASKS too but is not a rank: only srun starts ranks.
        if world == "SLURM_NTASKS" and environ.get("SLURM_JOB_ID"):
            continue
        if environ.get(rank) and environ.get(world, "1") not in ("", "1"):
            return _rank_from(environ, rank, world, local)
    return None


def _rank_from(environ: Mapping[str, str], rank: str, world: str, local: str) -> LaunchedRank:
    """Read a rank from the variables of these names."""
    own, total = number(environ, rank), number(environ, world)
    if own >= total:
        raise InputError(rank, f"expected less than {world}={total}, found {own}")
    address, port = _meeting_point(environ, rank)
    local_rank = number(environ, local) if environ.get(local) else 0
    return LaunchedRank(own, total, local_rank, address, port)


def _meeting_point(environ: Mapping[str, str], rank: str) -> tuple[str, int]:
    """Return the address and port of rank 0; a Slurm step on a single node needs no variable for them."""
    single_node = rank != "RANK" and environ.get("SLURM_STEP_NUM_NODES") == "1"
    address = environ.get("MASTER_ADDR") or ("127.0.0.1" if single_node else "")
    if not address or not (environ.get("MASTER_PORT") or single_node):
        missing = "MASTER_PORT" if address else "MASTER_ADDR"
        raise InputError(
            missing, f"{rank} is set, so this is one of several ranks; set the address of rank 0"
        )
    if environ.get("MASTER_PORT"):
        return address, number(environ, "MASTER_PORT")
    return address, _slurm_port(environ)


def _slurm_port(environ: Mapping[str, str]) -> int:
    """Return a port from 20000 to 39999, computed from the job's id so that all ranks choose the same."""
    return 20000 + int("".join(filter(str.isdecimal, environ.get("SLURM_JOB_ID", ""))) or 0) % 20000


def number(environ: Mapping[str, str], name: str) -> int:
    """Return the number in an environment variable.

    Raises:
        InputError: it is not a whole number of at most nine digits.
    """
    text = environ.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004 - more are no rank or port
        raise InputError(name, f"expected a number, found {text!r}")
    return int(text)
