"""Which Auto class of transformers loads a model of which configuration, from compat/auto_classes/. Pure.

Below a line with an Auto class, `[AutoModelForCausalLM]`, stand the configurations whose models it loads,
each with the releases in which it does: `BartConfig 4.30.0..`. `tools/refresh_auto_classes.py` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envcheck.core.versions import order
from envcheck.knowledge.atlas import spans_of
from envcheck.knowledge.members import Membership
from envcheck.knowledge.release_spans import open_spans, parse_open_spans, read_ends, spans_in_words

_HEAD = """\
# Which Auto classes of transformers load a model of which configuration.
# Written by tools/refresh_auto_classes.py; the form is described in envcheck/knowledge/auto_classes.py.
# read: {first} to {last}
"""

_LEFT_OUT = frozenset({"AutoModel", "AutoModelForPreTraining", "AutoModelForTextEncoding", "AutoBackbone"})
"""Classes that load a model without a head, or whatever head it has: nobody is told to train with them."""


def auto_classes_text(loaded: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """Return the text of the file, from the configurations by Auto class in each release, oldest first."""
    releases = list(loaded)
    loading: dict[str, dict[str, list[str]]] = {}
    for release, classes in loaded.items():
        for name in classes.keys() - _LEFT_OUT:
            for configuration in classes[name]:
                loading.setdefault(name, {}).setdefault(configuration, []).append(release)
    lines = [_HEAD.format(first=releases[0], last=releases[-1])]
    for name in sorted(loading):
        lines.append(f"[{name}]\n")
        for configuration, found in sorted(loading[name].items()):
            spans = open_spans(spans_of(found, releases), releases[-1])
            lines.append(f"{configuration} {spans}\n")
    return "".join(lines)


def classes_that_load(text: str, configuration: str) -> tuple[Membership, ...]:
    """Return the Auto classes that load a model of a configuration, and in which releases.

    Those of the newest releases come first. `owner` is the Auto class, `has` the configuration.
    """
    ends = read_ends(text)
    found = []
    name = ""
    for line in text.splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line.startswith(f"{configuration} "):
            spans = parse_open_spans(line.partition(" ")[2], ends[1])
            words = spans_in_words(spans, ends)
            found.append(Membership("transformers", name, words, configuration, spans=spans, ends=ends))
    return tuple(sorted(found, key=lambda has: order(has.spans[-1][1]), reverse=True))
