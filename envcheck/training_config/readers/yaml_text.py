"""YAML as PyYAML's safe loader reads it, which is what trainers use: 1.1, so `no` is false and `1e-4` a text.

Built from the parser's events: each value keeps its place, and nothing nests or multiplies without a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Document, Said, Scalar, Section, Setting
from envcheck.training_config.readers import ConfigReader

_FIRST = re.compile(r"""(?:---(?:\s|$)|%YAML|["']?[\w./-]+["']?\s*:(?:\s|$))""")
_DEEPEST = 64
_MOST = 20_000  # values that a file may come to, aliases counted as often as they are used

_STANDARD = "tag:yaml.org,2002:"


def recognises(text: str) -> bool:
    """Whether its first line that is no comment is `name:` or the mark that begins a document."""
    for line in text.removeprefix("\ufeff").split("\n"):
        if line.strip() and not line.startswith("#"):
            return _FIRST.match(line) is not None
    return False


def read(text: str, file: str) -> tuple[Document, ...]:
    """The settings of a YAML mapping.

    Raises:
        InputError: with line and column, where there is one.
    """
    import yaml  # ten milliseconds that only YAML pays

    parser = _YamlParser(text, file)
    try:
        document = parser.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise InputError(place, f"not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(file, f"not YAML: {' '.join(str(error).split())}") from None
    return (document,)


class _YamlNode(NamedTuple):
    """What was composed: a scalar's value, a list of nodes, or a mapping's (key, place, node)."""

    place: Place
    value: Scalar
    items: tuple[_YamlNode, ...] | None = None
    pairs: tuple[tuple[str, Place, _YamlNode], ...] | None = None


class _YamlParser:
    def __init__(self, text: str, file: str) -> None:
        import yaml

        self.yaml, self.file = yaml, file
        self.events: Iterator[Any] = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.resolver: Any = yaml.resolver.Resolver()
        self.constructor = yaml.constructor.SafeConstructor()
        self.anchors: dict[str, _YamlNode] = {}
        self.twice: list[tuple[str, Place, Place]] = []
        self.count = 0

    def document(self) -> Document:
        next(self.events)
        first = next(self.events)
        if isinstance(first, self.yaml.StreamEndEvent):
            raise InputError(self.file, "an empty file")
        node = self._node(next(self.events), 0)
        next(self.events)
        after = next(self.events)
        if not isinstance(after, self.yaml.StreamEndEvent):
            raise InputError(self._place(after), "a second document: trainers read files of one")
        if node.pairs is None:
            raise InputError(node.place, "expected names and values")
        _, settings = self._mapping(node.pairs, "")
        return Document(self.file, "yaml", tuple(settings), twice=tuple(self.twice))

    # --- events → nodes

    def _node(self, event: Any, depth: int) -> _YamlNode:
        if depth > _DEEPEST:
            raise InputError(self._place(event), f"nested deeper than {_DEEPEST}")
        if isinstance(event, self.yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise InputError(self._place(event), f"*{event.anchor} refers to nothing before it")
            return self.anchors[event.anchor]
        place = self._place(event)
        if event.tag not in _COLLECTIONS and not isinstance(event, self.yaml.ScalarEvent):
            raise InputError(place, f"the tag {event.tag}, which safe loaders refuse")
        if isinstance(event, self.yaml.ScalarEvent):
            node = _YamlNode(place, self._scalar(event))
        elif isinstance(event, self.yaml.SequenceStartEvent):
            items = []
            while not isinstance(inner := next(self.events), self.yaml.SequenceEndEvent):
                items.append(self._node(inner, depth + 1))
            node = _YamlNode(place, None, items=tuple(items))
        else:
            node = self._pairs(place, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _pairs(self, place: Place, depth: int) -> _YamlNode:
        """A mapping; what `<<` brings counts where the mapping does not say it itself."""
        own: dict[str, tuple[str, Place, _YamlNode]] = {}
        brought: list[tuple[str, Place, _YamlNode]] = []
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self.events), depth + 1)
            if key.items is not None or key.pairs is not None:
                raise InputError(key.place, "a name that is no single word")
            name = "null" if key.value is None else str(key.value)
            if name == "<<" and isinstance(event, self.yaml.ScalarEvent) and event.implicit[0]:
                for each in value.items or (value,):
                    brought += each.pairs or ()
                continue
            if name in own:
                self.twice.append((name, own.pop(name)[1], key.place))
            own[name] = (name, key.place, value)
        merged = {pair[0]: pair for pair in reversed(brought)}
        return _YamlNode(place, None, pairs=tuple({**merged, **own}.values()))

    def _scalar(self, event: Any) -> Scalar:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.resolver.resolve(self.yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix(_STANDARD)
        if kind == tag or kind not in _KINDS:
            raise InputError(self._place(event), f"the tag {tag}, which safe loaders refuse")
        if kind not in ("bool", "int", "float", "null"):
            return str(event.value)
        node = self.yaml.ScalarNode(tag, event.value)
        try:
            value: Scalar = self.constructor.construct_object(node)
        except (ValueError, KeyError, IndexError):
            raise InputError(self._place(event), f"{event.value[:40]!r} is no {kind}") from None
        return value

    def _place(self, event: Any) -> Place:
        start, end = event.start_mark, event.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Place(self.file, start.line + 1, start.column + 1, max(1, length))

    # --- nodes → settings

    def _mapping(
        self, pairs: tuple[tuple[str, Place, _YamlNode], ...], path: str
    ) -> tuple[Section, list[Setting]]:
        settings = []
        names = []
        for key, named, node in pairs:
            spelled = json.dumps(key) if "." in key or not key else key
            value, inner = self._value(node, f"{path}{spelled}.")
            settings += [Setting(f"{path}{spelled}", value, named, node.place), *inner]
            names.append(key)
        return Section(tuple(names)), settings

    def _value(self, node: _YamlNode, path: str) -> tuple[Said, list[Setting]]:
        self.count += 1
        if self.count > _MOST:
            raise InputError(node.place, f"comes to more than {_MOST} values, aliases written out")
        if node.pairs is not None:
            return self._mapping(node.pairs, path)
        if node.items is None:
            filled_in = isinstance(node.value, str) and ("${" in node.value or "{{" in node.value)
            return (Unknown(f"{node.value} is filled in elsewhere") if filled_in else node.value), []
        values: list[Any] = []
        inside: list[Setting] = []
        for number, item in enumerate(node.items):
            value, inner = self._value(item, f"{path}{number}.")
            if item.pairs is not None:
                inside.append(Setting(f"{path}{number}", value, item.place, item.place))
            inside += inner
            values.append(value)
        return tuple(values), inside


_COLLECTIONS = (None, "!", *(f"{_STANDARD}{kind}" for kind in ("map", "seq", "set", "omap", "pairs")))
_KINDS = frozenset({"str", "bool", "int", "float", "null", "timestamp", "binary", "merge", "value"})


READER = ConfigReader("YAML", 1, recognises, read)
