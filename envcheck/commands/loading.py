"""Load the knowledge shipped with envcheck, the user's overlays, and the vocabulary that rules may use.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcheck import probes
from envcheck.commands.user_settings import read_settings
from envcheck.core import training_facts
from envcheck.core.errors import InputError
from envcheck.core.facts import Key, Kind, Vocabulary
from envcheck.core.rules import Atlas, Builds, Matrix, Target
from envcheck.core.suggestions import suggestion
from envcheck.host.files import read_file
from envcheck.host.package_files import shipped_text, source_texts
from envcheck.knowledge.compiled import thaw_matrix, thaw_vocabulary
from envcheck.rules import derive

if TYPE_CHECKING:
    from envcheck.knowledge.needed_text import NeededOfPatterns


def vocabulary(all_probes: Sequence[probes.Probe]) -> Vocabulary:
    """Return every key that a probe may yield, a reader may give, or deriving adds."""
    keys = {
        **training_facts.KEYS,
        "selftest.*": Key(Kind.WORD, "how a self-test ended", ("pass", "fail")),
        "host.name": Key(Kind.WORD, "name of the node; no probe reads it, `facts --name` and `fleet` add it"),
    }
    for probe in all_probes:
        keys.update(probe.yields)
    keys.update({key: meaning for key, meaning in derive.KEYS.items() if key not in keys})
    return Vocabulary(keys)


def known_vocabulary() -> Vocabulary:
    """Return the vocabulary of every probe, without importing the probes where the wheel has its keys."""
    shipped = shipped_text("vocabulary.json")
    return vocabulary(probes.every_probe()) if shipped is None else thaw_vocabulary(json.loads(shipped))


def knowledge(overlay_files: Sequence[str] = ()) -> Matrix:
    """Load the matrix with the vocabulary of every probe and these overlays."""
    return load_matrix(known_vocabulary(), overlay_files)


def load_matrix(keys: Vocabulary, overlay_files: Sequence[str] = (), *, errors_only: bool = False) -> Matrix:
    """Load the knowledge shipped with envcheck (JSON in a wheel, TOML in a checkout) and the user's overlays.

    `errors_only` may leave out rules below error level, which makes loading faster for `fit`. A program that
    asks again gets the same matrix, unless an overlay or the settings have changed.

    Raises:
        MatrixError: compat/ has mistakes; names all of them.
        InputError: an overlay is missing or wrong.
    """
    return _build_matrix(keys, tuple(overlay_texts(overlay_files)), errors_only)


@lru_cache(maxsize=2)
def _build_matrix(keys: Vocabulary, overlays: Sequence[tuple[str, str, str]], errors_only: bool) -> Matrix:
    compiled = shipped_text("judging.json")
    if compiled is not None and not overlays:
        return thaw_matrix(json.loads(compiled), errors_only=errors_only)._replace(
            atlas=load_atlas, builds=published_build
        )
    from envcheck.knowledge.overlay import build_with_overlays

    return build_with_overlays(source_tree(), overlays, keys)._replace(
        atlas=load_atlas, builds=published_build
    )


def published_build(package: str, version: str) -> Builds | None:
    """Return what the wheels of a release were built for; None if the atlas lacks the release."""
    from envcheck.commands import atlas_tables

    return atlas_tables.published_build(package, version)


@cache
def load_atlas() -> Atlas:
    """Load the atlas: JSON in a wheel, the files of compat/atlas/ in a checkout.

    Raises:
        MatrixError: a file of the checkout has a mistake.
    """
    index = shipped_text("atlas/index.json")
    if index is not None:
        from envcheck.knowledge.atlas import thaw_atlas

        return thaw_atlas(json.loads(index), _shipped_gaps)
    from envcheck.commands.atlas_tables import release_table
    from envcheck.knowledge.atlas import read_atlas

    table = release_table()
    releases = {package: table.versions(package, candidates=True) for package in table.packages()}
    return read_atlas(source_texts("compat/atlas", ".toml"), releases)


def _shipped_gaps(package: str) -> dict[str, Any]:
    gaps: dict[str, Any] = json.loads(shipped_text(f"atlas/{package}.json") or "{}")
    return gaps


def source_tree() -> dict[str, Any]:
    """Load all of compat/ as one tree, with release rows and cases, which judging does not need.

    Each call returns a new tree, which the caller may change.
    """
    shipped = shipped_text("source.json")
    if shipped is None:
        tree: dict[str, Any] = json.loads(_tree_of_checkout())
    else:
        tree = json.loads(shipped)
        tree["tables"]["release"] = json.loads(shipped_text("release.json") or "[]")
    return tree


@cache
def read_only_tree() -> Mapping[str, Any]:
    """Load all of compat/ as one tree, once for all callers, none of which may change it."""
    return source_tree()


@cache
def needed_texts() -> NeededOfPatterns:
    """Load what the patterns of explain need to match; a checkout has none of it at hand."""
    needed: NeededOfPatterns = json.loads(shipped_text("needed_texts.json") or "{}")
    return needed


@cache
def published_releases() -> Sequence[Mapping[str, Any]]:
    """Load the rows of the table `release`, which the wheel has in a file of their own."""
    shipped = shipped_text("release.json")
    rows: list[dict[str, Any]] = (
        read_only_tree()["tables"].get("release", []) if shipped is None else json.loads(shipped)
    )
    return tuple(rows)


@cache
def _tree_of_checkout() -> str:
    """Gather the files of a checkout as one tree in JSON, which takes a second."""
    from envcheck.knowledge.load import gather_tree

    return json.dumps(gather_tree(source_texts("compat", ".toml", excluded=("lang", "atlas"))))


def overlay_texts(overlay_files: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the overlays as (file, what named it, text): those of the settings, then of `--matrix`.

    Raises:
        InputError: the settings or one of the files cannot be read, or the settings list trusted keys and
            none of them signed the file.
    """
    settings = read_settings()
    named = [(file, settings.file) for file in settings.matrix] if settings is not None else []
    named += [(file, "--matrix") for file in overlay_files]
    contents = [(file, named_by, read_file(Path(file))) for file, named_by in named]
    if settings is not None and settings.trusted_keys:
        from envcheck.commands.overlay_signatures import check_signature

        for file, _, content in contents:
            check_signature(file, content, settings.trusted_keys, settings.file)
    return [(file, named_by, content.decode("utf-8", "replace")) for file, named_by, content in contents]


def find_target(name: str | None, matrix: Matrix) -> Target | None:
    """Return the target of this name; None if no name is given.

    Raises:
        InputError: there is no such target; names similar ones.
    """
    if name is None:
        return None
    if name not in matrix.targets:
        raise InputError(f"target {name}", f"no such target{suggestion(name, list(matrix.targets))}")
    return matrix.targets[name]
