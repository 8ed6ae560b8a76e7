"""Vocabulary, matrices and inventories from TOML, for tests of core and rules."""

from __future__ import annotations

import tomllib

from envcheck import probes
from envcheck.commands import loading
from envcheck.core import facts_file
from envcheck.core.facts import Inventory, Vocabulary
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import build_matrix, gather_tree
from envcheck.rules import derive


def vocabulary() -> Vocabulary:
    """Return the vocabulary that the real probes, readers and derived facts declare."""
    return loading.vocabulary(probes.every_probe())


def known(rules: str, tables: str = "", head: str = "") -> Matrix:
    """Return a matrix of these rules, tables and head, all in TOML."""
    texts = {"rules/test.toml": rules, "tables/test.toml": tables, "matrix.toml": head}
    return build_matrix(gather_tree(texts), vocabulary())


def inventory(facts: str, of: Matrix | None = None) -> Inventory:
    """Return the inventory of a facts file, with derived facts if a matrix is given."""
    read = facts_file.load(tomllib.loads(facts), "facts.toml", vocabulary())
    return derive.derive(read, of) if of else read


SOURCE = 'sources = [{ url = "https://example.org/1", kind = "issue", checked = 2026-11-20 }]'


def rule(when: str, rule_id: str = "a-rule", severity: str = "error", more: str = "") -> str:
    """Return one rule in TOML with this `when`, and further lines."""
    return f"""
[[rule]]
id = "{rule_id}"
severity = "{severity}"
basis = "measured"
title = "it breaks"
when = {when}
{SOURCE}
{more}
"""


__all__ = ["SOURCE", "inventory", "known", "rule", "vocabulary"]
