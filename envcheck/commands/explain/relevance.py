"""Decide which known failures may be what a log is about, before their text counts."""

from __future__ import annotations

import re

from envcheck.commands.explain.known import ExplainKnowledge
from envcheck.core.facts import (
    package_name,
)
from envcheck.core.rules import Matrix, Rule
from envcheck.knowledge.log_signatures import Signature
from envcheck.logs import missing_names
from envcheck.logs.environment import OF_NVIDIA
from envcheck.logs.events import Event
from envcheck.logs.own_code import own_code
from envcheck.logs.stated_versions import StatedVersions, contradicts_releases, contradicts_rule
from envcheck.logs.statements import refused_model_type


def is_of_cuda(signature: Signature, matrix: Matrix) -> bool:
    """Return whether a known failure concerns NVIDIA's driver, its GPUs or CUDA."""
    rule = matrix.rule(signature.rule) if signature.rule else None
    if rule is None:
        patterns = (_EXCLUDED.sub("", pattern.pattern) for pattern in signature.patterns)
        texts = (signature.title, signature.advice, *patterns)
        return bool(OF_NVIDIA.search(" ".join(texts)))
    keys = [clause.key for table in rule.when for clause in table]
    return any(key.startswith(("cuda.", "driver.", "gpu.", "gpus.", "nccl.")) for key in keys)


_EXCLUDED = re.compile(r"\(\?![^()]*\)")
"""The part of a pattern that says what the text must not be."""

_OF_MISSING_NAMES = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "TypeError"}
)


def may_be_about(known: ExplainKnowledge, stated: StatedVersions, signature: Signature, event: Event) -> bool:
    """Return whether a known failure may be what an event is about.

    It is not if it is one of other releases than those that the log states.

    A missing name or parameter is missing where it is asked for: if the traceback shows the libraries that it
    goes through, at least one package of the rule is among them or is named in the message. torch does not
    count, because every training goes through it; nor does, if it is known who asks, the package that lacks
    the name, because then a rule on another package that asks it for the same name is beside the point.
    """
    rule = known.matrix.rule(signature.rule) if signature.rule else None
    if _is_of_others(signature, event) or contradicts_releases(signature.releases, stated):
        return False
    on_models = rule is not None and _is_on_releases_of_models(rule)
    if (rule and contradicts_rule(rule, stated)) or (on_models and _is_of_no_release(event, known)):
        return False
    last = event.exceptions[-1].name.rpartition(".")[2] if event.exceptions else ""
    if rule is None or last not in _OF_MISSING_NAMES:
        return True
    distributions = missing_names.distributions_by_module(known.tree["tables"])
    frames = missing_names.packages_in(event, distributions) - {"torch"}
    packages = {package_name(clause.key) for table in rule.when for clause in table if "pkg." in clause.key}
    packages -= {"torch"}
    missing = missing_names.missing_name(event, known.tree["tables"])
    asker_known = missing is not None and (missing.own or bool(missing.asks))
    others = packages - {missing.lacks} if missing is not None and asker_known else set()
    if others:
        packages = others
    elif not frames or not packages:
        return True
    if frames & packages:
        return True
    names = packages | {module for module, package in distributions.items() if package in packages}
    said = event.text.lower().replace("_", "-")
    return any(name.lower().replace("_", "-") in said for name in names)


def _is_of_others(signature: Signature, event: Event) -> bool:
    """Return whether a failure of the user's own code is sought, and the innermost frame is of other code."""
    place = event.exceptions[-1].place if event.exceptions else event.cut_at
    return signature.own and not own_code(place)


def _is_on_releases_of_models(rule: Rule) -> bool:
    """Return whether a rule says from which release on transformers has a model."""
    return any("{train.minimum_transformers}" in str(clause.raw) for table in rule.when for clause in table)


def _is_of_no_release(event: Event, known: ExplainKnowledge) -> bool:
    """Return whether an exception names a type of model that no release of transformers has."""
    types = {row["model_type"] for row in known.tree["tables"].get("model", ())}
    refused = {refused_model_type(raised.message) for raised in event.exceptions} - {""}
    return bool(refused) and not refused & types


def with_kind_of_rule(signature: Signature, matrix: Matrix) -> Signature:
    """Return a signature; if its rule is about training facts alone, its kind is a setting, not versions."""
    rule = matrix.rule(signature.rule) if signature.rule else None
    if rule is None or signature.kind != "version":
        return signature
    keys = {clause.key for table in rule.when for clause in table}
    return signature._replace(kind="setting") if all(key.startswith("train.") for key in keys) else signature
