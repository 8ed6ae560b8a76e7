"""YAML 1.1 as PyYAML's safe loader reads it, which is what trainers use: `no` is false, and `1e-4` is a text.

The document is built from the parser's events, not by the loader, so that each value keeps its place, nesting
is limited, and aliases cannot multiply a small file into a huge one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator
from typing import Any, TypeAlias

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.parsing import DEEPEST, TOO_DEEP, check_yaml_size, yaml_error
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, Scalar, Section, Setting, SettingValue
from envcheck.training_config.readers import ConfigReader

_BEGINNING = pattern(r"""(?:---(?:\s|$)|%YAML|["']?[\w./-]+["']?\s*:(?:\s|$)|\{)""")
_OTHER_BREAK = pattern("[\x85\u2028\u2029]")
_MAX_VALUES = 20_000  # values in one file; an alias counts each time it is used

_STANDARD = "tag:yaml.org,2002:"


def recognises(text: str) -> bool:
    """Return whether the first line that is not a comment is `name:`, `{`, or begins a document (`---`)."""
    for line in text.removeprefix("\ufeff").split("\n"):
        if line.strip() and not line.startswith("#"):
            return _BEGINNING.match(line) is not None
    return False


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return the settings of a YAML mapping; a template (`${…}`, `{{…}}`) is Unknown.

    Raises:
        InputError: the text is malformed; with line and column where there is one.
    """
    return (parsed(text, file, templates=True),)


def parsed(text: str, file: str, *, templates: bool) -> Document:
    """Return the settings of a YAML mapping; without `templates`, `${…}` is text, as in a shell command.

    Raises:
        InputError: the text is malformed; with line and column where there is one.
    """
    import yaml  # takes 10 ms, so import it only for YAML

    check_yaml_size(text, file)
    parser = _YamlParser(text, file, templates=templates)
    try:
        return parser.document()
    except yaml.YAMLError as error:
        raise yaml_error(error, file) from None


class _YamlNode(NamedTuple):
    """A composed node: the value of a scalar, the items of a list, or a mapping's (key, place, node)."""

    place: Place
    value: Scalar
    items: tuple[_YamlNode, ...] | None = None
    pairs: tuple[tuple[str, Place, _YamlNode], ...] | None = None


_Pairs: TypeAlias = tuple[tuple[str, Place, _YamlNode], ...]


def _without_wrappers(pairs: _Pairs) -> _Pairs:
    """Return the settings that Weights & Biases recorded, each written `name: {desc: …, value: …}`."""
    if not any(name in _OF_WANDB for name, _, _ in pairs):
        return pairs
    return tuple((name, place, _recorded(node)) for name, place, node in pairs if name not in _OF_WANDB)


def _recorded(node: _YamlNode) -> _YamlNode:
    """Return the value inside an entry of a recorded run, or the node if it is no such entry."""
    entry = {name: inner for name, _, inner in node.pairs or ()}
    return entry["value"] if "value" in entry and entry.keys() <= {"desc", "value"} else node


_OF_WANDB = ("_wandb", "wandb_version")


class _YamlParser:
    """Composes nodes from events, and flattens them into settings."""

    def __init__(self, text: str, file: str, *, templates: bool) -> None:
        import yaml

        self.templates = templates
        self.yaml, self.file = yaml, file
        # YAML ends a line at other characters as well; the programs that show a file do not.
        self.line_starts = (
            [0, *(found.end() for found in re.finditer("\n", text))] if _OTHER_BREAK.search(text) else []
        )
        self.events: Iterator[Any] = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.resolver: Any = yaml.resolver.Resolver()
        self.constructor = yaml.constructor.SafeConstructor()
        self.anchors: dict[str, _YamlNode] = {}
        self.repeated: list[tuple[str, Place, Place]] = []
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
        _, settings = self._mapping(_without_wrappers(node.pairs), "")
        return Document(self.file, "yaml", tuple(settings), repeated=tuple(self.repeated))

    # --- events to nodes ----------------------------------------------------------------------------

    def _node(self, event: Any, depth: int) -> _YamlNode:
        """Compose the node that an event begins."""
        if depth > DEEPEST:
            raise InputError(self._place(event), f"not YAML: {TOO_DEEP}")
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
        """Compose a mapping; a name that `<<` merges in counts only if the mapping does not set it itself."""
        own: dict[str, tuple[str, Place, _YamlNode]] = {}
        merged_in: list[tuple[str, Place, _YamlNode]] = []
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self.events), depth + 1)
            if key.items is not None or key.pairs is not None:
                raise InputError(key.place, "a name that is not a single word")
            name = "null" if key.value is None else str(key.value)
            if name == "<<" and isinstance(event, self.yaml.ScalarEvent) and event.implicit[0]:
                for source in value.items or (value,):
                    merged_in += source.pairs or ()
                continue
            if name in own:
                self.repeated.append((name, own.pop(name)[1], key.place))
            own[name] = (name, key.place, value)
        defaults = {pair[0]: pair for pair in reversed(merged_in)}  # the first of several mappings wins
        return _YamlNode(place, None, pairs=tuple({**defaults, **own}.values()))

    def _scalar(self, event: Any) -> Scalar:
        """Return the value that the safe loader would construct."""
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
        length = max(1, end.column - start.column) if end.line == start.line else 1
        if not self.line_starts:
            return Place(self.file, start.line + 1, start.column + 1, length)
        line = bisect(self.line_starts, start.index)
        return Place(self.file, line, start.index - self.line_starts[line - 1] + 1, length)

    # --- nodes to settings --------------------------------------------------------------------------

    def _mapping(
        self, pairs: tuple[tuple[str, Place, _YamlNode], ...], path: str
    ) -> tuple[Section, list[Setting]]:
        settings = []
        names = []
        for key, name_place, node in pairs:
            spelled = json.dumps(key) if "." in key or not key else key
            value, inner = self._value(node, f"{path}{spelled}.")
            settings += [Setting(f"{path}{spelled}", value, name_place, node.place), *inner]
            names.append(key)
        return Section(tuple(names)), settings

    def _value(self, node: _YamlNode, path: str) -> tuple[SettingValue, list[Setting]]:
        """Return a value and the settings inside it."""
        self.count += 1
        if self.count > _MAX_VALUES:
            raise InputError(node.place, f"expands to more than {_MAX_VALUES} values, aliases written out")
        if node.pairs is not None:
            return self._mapping(node.pairs, path)
        if node.items is None:
            is_text = self.templates and isinstance(node.value, str)
            is_template = is_text and any(sign in str(node.value) for sign in ("${", "{{"))
            return (Unknown(f"{node.value} is filled in elsewhere") if is_template else node.value), []
        values: list[Any] = []
        inside: list[Setting] = []
        for number, item in enumerate(node.items):
            value, inner = self._value(item, f"{path}{number}.")
            if item.pairs is not None:
                inside.append(Setting(f"{path}{number}", value, item.place, item.place))
            inside += inner
            values.append(value)
        return tuple(values), inside


def with_own_values(document: Document) -> Document:
    """Return a document in which `${lora.rank}` has the value that the document itself gives `lora.rank`.

    Only a document that nothing overrides has these values: OmegaConf fills them in after all overrides.
    """
    values = {setting.name: setting.value for setting in document.settings}
    settings = []
    for setting in document.settings:
        found = _FILLED_IN.fullmatch(setting.value.why) if isinstance(setting.value, Unknown) else None
        value = values.get(found.group(1), setting.value) if found else setting.value
        settings.append(setting if isinstance(value, Section) else setting._replace(value=value))
    return document._replace(settings=tuple(settings))


_FILLED_IN = pattern(r"\$\{(\w+(?:\.\w+)*)\} is filled in elsewhere")
_COLLECTIONS = (None, "!", *(f"{_STANDARD}{kind}" for kind in ("map", "seq", "set", "omap", "pairs")))
_KINDS = frozenset({"str", "bool", "int", "float", "null", "timestamp", "binary", "merge", "value"})


READER = ConfigReader("YAML", 1, recognises, read)
