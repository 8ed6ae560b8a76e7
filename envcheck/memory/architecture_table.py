"""Typed rows of compat/tables/architectures.toml, and the sizes that they find in a config.json.

The comments of that table explain each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envcheck.core.errors import InputError
from envcheck.memory.tensors import NormKind

TableRow = Mapping[str, Any]
"""A row as it stands in the file."""

LARGEST = 10**9
"""Largest number accepted in a config.json: a thousand times the largest vocabulary that exists."""


@dataclass(frozen=True, kw_only=True)
class SizeKeys:
    """Keys of config.json for each size, and the value to use if config.json has none of them."""

    keys: Mapping[str, str | list[str]]
    preset: Mapping[str, int]
    fixed: Mapping[str, int]
    bias: Mapping[str, bool | str]
    flags: Mapping[str, bool]

    @classmethod
    def of(cls, row: TableRow) -> SizeKeys:
        """Return the keys of a row."""
        return cls(
            keys=row.get("keys", {}),
            preset=row.get("preset", {}),
            fixed=row.get("fixed", {}),
            bias=row.get("bias", {}),
            flags=row.get("flags", {}),
        )


@dataclass(frozen=True, kw_only=True)
class ExpertsRow:
    """Keys of config.json for a mixture of experts; empty for what the architecture does not have."""

    count: str
    width: str
    active: str
    shared: str = ""
    shared_width: str = ""
    dense_first: str = ""
    dense_layers: str = ""
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class DecoderRow:
    """A decoder-only language model."""

    model_types: tuple[str, ...]
    conditions: Mapping[str, bool]  # `where` in the file
    size_keys: SizeKeys
    attention: str
    mlp: str
    modules: tuple[str, ...]
    norms: int
    norm: NormKind
    tied: bool
    wide: int | None
    qk_norm: str
    embedding_norm: bool
    positions: int | None
    activation: str
    float_norm: bool
    capped: str
    experts: ExpertsRow | None
    lora: tuple[str, ...]

    @classmethod
    def of(cls, row: TableRow) -> DecoderRow:
        """Return the typed form of a `[[decoder]]` row."""
        return cls(
            model_types=tuple(row["model_types"]),
            conditions=row.get("where", {}),
            size_keys=SizeKeys.of(row),
            attention=row["attention"],
            mlp=row["mlp"],
            modules=tuple(row["modules"]),
            norms=row["norms"],
            norm=NormKind(weight=row.get("norm_weight", True), bias=row.get("norm_bias", False)),
            tied=row["tied"],
            wide=row.get("wide"),
            qk_norm=row.get("qk_norm", ""),
            embedding_norm=row.get("embedding_norm", False),
            positions=row.get("positions"),
            activation=row.get("activation", "silu"),
            float_norm=row.get("float_norm", False),
            capped=row.get("capped", ""),
            experts=ExpertsRow(**row["experts"]) if "experts" in row else None,
            lora=tuple(row.get("lora", ())),
        )

    def describes(self, kind: str, config: Mapping[str, Any]) -> bool:
        """Return whether this row describes a configuration whose model_type is `kind`."""
        flags = self.size_keys.flags
        return kind in self.model_types and all(
            flag(config, key, flags.get(key, False)) == expected for key, expected in self.conditions.items()
        )


@dataclass(frozen=True, kw_only=True)
class TowerRow:
    """A vision encoder beside a decoder."""

    model_types: tuple[str, ...]
    text_type: str
    text_preset: Mapping[str, int]
    size_keys: SizeKeys
    mlp: str
    norm: NormKind
    patch_bias: bool
    positions: str  # `class` adds a position and a weight for the class token; empty for none
    outer_norms: int  # norms before the first and after the last layer
    pooler: str
    projector: str

    @classmethod
    def of(cls, row: TableRow) -> TowerRow:
        """Return the typed form of a `[[tower]]` row."""
        return cls(
            model_types=tuple(row["model_types"]),
            text_type=row["text_type"],
            text_preset=row.get("text_preset", {}),
            size_keys=SizeKeys.of(row),
            mlp=row["mlp"],
            norm=NormKind(bias=row["norms"] == "layer"),
            patch_bias=row.get("patch_bias", False),
            positions=row.get("positions", ""),
            outer_norms=sum(bool(row.get(name)) for name in ("pre_norm", "post_norm")),
            pooler=row.get("pooler", ""),
            projector=row["projector"],
        )


def flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """Return a Boolean of a configuration; the default if it is missing or not a Boolean."""
    value = config.get(key, default)
    return value if isinstance(value, bool) else default


# --- sizes ------------------------------------------------------------------------------------------


class Sizes:
    """Sizes of a configuration by their usual names, found under the keys that a row gives."""

    def __init__(self, config: Mapping[str, Any], keys: SizeKeys, where: str) -> None:
        """Take the configuration; `where` names it in errors."""
        self.config, self.keys, self.where = config, keys, where

    def optional(self, name: str) -> int | None:
        """Return a size; None if the configuration has no value or null, and the row has no preset."""
        if name in self.keys.fixed:
            return int(self.keys.fixed[name])
        keys = self.keys.keys.get(name, name)
        for key in (keys,) if isinstance(keys, str) else keys:
            if self.config.get(key) is not None:
                return self.whole(key)
        preset = self.keys.preset.get(name)
        return None if preset is None else int(preset)

    def need(self, name: str) -> int:
        """Return a size that must be there.

        Raises:
            InputError: the size is missing or not valid.
        """
        found = self.optional(name)
        if found is None:
            keys = self.keys.keys.get(name, name)
            raise InputError(self.where, f"no {keys if isinstance(keys, str) else keys[0]}")
        return found

    def whole(self, key: str, least: int = 1) -> int:
        """Return the whole number under a key of the configuration, which must be present.

        Raises:
            InputError: the value is not a whole number from `least` to LARGEST.
        """
        value = self.config[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise InputError(
                f"{self.where}: {key}",
                f"expected a whole number from {least} to {LARGEST}, found {quoted(value)}",
            )
        return value

    def bias(self, modules: str) -> bool:
        """Return whether modules have a bias; `modules` is qkv, o, mlp or head."""
        value = self.keys.bias.get(modules, False)
        if isinstance(value, bool):
            return value
        return flag(self.config, value, self.keys.flags.get(value, False))


LONGEST_QUOTE = 40
"""Number of characters of a wrong value that an error message repeats."""


def quoted(value: Any) -> str:
    """Return a value as an error message shows it, shortened."""
    text = repr(value) if not isinstance(value, int) or abs(value) <= LARGEST**2 else "a larger one"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
