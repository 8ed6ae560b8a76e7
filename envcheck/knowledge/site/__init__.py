"""The page for look-ups: what is known of every pair of packages, for a target and a machine.

`assemble` judges everything beforehand and keeps the answers in plain lists; `render` puts them into the
template. The page decides nothing: it only looks up answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envcheck.core.rules import Matrix
from envcheck.knowledge.site.answers import entries_of
from envcheck.knowledge.site.choices import PageChoices
from envcheck.knowledge.site.rows import cell_row, gap_rows, metadata_bounds, release_row, rule_row


def render(data: Mapping[str, Any], template: str) -> str:
    """Return the template with the data in it, escaped so that no data can act as HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return template.replace("{{DATA}}", text)


def assemble(known: Matrix) -> dict[str, Any]:
    """Return everything that the page shows, as JSON-ready lists."""
    run = tuple(cell for cell in known.cells if cell.outcome in ("ok", "fails"))
    choices = PageChoices(known._replace(cells=run))
    known = choices.known
    entries = [
        entry for number, rule in enumerate(known.rules) for entry in entries_of(choices, number, rule)
    ]
    return {
        "updated": known.updated,
        "digest": known.digest,
        "overlays": [f"{origin.name} ({origin.named_by}): {origin.brings}" for origin in known.origins],
        "packages": {
            name: [release_row(choices, name, release) for release in releases]
            for name, releases in choices.releases.items()
        },
        "choices": {
            "target": [
                {"target": training.target, "label": training.label} for training in choices.trainings
            ],
            "gpu": [{"label": label} for label, _ in choices.gpus],
            "driver": [{"label": label} for label, _ in choices.drivers],
            "python": [{"label": "not said"}, *({"label": label} for label in choices.pythons[1:])],
        },
        "targets": {name: target.title for name, target in known.targets.items()},
        "rules": [rule_row(rule) for rule in known.rules],
        "entries": entries,
        "forbids": list(metadata_bounds(choices)),
        "gaps": {f"{package} {partner}": gaps for (package, partner), gaps in gap_rows(choices)},
        "read": known.atlas().read,
        "cells": [cell_row(choices, number) for number in range(len(known.cells))],
    }
