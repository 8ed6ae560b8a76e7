"""The picture of the stack on the HTML page: its parts as boxes, and the links that findings break.

It is drawn twice, as a row and as a column; the style sheet shows the one that suits the width of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from envcheck.core.facts import Absent, Inventory, Reading, Unknown, package_key
from envcheck.core.findings import Diagnostic, Report
from envcheck.core.i18n import Language, width
from envcheck.core.records import NamedTuple
from envcheck.reports.details import heading
from envcheck.reports.formats._html_common import MARK_ORDER, escape
from envcheck.reports.overview import MARKS, STACK, torch_build, training_phrases
from envcheck.reports.phrases import fact_text

_PARTS = ("driver", "cuda", "torch", "gpu", "libraries", "training")  # parts of the stack as drawn


def picture(report: Report) -> Iterator[str]:
    """Yield the HTML of both drawings, with a caption and a list of broken links for screen readers."""
    lang = report.language
    nodes, breaks = _nodes(report), _breaks(report)
    descriptions = [_description(each, nodes) for each in breaks]
    label = lang.say(
        "Driver, CUDA, torch, GPU, libraries and training, and which of them do not work together"
    )
    yield "<figure>"
    for drawing in (_Wide(nodes), _Tall(nodes)):
        yield from drawing.svg(breaks, descriptions, label)
    yield f"<figcaption>{escape(' '.join(_legend(nodes, breaks, lang)))}"
    if descriptions:
        items = "".join(f"<li>{escape(each)}</li>" for each in descriptions)
        yield f'<ul class="unseen">{items}</ul>'
    yield "</figcaption></figure>"


def _legend(nodes: Sequence[_HtmlNode], breaks: Sequence[_Break], lang: Language) -> Iterator[str]:
    """Yield a sentence for each kind of line and box that the picture has."""
    broken = {(each.one, each.other) for each in breaks}
    links = [(one, one + 1) for one in range(len(nodes) - 1) if (one, one + 1) not in broken]
    if any(nodes[one].known and nodes[other].known for one, other in links):
        yield lang.say("Solid line: no known problem.")
    if not all(node.known for node in nodes):
        yield lang.say("Dashed box and dotted line: not known or not given.")
    if breaks:
        yield lang.say("Coloured, with a sign: a finding; the sign leads to it.")


# --- the parts of the stack -------------------------------------------------------------------------


class _HtmlNode(NamedTuple):
    """A part of the stack: its name, the lines in its box, and whether anything is known of it."""

    name: str
    lines: tuple[str, ...]
    known: bool


def _nodes(report: Report) -> list[_HtmlNode]:
    lang, inventory = report.language, report.inventory
    driver = lang.word("Driver")
    torch = fact_text(inventory, "pkg.torch")
    without_cuda = torch and isinstance(inventory.fact("cuda.runtime").reading, Absent)
    built_for = torch_build(inventory, lang).strip(" ()") if without_cuda else ""
    runtime = fact_text(inventory, "cuda.runtime") or built_for
    cuda_lines = (runtime, _labelled(inventory, f"{driver} ≥", "cuda.minimum_driver"))
    torch_lines = (torch, _labelled(inventory, "Python", "python.version"))
    # For each part: its name, a fact that explains an empty box, and its lines. A part without a first line
    # counts as not known.
    parts = (
        (driver, "driver.version", _driver_lines(inventory)),
        ("CUDA", "cuda.runtime", cuda_lines),
        ("torch", "pkg.torch", torch_lines),
        ("GPU", "gpus.count", _gpu_lines(inventory)),
        (lang.say("Libraries"), "pkg", _library_lines(report)),
        (lang.word("Training"), "train", training_phrases(inventory, lang)),
    )
    return [_node(name, lines, inventory.fact(key).reading, lang) for name, key, lines in parts]


def _node(name: str, lines: Sequence[str], reading: Reading, lang: Language) -> _HtmlNode:
    known = any(lines[:1])
    shown = lines if known else (_why_empty(reading, lang), *lines)
    return _HtmlNode(name, tuple(filter(None, shown)), known)


def _why_empty(reading: Reading, lang: Language) -> str:
    """Return why a box is empty, in a word or two; the overview below gives the full reason."""
    if isinstance(reading, Unknown) and reading.asked:
        return lang.say("not known")
    return lang.say("not given") if isinstance(reading, Unknown) else lang.say("none here")


def _driver_lines(inventory: Inventory) -> tuple[str, ...]:
    return fact_text(inventory, "driver.version"), _labelled(inventory, "CUDA ≤", "cuda.driver")


def _gpu_lines(inventory: Inventory) -> tuple[str, ...]:
    counts: dict[tuple[str, ...], int] = {}
    for device in range(len(inventory.devices)):
        kind = _gpu_kind(inventory, device)
        counts[kind] = counts.get(kind, 0) + 1
    return tuple(line for kind, count in counts.items() for line in _counted(kind, count))


def _gpu_kind(inventory: Inventory, device: int) -> tuple[str, ...]:
    memory = inventory.known("gpu.memory_mib", device)
    capability = fact_text(inventory, "gpu.compute_capability", device)
    lines = (
        fact_text(inventory, "gpu.name", device).removeprefix("NVIDIA ") or f"GPU {device}",
        f"{memory / 1024:.0f} GiB" if isinstance(memory, int) else "",
        f"sm {capability}" if capability else "",
    )
    return tuple(filter(None, lines))


def _counted(kind: Sequence[str], count: int) -> Iterator[str]:
    first, *rest = kind
    yield f"{count} x {first}" if count > 1 else first
    yield from rest


def _library_lines(report: Report) -> tuple[str, ...]:
    names = dict.fromkeys((*STACK, *(report.target.packages if report.target else ())))
    lines = (_labelled(report.inventory, name, package_key(name)) for name in names if name != "torch")
    return tuple(filter(None, lines))


def _labelled(inventory: Inventory, label: str, key: str) -> str:
    value = fact_text(inventory, key)
    return f"{label} {value}" if value else ""


# --- the broken links -------------------------------------------------------------------------------


class _Break(NamedTuple):
    """Two parts that do not work together, or one that is wrong by itself, with the worst finding's mark.

    `one` and `other` are indexes of `_PARTS`, equal for a single part.
    """

    one: int
    other: int
    mark: str
    anchor: str  # of the worst finding; of the first one if several are equally severe
    texts: tuple[str, ...]


def _description(each: _Break, nodes: Sequence[_HtmlNode]) -> str:
    names = dict.fromkeys((nodes[each.one].name, nodes[each.other].name))
    return f"{' + '.join(names)}: {'; '.join(each.texts)}"


_WORDS = {"error": "error", "warning": "warning", "note": "note", "unknown": "undecided"}


def _breaks(report: Report) -> list[_Break]:
    """Return the broken links: a finding breaks the path through the parts that its facts are about."""
    lang = report.language
    found: dict[tuple[int, int], _Break] = {}
    for anchor, mark, title, parts in _blamed(report):
        touched = sorted(_PARTS.index(part) for part in parts)
        for pair in list(pairwise(touched)) or [(index, index) for index in touched]:
            before = found.get(pair, _Break(*pair, mark, anchor, ()))
            worst = min(mark, before.mark, key=MARK_ORDER.index)
            worst_anchor = before.anchor if worst == before.mark else anchor
            texts = (*before.texts, f"{lang.word(_WORDS[mark])}: {title}")
            found[pair] = _Break(*pair, worst, worst_anchor, texts)
    return sorted(found.values(), key=lambda each: (each.one, each.other))


def _blamed(report: Report) -> Iterator[tuple[str, str, str, set[str]]]:
    """Yield the anchor, mark, title and parts of each finding and each diagnostic."""
    lang = report.language
    for number, each in enumerate(report.reported, 1):
        if isinstance(each, Diagnostic):
            yield f"f{number}", each.severity.value, lang.translate(each.text), {"training"}
        else:
            mark, _, title = heading(each, lang)
            yield f"f{number}", mark, title, {_part(evidence.fact.key) for evidence in each.evidence} - {""}


def _part(key: str) -> str:
    """Return the part of the stack that a fact is about, or an empty string."""
    head, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    if head in ("driver", "train"):
        return {"train": "training"}.get(head, head)
    if key in ("cuda.driver", "cuda.compat"):
        return "driver"
    if head in ("gpu", "gpus"):
        return "gpu"
    if head in ("pkg", "build"):
        return "torch" if name == "torch" else "libraries"
    return "cuda" if head == "cuda" else ""


# --- drawings ---------------------------------------------------------------------------------------

_MOST_LINES = 8  # in a box
_LINE_COLUMNS = 21  # characters that fit on a line of a box


class _Drawing:
    """Stack as boxes in a line.

    A subclass sets the width and height (in SVG units), the position of the boxes, and the paths between
    them.
    """

    name = ""
    width = height = 0

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        """Take the parts, first to last."""
        self.nodes = nodes
        self.cut = [_cut(node.lines) for node in nodes]

    def box(self, index: int) -> tuple[int, int, int, int]:
        """Return left, top, width and height of a box."""
        raise NotImplementedError

    def near(self, one: int) -> tuple[str, int, int]:
        """Return the path from a box to the next one, and the coordinates of its middle."""
        raise NotImplementedError

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        """Return the arc between two boxes that are not neighbours, and the coordinates of its summit."""
        raise NotImplementedError

    def svg(self, breaks: Sequence[_Break], descriptions: Sequence[str], label: str) -> Iterator[str]:
        """Yield the SVG element; `descriptions` belong to `breaks`, one each."""
        alone = {each.one: each.mark for each in breaks if each.one == each.other}
        view_box = f"0 0 {self.width} {self.height}"
        yield f'<svg class="{self.name}" viewBox="{view_box}" role="group" aria-label="{escape(label)}">'
        yield from self._links(breaks)
        for index, node in enumerate(self.nodes):
            yield from self._box(index, node, alone.get(index, ""))
        for each, description in zip(breaks, descriptions, strict=True):
            _, x, y = self._path(each)
            yield (
                f'<a href="#{each.anchor}" class="{each.mark}"><title>{escape(description)}</title>'
                f'<circle cx="{x}" cy="{y}" r="11"/>'
                f'<text x="{x}" y="{y + 5}" class="sign">{MARKS[each.mark]}</text></a>'
            )
        yield "</svg>"

    def _links(self, breaks: Sequence[_Break]) -> Iterator[str]:
        """Yield the paths between neighbours that nothing breaks, then the broken paths."""
        broken = {(each.one, each.other) for each in breaks}
        for index in range(len(self.nodes) - 1):
            if (index, index + 1) not in broken:
                path, _, _ = self.near(index)
                both_known = self.nodes[index].known and self.nodes[index + 1].known
                yield f'<path class="{"link" if both_known else "link open"}" d="{path}"/>'
        for each in breaks:
            if each.one != each.other:
                path, _, _ = self._path(each)
                yield f'<path class="link {each.mark}" d="{path}"/>'

    def _path(self, each: _Break) -> tuple[str, int, int]:
        """Return the path of a broken link and where its sign goes; a single part has only the sign."""
        if each.one == each.other:
            left, top, width, _ = self.box(each.one)
            return "", left + width - 4, top + 4
        return self.near(each.one) if each.other == each.one + 1 else self.far(each.one, each.other)

    def _box(self, index: int, node: _HtmlNode, mark: str) -> Iterator[str]:
        left, top, width, height = self.box(index)
        classes = " ".join(filter(None, ("node", mark, "" if node.known else "open")))
        yield f'<g class="{classes}">'
        yield f"<title>{escape(': '.join(filter(None, (node.name, ', '.join(node.lines)))))}</title>"
        yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="9"/>'
        yield f'<text x="{left + 12}" y="{top + 24}" class="name">{escape(node.name)}</text>'
        for number, line in enumerate(self.cut[index]):
            yield f'<text x="{left + 12}" y="{top + 45 + 18 * number}">{escape(line)}</text>'
        yield "</g>"


def _cut(lines: Sequence[str]) -> list[str]:
    """Return the lines that a box has room for, each shortened to its width."""
    more = len(lines) - _MOST_LINES
    return [_short(line) for line in (lines if more <= 0 else [*lines[: _MOST_LINES - 1], f"+ {more + 1}"])]


def _short(line: str) -> str:
    if width(line) <= _LINE_COLUMNS:
        return line
    line = line[:_LINE_COLUMNS]  # every character takes at least one column; a hostile name has thousands
    while width(line) >= _LINE_COLUMNS:
        line = line[:-1]
    return f"{line}…"


def _tallest(cut: Iterable[Sequence[str]]) -> int:
    """Return the height of a box that holds the longest of these lists of lines."""
    return 40 + 18 * max(1, *map(len, cut))


class _Wide(_Drawing):
    """Boxes in a row, with arcs below it."""

    name = "wide"
    wide, gap = 166, 40

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        super().__init__(nodes)
        self.tall = _tallest(self.cut)
        self.width = len(nodes) * (self.wide + self.gap) - self.gap + 24
        self.height = self.tall + 24

    def svg(self, breaks: Sequence[_Break], descriptions: Sequence[str], label: str) -> Iterator[str]:
        deepest = max((each.other - each.one for each in breaks), default=0)
        self.height = self.tall + 24 + (0 if deepest < 2 else 6 + 26 * deepest)  # noqa: PLR2004 - an arc
        yield from super().svg(breaks, descriptions, label)

    def box(self, index: int) -> tuple[int, int, int, int]:
        return 12 + index * (self.wide + self.gap), 12, self.wide, self.tall

    def near(self, one: int) -> tuple[str, int, int]:
        right = 12 + one * (self.wide + self.gap) + self.wide
        return f"M{right} 31h{self.gap}", right + self.gap // 2, 31

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        start, end = (12 + each * (self.wide + self.gap) + self.wide // 2 for each in (one, other))
        start, end = start + 16, end - 16
        top, deep = 12 + self.tall, 34 * (other - one)
        path = f"M{start} {top}C{start} {top + deep} {end} {top + deep} {end} {top}"
        return path, (start + end) // 2, top + deep * 3 // 4


class _Tall(_Drawing):
    """Boxes in a column, with arcs to its right."""

    name = "tall"
    wide, gap = 206, 34

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        super().__init__(nodes)
        tops = [12]
        for lines in self.cut:
            tops.append(tops[-1] + _tallest([lines]) + self.gap)
        self.tops = tops
        self.width, self.height = self.wide + 24 + 90, tops[-1] - self.gap + 12

    def box(self, index: int) -> tuple[int, int, int, int]:
        return 12, self.tops[index], self.wide, self.tops[index + 1] - self.tops[index] - self.gap

    def near(self, one: int) -> tuple[str, int, int]:
        bottom = self.tops[one + 1] - self.gap
        return f"M44 {bottom}v{self.gap}", 44, bottom + self.gap // 2

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        start, end = (self.tops[each] + 30 for each in (one, other))
        right, deep = 12 + self.wide, 24 * (other - one)
        path = f"M{right} {start}C{right + deep} {start} {right + deep} {end} {right} {end}"
        return path, right + deep * 3 // 4, (start + end) // 2
