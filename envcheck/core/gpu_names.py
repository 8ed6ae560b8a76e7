"""GPU names as people and tools write them: marketing names, suffixes, sizes, cloud instance types.

Words that do not identify the chip are dropped. The memory size and the form of the board are separated from
the model. A name that fits chips of different compute capability has one match for each capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envcheck.core.records import NamedTuple
from envcheck.core.tables import GpuModel

_NOISE = frozenset(
    {
        "nvidia",
        "geforce",
        "tesla",
        "corporation",
        "corp",
        "gpu",
        "gpus",
        "graphics",
        "card",
        "edition",
        "device",
    }
    | {"generation", "gen", "series", "tensor", "core", "the", "with", "of", "vram", "ram", "memory", "mig"}
)
_FAMILY = frozenset({"rtx", "gtx", "gt"})
"""Words that are not needed to identify a model that has a number."""

_VARIANT = frozenset(
    {"super", "ti", "d", "laptop", "mobile", "maxq", "notebook", "workstation", "server", "sff"}
)
"""Words for variants of a model that keep its compute capability."""

_NO_MODEL = (
    _FAMILY | _VARIANT | {"ada", "blackwell", "hopper", "ampere", "pro", "jetson", "agx", "quadro", "x", "v"}
)
"""Words that do not identify a model by themselves."""

_FORM = re.compile(r"(?:sxm\d?|pcie|nvl\d*|hbm\w*|hgx|dgx|oam)$")
_MEMORY = re.compile(r"(\d{1,3})(?:g|gb|gib)$")
_COUNT = re.compile(r"(?:(\d{1,3})x|x(\d{1,3}))$")
_GLUED = re.compile(r"(rtx|gtx|gt|titan|quadro|tesla|geforce|nvidia)(?=\w*\d)(\w+)$")
_NUMBER = re.compile(r"(\d{3,4})((?:ti|super|laptop|mobile|ada|d|s|m)+)$")
_SUFFIX = re.compile(r"ti|super|laptop|mobile|ada|d|s|m")
_LEADING_COUNT = re.compile(r"(\d{1,3})x(?=[a-z0-9])")
_SPELLED = {"s": "super", "notebook": "laptop", "mobile": "laptop", "m": "laptop"}


class GpuWords(NamedTuple):
    """A name in parts: words of the model, GB of memory (0 if not stated), forms of the board, GPU count."""

    model: frozenset[str]
    memory_gb: int
    forms: frozenset[str]
    number: int


class GpuMatch(NamedTuple):
    """Models that a name fits, all of one compute capability.

    `exact` is False if only the capability is certain: the name is that of a variant, or its memory size is
    not one of the model's.
    """

    models: tuple[GpuModel, ...]
    exact: bool

    @property
    def compute_capability(self) -> str:
        """Return the compute capability of all of them."""
        return self.models[0].compute_capability


def words_of(name: str) -> GpuWords:
    """Split a GPU name into its parts."""
    text = re.sub(r"\((?:r|tm|c)\)|®|™", " ", name.lower())
    text = re.sub(r"max[ -]?q", "maxq", text)
    text = re.sub(r"\b\d+g\.(\d+gb)", r"\1", text)  # the size of a MIG instance
    model: list[str] = []
    forms: set[str] = set()
    memory, count = 0, 1
    for word in _split(text):
        if found := _MEMORY.match(word):
            memory = int(found[1])
        elif found := _COUNT.match(word):
            count = int(found[1] or found[2])
        elif _FORM.match(word):
            forms.add(word.rstrip("0123456789"))
        elif word not in _NOISE:
            model.append(_SPELLED.get(word, word))
    if any(any(map(str.isdigit, word)) for word in model):
        model = [word for word in model if word not in _FAMILY]
    return GpuWords(frozenset(model), memory, frozenset(forms), count)


def _split(text: str) -> Iterable[str]:
    for piece in re.split(r"[^a-z0-9]+", text):
        word = piece
        if found := _LEADING_COUNT.match(word):
            yield f"{found[1]}x"
            word = word[found.end() :]
        while found := _GLUED.match(word):
            yield found[1]
            word = found[2]
        if found := _NUMBER.match(word):
            yield found[1]
            yield from _SUFFIX.findall(found[2])
        elif word:
            yield word


def match_gpu(name: str, known: Sequence[GpuModel], *, whole: bool = False) -> tuple[GpuMatch, ...]:
    """Return the models that a name fits, one match for each compute capability; empty for an unknown name.

    With `whole`, a name that lacks a part of the model's name does not match.
    """
    asked = words_of(name)
    if not asked.model - _NO_MODEL:
        return ()
    rows = [(model, words_of(one)) for model in known for one in model.names]
    same = [(model, words) for model, words in rows if words.model == asked.model]
    if not same and not whole:
        same = [(model, words) for model, words in rows if asked.model < words.model]
    exact = bool(same)
    if not same:
        same = [
            (model, words)
            for model, words in rows
            if words.model and words.model < asked.model and asked.model - words.model <= _VARIANT
        ]
        most = max((len(words.model) for _, words in same), default=0)
        same = [(model, words) for model, words in same if len(words.model) == most]
    fitting, exact = _of_size(asked, same, exact=exact)
    by_capability: dict[str, dict[str, GpuModel]] = {}
    for model, _ in fitting:
        by_capability.setdefault(model.compute_capability, {})[model.name] = model
    return tuple(GpuMatch(tuple(models.values()), exact) for models in by_capability.values())


def _of_size(
    asked: GpuWords, rows: Sequence[tuple[GpuModel, GpuWords]], *, exact: bool
) -> tuple[Sequence[tuple[GpuModel, GpuWords]], bool]:
    """Return the rows with the memory and form in the name, or all if there are none, and `exact`."""
    if asked.memory_gb:
        of_size = [(model, words) for model, words in rows if asked.memory_gb in model.memory_gb]
        rows, exact = (of_size, exact) if of_size else (rows, False)
    of_form = [(model, words) for model, words in rows if asked.forms & words.forms]
    rows = of_form or rows
    return sorted(rows, key=lambda row: row[1][1:3] != asked[1:3]), exact


def other_vendor(name: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the vendor of an accelerator that is not NVIDIA's; empty if the vendor is not known."""
    return next((str(row["vendor"]) for row in rows if re.search(row["pattern"], name)), "")


def with_plain_count(name: str) -> str:
    """Return a name with its count as `8x` before or `x8` behind it: `A100 x8` for `A100*8` and `A100x8`."""
    name = re.sub(r"^(\d{1,2}) ?(?:[*×]|[xX] |[卡张]) ?", r"\1x ", name.strip())  # noqa: RUF001
    return re.sub(r" ?(?:[*×] ?|(?<=\d)[xX])(\d{1,2})$", r" x\1", name)  # noqa: RUF001


def instance_gpus(name: str, rows: Iterable[Mapping[str, Any]]) -> tuple[str, int] | None:
    """Return the GPU of a cloud's instance type and how many it has, or None."""
    plain = re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("ml.")  # as SageMaker writes it
    for row in rows:
        if found := re.fullmatch(row["pattern"], plain):
            groups = found.groupdict()
            return str(row["gpu"]), int(groups.get("count") or row.get("count", 1))
    return None
