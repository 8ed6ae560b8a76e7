"""Facts and what is known of them: readings, keys, the vocabulary and the inventory.

Everything here is a frozen value. Defining a named tuple costs a ninth of a frozen dataclass, and these
classes are on the start-up path. For the same reason annotations are not postponed: a named tuple
compiles each annotation that is a string.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias


class Tri(enum.IntEnum):
    """No < maybe < yes: "and" is `min`, "or" is `max`, and a maybe never hides a no or a yes."""

    NO = 0
    MAYBE = 1
    YES = 2

    @staticmethod
    def of(answer: bool) -> "Tri":
        """A decided answer."""
        return Tri.YES if answer else Tri.NO

    def negated(self) -> "Tri":
        """Not: maybe stays maybe."""
        return Tri(2 - self)


NOTHING: Mapping[str, Any] = MappingProxyType({})


Value: TypeAlias = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """It was read, and this is what it is."""

    value: Value


@dataclass(frozen=True, slots=True)
class Absent:
    """It was looked for and is not there."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be read, and why; or nobody gave it (`asked` is False), which is nobody's fault."""

    why: str
    asked: bool = True


Reading: TypeAlias = Known | Absent | Unknown


NOT_GIVEN = Unknown("not given", asked=False)


class Kind(enum.Enum):
    """What values a fact may take, and so which comparisons a rule may make with it."""

    VERSION = "version"  # a string that `versions` compares
    NUMBER = "number"  # a whole number
    WORD = "word"
    FLAG = "flag"
    WORDS = "words"  # a list of words; a rule asks whether one of them is there


class Key(NamedTuple):
    """What a fact's name means: its kind, its unit in words, its closed set of words if it has one.

    `phrases` say a value as people do (`{"3": "ZeRO-3"}`), for sentences such as "if ZeRO-3 and …";
    `"*"` is for every other value, which takes the place of its `{}`.
    """

    kind: Kind
    help: str
    words: tuple[str, ...] = ()
    phrases: Mapping[str, str] = NOTHING


class Fact(NamedTuple):
    """One thing read, or not, and where: a file, an API, a command, a table."""

    key: str
    reading: Reading
    source: str = ""

    @property
    def value(self) -> Value | None:
        """The value if it is known, else None."""
        return self.reading.value if isinstance(self.reading, Known) else None


def family(key: str) -> str:
    """The part before the first dot: `pkg` of `pkg.torch`."""
    return key.partition(".")[0]


def package_key(name: str, detail: str = "") -> str:
    """Return the key of a package's version fact (`pkg.torch`), or of a detail (`pkg.torch.requires`)."""
    return f"pkg.{name}.{detail}" if detail else f"pkg.{name}"


def package_name(key: str) -> str:
    """Return the package that a `pkg.` key is about; any other key as it is."""
    return key.removeprefix("pkg.")


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 spells it: `flash-attn` of `Flash_Attn`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def of_device(key: str) -> bool:
    """Whether a key belongs to one GPU (`gpu.memory_mib`) and not to the machine (`gpus.count`)."""
    return key.startswith("gpu.")


class Vocabulary:
    """The closed set of keys. `pkg.*` admits any distribution, `pkg.*.editable` a detail of any."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        """Take the declared keys, patterns with `*` in the second place included."""
        self.keys = MappingProxyType(dict(keys))

    def get(self, key: str) -> Key | None:
        """What the key means, or None if nobody declared it."""
        found = self.keys.get(key)
        if found is not None:
            return found
        head, dot, rest = key.partition(".")
        name, dot2, detail = rest.partition(".")
        return self.keys.get(f"{head}.*{dot2}{detail}") if dot and name else None

    def nearest(self, key: str) -> str | None:
        """The declared key most like a misspelt one."""
        from difflib import get_close_matches

        head, _, rest = key.partition(".")
        name, _, _ = rest.partition(".")
        candidates = [known.replace("*", name, 1) if name else known for known in self.keys]
        # A wrong family with a right rest ("driverr.version") is nearer than anything else.
        close = get_close_matches(key, candidates, n=1, cutoff=0.6)
        return close[0] if close and head else None


Facts: TypeAlias = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All facts of one machine, one Python environment and one training configuration.

    `devices` holds the `gpu.*` facts of each GPU in the driver's order. `complete` names the families
    that were read to the end, so that a key missing from them is Absent; `unread` says why a family
    or a single key could not be read. A key in none of these was simply not given.
    """

    facts: Facts = field(default_factory=dict)
    devices: tuple[Facts, ...] = ()
    complete: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)

    def fact(self, key: str, device: int | None = None) -> Fact:
        """The fact under a key; of the given device if the key belongs to one. Never raises."""
        if device is not None and of_device(key):
            found = self.devices[device].get(key)
        else:
            found = self.facts.get(key)
        if found is not None:
            return found
        if (why := self.unread.get(key)) is not None:
            return Fact(key, Unknown(why))
        name = family(key)
        if name in self.complete:
            return Fact(key, Absent(), f"not among the {name} facts")
        if (why := self.unread.get(name)) is not None:
            return Fact(key, Unknown(why))
        return Fact(key, NOT_GIVEN)

    def known(self, key: str, device: int | None = None) -> Value | None:
        """The value under a key if it is known, else None."""
        return self.fact(key, device).value

    def with_facts(self, facts: Iterable[Fact]) -> "Inventory":
        """The same with these facts of the machine added or replaced."""
        return replace(self, facts={**self.facts, **{fact.key: fact for fact in facts}})

    def without(self, *keys: str) -> "Inventory":
        """The same as if these facts had never been read."""
        return replace(self, facts={key: fact for key, fact in self.facts.items() if key not in keys})

    def visible_devices(self) -> tuple[int, ...]:
        """Indices of the GPUs a process here can use: all that are not known to be hidden."""
        return tuple(
            index for index in range(len(self.devices)) if self.known("gpu.visible", index) is not False
        )

    @staticmethod
    def merged(parts: Sequence["Inventory"]) -> "Inventory":
        """One inventory of several; a later part's facts replace an earlier one's."""
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
