"""Warnings that repeat an error, and fixes that lead to a warning."""

from __future__ import annotations

import tomllib

from tests.unit.knowledge.test_cases import facts_of, judged, tree
from tests.unit.knowledge.test_fixes_can_be_taken import finding_of


def case(name: str) -> dict[str, object]:
    return next(each for each in tree()["case"] if each["id"] == name)


def found(name: str, **train: object) -> set[str]:
    row = dict(case(name))
    facts = dict(row["facts"])  # type: ignore[call-overload]
    facts["train"] = {**facts.get("train", {}), **train}
    return {each.rule.id for each in judged(facts_of({**row, "facts": facts})).findings}


def test_a_warning_is_left_out_beside_the_error_that_says_the_same() -> None:
    ids = found("numpy2-wandb-reported-0171")
    assert "numpy2-wandb-reported" in ids
    assert "numpy2-wandb" not in ids
    assert "numpy2-wandb" in found("numpy2-wandb-0171")


def test_a_package_that_the_model_needs_is_not_called_unused() -> None:
    text = """
        id = "jamba"
        file = "cases/none.toml"
        rule = "extension-of-another-torch"
        [facts]
        complete = ["pkg"]
        python = { version = "3.11.9" }
        cuda = { runtime = "12.4" }
        pkg = { torch = "2.6.0", transformers = "4.57.6", mamba-ssm = { version = "2.2.4", unresolved = ["c10::x"] } }
        train = { trainer = "transformers", adapter = "none", precision = "bf16", model_type = "jamba" }
    """
    row = tomllib.loads(text)
    ids = {each.rule.id for each in judged(facts_of(row)).findings}
    assert "extension-of-another-torch" in ids
    assert "unused-extension-of-another-torch" not in ids
    row["facts"]["train"]["model_type"] = "llama"
    ids = {each.rule.id for each in judged(facts_of(row)).findings}
    assert "extension-of-another-torch" not in ids
    assert "unused-extension-of-another-torch" in ids


def test_a_fix_that_leads_to_a_new_warning_comes_last() -> None:
    _, _, finding = finding_of(case("flash-attention-2-missing"))
    assert finding is not None
    changed = [[key for key, _ in fix.set] for fix in finding.fixes]
    assert changed[-1] == ["pkg.flash-attn"]
    assert len(changed) > 1
