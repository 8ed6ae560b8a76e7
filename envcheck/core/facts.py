"""Facts: their keys and readings, the vocabulary of keys that exist, and the inventory that holds them all.

A *fact* is a key (`driver.version`), a reading and its source. A *reading* is `Known`, `Absent` or
`Unknown`. The *vocabulary* is the closed set of keys that probes, files and derivation may produce and
that rules may name. An *inventory* holds the facts of one machine, environment and configuration.

Everything here is a frozen value, and a named tuple: these classes are on the start-up path, and importing
`dataclasses`, which imports `inspect` and `ast`, takes as long as starting Python does. `core.records` makes
them cheaper to define.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from envcheck.core.records import NamedTuple


class Tri(enum.IntEnum):
    """A three-valued answer, ordered no < maybe < yes: "and" is `min`, "or" is `max`.

    A maybe never hides a no in an "and", or a yes in an "or".
    """

    NO = 0
    MAYBE = 1
    YES = 2

    @staticmethod
    def of(answer: bool) -> Tri:
        """Return YES or NO for a decided answer."""
        return Tri.YES if answer else Tri.NO

    def negated(self) -> Tri:
        """Return the opposite answer; MAYBE stays MAYBE."""
        return Tri(2 - self)


EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})
"""An immutable empty mapping, for defaults of named tuples."""

Value: TypeAlias = str | int | bool | tuple[str, ...]


class Known(NamedTuple):
    """A reading with a value."""

    value: Value


class Absent(NamedTuple):
    """A reading that shows that the thing is not there."""

    def __bool__(self) -> bool:
        """Return True: every reading is an answer, and a tuple without fields would be false."""
        return True


class Unknown(NamedTuple):
    """A reading without an answer: `why` gives the reason.

    `asked` is True if reading the fact was tried and failed, and False if nothing provided it. A rule that
    needs the fact is undecided if `asked` is True, and waiting if it is False.
    """

    why: str
    asked: bool = True


Reading: TypeAlias = Known | Absent | Unknown

_ABSENT = Absent()

NOT_GIVEN = Unknown("not given", asked=False)
"""The reading of a fact that no probe, file or option provided."""


class Kind(enum.Enum):
    """Type of a fact's value, which decides the comparisons that a rule may make with it."""

    VERSION = "version"  # a string that `core.versions` compares
    NUMBER = "number"  # a whole number
    WORD = "word"
    FLAG = "flag"
    WORDS = "words"  # a list of words; a rule tests whether it contains one


class Key(NamedTuple):
    """Declaration of a fact: its kind, its meaning and unit (`help`), its closed set of words if any.

    `phrases` spell values for sentences such as "if ZeRO-3 and …" (`{"3": "ZeRO-3"}`). The phrase under
    `"*"` serves every other value, which replaces its `{}`; that under `"!=none"` every value but
    `none`, and that under `"present"` any value.
    """

    kind: Kind
    help: str
    words: tuple[str, ...] = ()
    phrases: Mapping[str, str] = EMPTY_MAPPING


class Fact(NamedTuple):
    """One fact: its key, what reading it gave, and where it was read (a file, an API, a command, a table)."""

    key: str
    reading: Reading
    source: str = ""

    @property
    def value(self) -> Value | None:
        """Return the value if it is known, else None."""
        return self.reading.value if isinstance(self.reading, Known) else None


# --- keys ---------------------------------------------------------------------------------------------


def family(key: str) -> str:
    """Return the part of a key before the first dot: `pkg` for `pkg.torch`."""
    return key.partition(".")[0]


def is_device_key(key: str) -> bool:
    """Return whether each GPU has this fact (`gpu.memory_mib`), and not the machine (`gpus.count`)."""
    return key.startswith("gpu.")


PYTHON = "python"
"""The name under which the interpreter stands among packages; a minor version is its release."""


def package_key(name: str, detail: str = "") -> str:
    """Return the key of a package's version fact (`pkg.torch`), or of a detail (`pkg.torch.requires`)."""
    return f"pkg.{name}.{detail}" if detail else f"pkg.{name}"


def release_key(name: str) -> str:
    """Return the key of the version of a package, or of the interpreter for the name `python`."""
    return "python.version" if name == PYTHON else package_key(name)


def package_name(key: str) -> str:
    """Return the package of a version key (`torch` for `pkg.torch`), and any other key unchanged."""
    return key.removeprefix("pkg.")


def package_of_key(key: str) -> str:
    """Return the package that a version key or a detail key is about; the key must be a package key."""
    return key.split(".")[1]


def is_package_key(key: str) -> bool:
    """Return whether a key is about an installed package: its version, or a detail."""
    return key.startswith("pkg.")


def is_package_version_key(key: str) -> bool:
    """Return whether a key is a package's version (`pkg.torch`)."""
    return key.startswith("pkg.") and key.count(".") == 1


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 spells it: `flash-attn` for `Flash_Attn`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


