"""Which releases have a name: the text of a package's file, and what is read from it."""

import pytest

from envcheck.knowledge.names import NameRow, names_text, releases_that_have

TEXT = names_text(
    "peft",
    [
        NameRow("peft", "BoneConfig", (("0.14.0", "0.18.1"),)),
        NameRow("peft", "LoHaConfig", (("0.6.0", "0.21.2"),)),
        NameRow("peft", "old_name", (("0.1.0", "0.9.0"), ("0.11.0", "0.11.0"))),
        NameRow("peft.tuners.bone", "", (("0.14.0", "0.18.1"),)),
        NameRow("peft.tuners.bone", "BoneLinear", (("0.15.0", "0.18.1"),)),
    ],
    ["0.1.0", "0.9.0", "0.21.2"],
)


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("peft", "LoHaConfig", {"peft.LoHaConfig": "from 0.6.0 on"}),
        ("peft", "BoneConfig", {"peft.BoneConfig": "0.14.0 to 0.18.1"}),
        ("peft", "old_name", {"peft.old_name": "up to 0.9.0, 0.11.0"}),
        ("peft.tuners.bone", "", {"peft.tuners.bone": "0.14.0 to 0.18.1"}),
        (
            "peft.tuners.bone",
            "BoneLinear",
            {"peft.tuners.bone": "0.14.0 to 0.18.1", "peft.tuners.bone.BoneLinear": "0.15.0 to 0.18.1"},
        ),
        ("peft", "Bone", {}),
        ("peft.tuners", "BoneLinear", {}),
    ],
)
def test_the_releases_that_have_a_name_are_said_in_words(
    module: str, name: str, said: dict[str, str]
) -> None:
    assert dict(releases_that_have(TEXT, module, name)) == said


def test_names_that_the_same_releases_have_share_a_line() -> None:
    rows = [NameRow("trl", name, (("0.9", "0.12"),)) for name in ("b", "a", "c")]

    assert "\n0.9..0.12 a b c\n" in names_text("trl", rows, ["0.1", "1.0"])
