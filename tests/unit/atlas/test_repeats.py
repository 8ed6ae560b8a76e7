"""A gap that says nothing new about a module is left out; the line that Python names stays."""

from __future__ import annotations

from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.repeats import without_repeats


def gap(
    needs: str,
    releases: tuple[str, ...] = ("1.0", "1.1"),
    lacking: tuple[str, ...] = ("4.0", "4.1"),
    *,
    place: str = "peft/model.py:9",
    entry: str = "import peft",
    kind: GapKind = GapKind.NAME,
) -> CodeGap:
    places = (place,) * len(releases)
    return CodeGap(
        kind=kind,
        package="peft",
        releases=releases,
        entry=entry,
        partner="transformers",
        lacking=lacking,
        needs=needs,
        places=places,
    )


A, B = gap("transformers.layers.A"), gap("transformers.layers.B", place="peft/model.py:10")


def test_of_two_names_in_a_missing_module_the_first_line_stays() -> None:
    assert without_repeats([B, A]) == [A]


def test_a_name_in_a_module_that_is_imported_itself_says_nothing_more() -> None:
    module = gap("transformers.layers", place="peft/model.py:20")
    wider = gap("transformers.layers", ("1.0", "1.1", "1.2"))
    assert without_repeats([A, wider]) == [wider]
    assert without_repeats([module, gap("transformers.other.A")]) == [module, gap("transformers.other.A")]


def test_what_concerns_another_release_stays() -> None:
    more_lack = gap("transformers.layers.B", lacking=("4.1", "4.2"))
    more_ask = gap("transformers.layers.B", ("1.1", "1.2"))
    for other in (more_lack, more_ask):
        assert without_repeats([A, other]) == [A, other]
    fewer = gap("transformers.layers.B", ("1.1",), ("4.1",), place="peft/model.py:1")
    assert without_repeats([fewer, A]) == [A]


def test_another_entry_module_or_kind_of_gap_stays() -> None:
    entry = gap("transformers.layers.B", entry="from peft import X")
    module = gap("transformers.cache.B")
    keyword = gap("transformers.layers.B(x=)", kind=GapKind.KEYWORD)
    assert without_repeats([A, entry, module, keyword]) == [A, entry, module, keyword]
