"""Derive facts: add to an inventory what follows from its facts and the tables of the matrix.

This is a pure function, so it serves a probed machine, a facts file and a resolver's candidate alike. A
derived fact never replaces one that was read. It is Unknown, with the reason, if an input is Unknown, and
Absent if an input is Absent.
"""

from __future__ import annotations

from envcheck.core.facts import Inventory
from envcheck.core.rules import Matrix
from envcheck.rules.derive.drivers import with_drivers
from envcheck.rules.derive.gpus import (
    processor_of_gpus,
    visible_gpus,
    with_device_code,
    with_device_models,
)
from envcheck.rules.derive.inputs import with_derived
from envcheck.rules.derive.keys import ARCHITECTURES_SUFFIX, COMPONENTS, FOLLOWS_FROM, IMPORTS, KEYS
from envcheck.rules.derive.packages import (
    flash_attn_wheel,
    from_wheels,
    has_library,
    library_named,
    torch_from_wheel,
    torch_preview_of,
    torchcodec_from_wheel,
    unsloth_release,
    with_amd,
    with_ascend,
    with_compiled_packages,
    with_published_wheels,
    withdrawn,
)
from envcheck.rules.derive.torch_builds import compiling_pythons, with_torch_build
from envcheck.rules.derive.training import derive_training

__all__ = [
    "ARCHITECTURES_SUFFIX",
    "COMPONENTS",
    "FOLLOWS_FROM",
    "IMPORTS",
    "KEYS",
    "derive",
    "derive_machine",
    "derive_training",
]


def derive(read: Inventory, matrix: Matrix) -> Inventory:
    """Return the inventory with every fact that follows from it and the matrix."""
    return derive_training(derive_machine(read, matrix), matrix)


def derive_machine(read: Inventory, matrix: Matrix) -> Inventory:
    """Return the inventory with what follows from it and the matrix, except facts of the training.

    None of these facts depends on one of the training.
    """
    tables = matrix.tables
    read = with_device_models(_unset_variables(read), tables)
    read = with_derived(read, [processor_of_gpus(read, tables)])
    made = [
        visible_gpus(read),
        from_wheels(read),
        torch_from_wheel(read),
        torchcodec_from_wheel(read),
        *flash_attn_wheel(read),
        torch_preview_of(read),
        library_named(read),
        unsloth_release(read),
        withdrawn(read, tables),
        *compiling_pythons(read, tables),
    ]
    inventory = with_derived(read, made)
    inventory = with_torch_build(inventory, tables)
    inventory = with_derived(inventory, [has_library(inventory, tables)])
    inventory = with_compiled_packages(inventory, tables)
    inventory = with_amd(with_ascend(inventory, tables), tables)
    inventory = with_drivers(inventory, tables)
    inventory = with_published_wheels(inventory, matrix)
    return with_device_code(inventory, tables)


def _unset_variables(read: Inventory) -> Inventory:
    """Take every variable that nothing names as unset; if the variables could not be read, change nothing.

    Facts files and dependency files rarely name variables. Waiting for them would keep back every rule from
    which a variable exempts.
    """
    if "env" in read.complete or "env" in read.unread:
        return read
    return read._replace(complete=read.complete | {"env"})