class Vocabulary:
    """Closed set of keys: `pkg.*` admits any distribution, `pkg.*.editable` that detail of any."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        """Take the declared keys, including patterns with `*` as their second part."""
        self.keys = MappingProxyType(dict(keys))

    def __eq__(self, other: object) -> bool:
        """Return whether the other vocabulary declares the same keys with the same meanings."""
        return isinstance(other, Vocabulary) and self.keys == other.keys

    def __hash__(self) -> int:
        """Return a number that is equal for equal vocabularies."""
        return hash(frozenset(self.keys))

    def get(self, key: str) -> Key | None:
        """Return the declaration of a key, or None if there is none."""
        found = self.keys.get(key)
        if found is not None:
            return found
        head, dot, rest = key.partition(".")
        name, dot2, detail = rest.partition(".")
        return self.keys.get(f"{head}.*{dot2}{detail}") if dot and name else None

    def nearest(self, key: str) -> str | None:
        """Return the declared key that is most similar to a misspelt one, or None."""
        from difflib import get_close_matches

        head, _, rest = key.partition(".")
        name, _, _ = rest.partition(".")
        candidates = [known.replace("*", name, 1) if name else known for known in self.keys]
        # Whole keys are compared, so that a misspelt family ("driverr.version") is found too.
        close = get_close_matches(key, candidates, n=1, cutoff=0.6)
        return close[0] if close and head else None


# --- the inventory ------------------------------------------------------------------------------------

Facts: TypeAlias = Mapping[str, Fact]
"""Facts by key."""


_OF_FILES = ".resolved"
"""End of the keys of facts that only installed files can give: where none were read, they are absent."""


class Inventory(NamedTuple):
    """All facts of one machine, one Python environment and one training configuration.

    `devices` holds the `gpu.*` facts of each GPU, in the driver's order. `complete` names the families
    that were read to the end, so that a key missing from them is Absent. `unread` maps a family or a
    single key that could not be read to the reason. Any other missing key is `NOT_GIVEN`.
    """

    facts: Facts = EMPTY_MAPPING
    devices: tuple[Facts, ...] = ()
    complete: frozenset[str] = frozenset()
    unread: Mapping[str, str] = EMPTY_MAPPING

    def fact(self, key: str, device: int | None = None) -> Fact:
        """Return the fact under a key, of the given device for a device key; never raises KeyError."""
        found = self._facts_with(key, device).get(key)
        if found is not None:
            return found
        reading = self.reading(key, device)
        return Fact(key, reading, f"not among the {family(key)} facts" if isinstance(reading, Absent) else "")

    def reading(self, key: str, device: int | None = None) -> Reading:
        """Return the reading of `fact` without building a `Fact`, because the judge looks up thousands."""
        facts = self.facts if device is None else self._facts_with(key, device)
        found = facts.get(key)
        if found is not None:
            return found.reading
        if (why := self.unread.get(key)) is not None:
            return Unknown(why)
        name = family(key)
        if name in self.complete or (key.endswith(_OF_FILES) and name not in self.unread):
            return _ABSENT
        return Unknown(why) if (why := self.unread.get(name)) is not None else NOT_GIVEN

    def _facts_with(self, key: str, device: int | None) -> Facts:
        return self.devices[device] if device is not None and is_device_key(key) else self.facts

    def known(self, key: str, device: int | None = None) -> Value | None:
        """Return the value under a key if it is known, else None."""
        return self.fact(key, device).value

    def with_facts(self, facts: Iterable[Fact]) -> Inventory:
        """Return a copy with these facts added or replaced; none of them belongs to a device."""
        added = {fact.key: fact for fact in facts}
        return self._replace(facts={**self.facts, **added}) if added else self

    def without(self, *keys: str) -> Inventory:
        """Return a copy without these facts, as if they had not been read."""
        return self._replace(facts={key: fact for key, fact in self.facts.items() if key not in keys})

    def visible_devices(self) -> tuple[int, ...]:
        """Return the indices of the GPUs that a process can use: all that are not known to be hidden."""
        return tuple(
            index for index in range(len(self.devices)) if self.known("gpu.visible", index) is not False
        )

    @staticmethod
    def merged(parts: Sequence[Inventory]) -> Inventory:
        """Merge several inventories into one; the facts of a later part replace those of an earlier one."""
        facts: dict[str, Fact] = {}
        unread: dict[str, str] = {}
        complete: frozenset[str] = frozenset()
        devices: tuple[Facts, ...] = ()
        for part in parts:
            facts.update(part.facts)
            unread.update(part.unread)
            complete |= part.complete
            devices = part.devices or devices
        return Inventory(facts, devices, complete, unread)


def python_release(inventory: Inventory) -> dict[str, str]:
    """Return the minor version of the interpreter under the name `python`; empty if it is not known."""
    parts = str(inventory.known("python.version") or "").split(".")
    return {PYTHON: ".".join(parts[:2])} if len(parts) > 1 else {}


def installed_versions(inventory: Inventory) -> dict[str, str]:
    """Return the version of each package whose version is known, by package."""
    return {
        package_name(key): str(fact.value)
        for key, fact in inventory.facts.items()
        if fact.value is not None and is_package_version_key(key)
    }
