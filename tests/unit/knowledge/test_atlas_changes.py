"""A refresh is reviewed in words: what is new, what newly fails, and what to run."""

import pytest

from envcheck.core.rules import Atlas
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.atlas_changes import PairToRun, atlas_changes, pairs_to_run

HEAD = 'read = 2026-11-22\n["import peft"]\n'


def atlas(rows: str, transformers: str) -> Atlas:
    releases = {"peft": ("0.19.0", "0.20.0"), "transformers": tuple(transformers.split())}
    return read_atlas({"gaps/peft.toml": f"{HEAD}transformers = [{rows}]\n"}, releases)


BEFORE = atlas('["name", "transformers.X", "0.19.0", "5.22.0", "p.py:1"]', "5.22.0 5.23.0")


def test_nothing_new_is_said_with_nothing() -> None:
    assert list(atlas_changes(BEFORE, BEFORE)) == []
    assert pairs_to_run(BEFORE, BEFORE) == []


def test_a_release_that_drops_a_name_is_said_with_whom_that_affects() -> None:
    after = atlas('["name", "transformers.X", "0.19.0", "5.22.0, 5.24.0", "p.py:1"]', "5.22.0 5.23.0 5.24.0")

    assert list(atlas_changes(BEFORE, after)) == [
        "new: transformers 5.24.0",
        "transformers 5.24.0 lacks transformers.X, which `import peft` of peft 0.19.0 needs: now fails",
    ]
    assert pairs_to_run(BEFORE, after) == [
        PairToRun("peft", "0.19.0", "transformers", "5.24.0", fails=True),
        PairToRun("peft", "0.19.0", "transformers", "5.23.0", fails=False),
    ]


def test_a_row_that_is_gone_is_said() -> None:
    after = atlas("", "5.22.0 5.23.0")

    (line,) = atlas_changes(BEFORE, after)
    assert line.startswith("transformers 5.22.0 lacks transformers.X, which `import peft` of peft 0.19.0")
    assert line.endswith(": no longer expected to fail")


def test_a_new_release_that_fails_like_the_one_before_is_only_counted() -> None:
    known = atlas('["name", "transformers.X", "0.19.0..0.20.0", "5.23.0", "p.py:1"]', "5.22.0 5.23.0")
    row = '["name", "transformers.X", "0.19.0..0.20.0", "5.23.0..5.24.0", "p.py:1"]'
    after = atlas(row, "5.22.0 5.23.0 5.24.0")

    assert list(atlas_changes(known, after)) == [
        "new: transformers 5.24.0 (1 known failure of the release before, too)"
    ]
    assert pairs_to_run(known, after) == []


def test_a_new_release_that_no_longer_asks_is_said() -> None:
    known = atlas('["name", "transformers.X", "0.19.0..0.20.0", "5.22.0", "p.py:1"]', "5.22.0 5.23.0")
    releases = {"peft": ("0.19.0", "0.20.0", "0.21.0"), "transformers": ("5.22.0", "5.23.0")}
    after = known._replace(releases=releases)

    new, gone = atlas_changes(known, after)
    assert new == "new: peft 0.21.0"
    assert gone.startswith("transformers 5.22.0 lacks transformers.X, which `import peft` of peft 0.21.0")
    assert gone.endswith(": no longer expected to fail")


@pytest.mark.parametrize(
    ("kind", "needs", "words"),
    [
        ("name", "transformers.X", "5.24.0 lacks transformers.X, which `import peft` of peft 0.19.0 needs"),
        (
            "keyword",
            "transformers.f(x=)",
            "5.24.0 does not accept transformers.f(x=), which `import peft` of peft 0.19.0 passes",
        ),
        (
            "override",
            "transformers.Trainer.log(2 arguments)",
            "5.24.0 calls transformers.Trainer.log(2 arguments), which `import peft` of peft 0.19.0 does not accept",
        ),
        (
            "guard",
            "transformers<5.24",
            "5.24.0 is not transformers<5.24, which `import peft` of peft 0.19.0 asks for",
        ),
        (
            "binary",
            "transformers==5.22",
            "5.24.0 is not transformers==5.22, for which peft 0.19.0 was compiled",
        ),
        ("symbol", "aoti_x", "5.24.0 does not define aoti_x, which `import peft` of peft 0.19.0 needs"),
        (
            "symbol",
            "_ZN3c104cuda9SetDeviceEa",
            "5.24.0 does not define c10::cuda::SetDevice in this form, which `import peft` of peft 0.19.0 needs",
        ),
    ],
)
def test_each_kind_of_row_has_its_words(kind: str, needs: str, words: str) -> None:
    before = atlas("", "5.22.0 5.23.0 5.24.0")
    after = atlas(f'["{kind}", "{needs}", "0.19.0", "5.24.0", "p.py:1"]', "5.22.0 5.23.0 5.24.0")

    assert list(atlas_changes(before, after)) == [f"transformers {words}: now fails"]


PARTNERS = ("accelerate", "numpy", "transformers")


def several(peft: str, asking: str, names: str = "X") -> Atlas:
    """Return an atlas in which some releases of peft ask three packages for names that their 1.0 lacks."""
    lines = []
    for partner in PARTNERS:
        asked = ", ".join(f'["name", "{partner}.{name}", "{asking}", "1.0", "p.py:1"]' for name in names)
        lines.append(f"{partner} = [{asked}]\n")
    rows = "".join(lines)
    releases = {"peft": tuple(peft.split()), **dict.fromkeys(PARTNERS, ("1.0", "2.0"))}
    return read_atlas({"gaps/peft.toml": f"{HEAD}{rows}"}, releases)


def test_a_new_release_that_asks_nothing_at_all_is_one_doubt() -> None:
    after = several("0.19.0 0.20.0", "0.19.0")

    assert list(atlas_changes(several("0.19.0", "0.19.0"), after)) == [
        "new: peft 0.20.0",
        "peft 0.20.0 asks nothing of the 3 packages of the release before: was it read?",
    ]


def test_a_further_reason_for_a_known_failure_is_not_said_and_several_reasons_are_one_line() -> None:
    before = several("0.19.0 0.20.0", "0.19.0")

    assert list(atlas_changes(before, several("0.19.0 0.20.0", "0.19.0", "XY"))) == []
    assert list(atlas_changes(before, several("0.19.0 0.20.0", "0.19.0..0.20.0", "XY"))) == [
        f"{partner} 1.0 lacks {partner}.X and 1 more, which `import peft` of peft 0.20.0 needs: now fails"
        for partner in PARTNERS
    ]
