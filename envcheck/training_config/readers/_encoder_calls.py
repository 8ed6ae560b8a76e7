"""Calls of sentence-transformers that train without arguments of a trainer: `fit` of its models. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.recorded_calls import FollowedCall, KeywordGiven
from envcheck.training_config.programs.values import MISSING, Thing, Value, is_list

FIT = "sentence_transformers.fit"
"""The name of a call of the method `fit`; it has the size of the batches in addition, `batch_size`."""

MODELS = ("SentenceTransformer", "CrossEncoder", "SparseEncoder")
_MODULE = "sentence_transformers.models.Transformer"
_PACKAGE = "sentence_transformers"


def name_of(name: str, owner: str, *, trains: bool) -> str:
    """Return the name that prefixes the settings of a call of sentence-transformers, or "".

    A model configures a training only in a program that `trains`; others make one to compute embeddings.
    """
    if name == "fit" and owner.partition(".")[0] == _PACKAGE and owner.rpartition(".")[2] in MODELS:
        return FIT
    if not trains or owner.partition(".")[0] != _PACKAGE:
        return ""
    return f"{_PACKAGE}.{name}" if name in MODELS or f"{owner}.{name}" == _MODULE else ""


def trains(calls: Sequence[FollowedCall]) -> bool:
    """Return whether a program trains a model of sentence-transformers."""
    return any(
        call.owner.partition(".")[0] == _PACKAGE and (call.name == "fit" or call.name.endswith("Trainer"))
        for call in calls
    )


def with_batch_size(call: FollowedCall) -> FollowedCall:
    """Return a call of `fit` with the batch size of the loaders that it is given as another argument.

    `train_objectives` are pairs of a loader and a loss; a cross encoder takes one loader, `train_dataloader`.
    """
    sizes = set(_sizes(call))
    if not sizes:
        return call
    known = len(sizes) == 1 and MISSING not in sizes
    value = (
        sizes.pop() if known else Unknown("its loaders have several batch sizes, or ones that are not known")
    )
    more = KeywordGiven("batch_size", value, call.node)
    return call._replace(arguments=call.arguments._replace(keywords=(*call.arguments.keywords, more)))


def _sizes(call: FollowedCall) -> Iterator[Value]:
    first = call.arguments.get("train_objectives", 0)
    loaders = [pair[0] for pair in first if is_list(pair) and pair] if is_list(first) else []
    if is_list(first) and len(loaders) < len(first):
        yield MISSING
    single = call.arguments.get("train_dataloader", 0)
    loaders += [single] if isinstance(single, Thing) else []
    for loader in loaders:
        given = loader.given if isinstance(loader, Thing) and loader.given is not None else {}
        size = given.get("batch_size", MISSING)
        yield size if isinstance(size, int) else MISSING
