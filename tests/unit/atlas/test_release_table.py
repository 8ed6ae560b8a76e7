"""The table of releases: what is written is what is read, by release."""

import json
from dataclasses import replace
from time import thread_time

import pytest

from envcheck.atlas.release_table import table_release, table_text
from envcheck.core.errors import InputError
from envcheck.knowledge.release_metadata import ReleaseTable, freeze_releases, parse_release_files
from tests.unit.atlas.releases import release

RELEASES = [
    release("peft", "0.1.0", ("torch>=1.13",), python=">=3.7"),
    release("peft", "0.2.0", ("torch>=1.13", "accelerate"), python=">=3.7", yanked=True),
    release("peft", "0.3.0", ("torch >=1.13", "accelerate>=0.21"), python=">=3.8"),
    release("peft", "0.4.0", ("torch>=1.13", "accelerate"), python=">=3.8"),
    release(
        "peft",
        "0.5.0",
        ("torch==2.0.1",),
        {"peft/_C.so": b""},
        tag="cp311-cp311-manylinux2014_x86_64",
        python=">=3.8",
    ),
]
TEXT = """\
# peft: what each release requires and was built for. Written by `envcheck matrix harvest`.
release 0.1.0 2025-01-02
release 0.2.0 2025-01-02 yanked
release 0.3.0 2025-01-02
release 0.4.0 2025-01-02
release 0.5.0 2025-01-02
python 0.1.0..0.2.0 >=3.7
python 0.3.0.. >=3.8
requires 0.2.0 accelerate
requires 0.4.0 accelerate
requires 0.3.0 accelerate>=0.21
requires 0.5.0.. torch==2.0.1
requires 0.1.0..0.4.0 torch>=1.13
build 0.5.0.. torch ==2.0.1
build 0.5.0.. wheel x86_64 glibc>=2.17 python 3.11
"""


def table() -> ReleaseTable:
    frozen = freeze_releases({"peft.txt": table_text("peft", [table_release(one) for one in RELEASES])})
    return ReleaseTable(json.loads(json.dumps(frozen)))


def test_one_line_a_fact_with_the_releases_that_share_it() -> None:
    assert table_text("peft", [table_release(one) for one in RELEASES]) == TEXT


def test_each_release_is_read_as_it_was_written() -> None:
    assert table().versions("peft") == ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0")
    row = table().row("peft", "0.2.0")
    assert row is not None
    assert (row.requires, row.python, row.yanked) == (("accelerate", "torch>=1.13"), ">=3.7", True)
    row = table().row("peft", "0.5.0")
    assert row is not None
    assert row.requires == ("torch==2.0.1",)
    assert row.build == {"torch": ("==2.0.1",), "wheel": ("x86_64 glibc>=2.17 python 3.11",)}
    assert (row.uploaded, row.yanked, row.known) == ("2025-01-02", False, True)


def test_a_new_release_that_changes_nothing_adds_one_line() -> None:
    more = [*RELEASES, replace(RELEASES[-1], version="0.6.0")]
    before, after = TEXT.splitlines(), table_text("peft", [table_release(one) for one in more]).splitlines()
    assert [line for line in after if line not in before] == ["release 0.6.0 2025-01-02"]
    assert [line for line in before if line not in after] == []


def test_a_local_label_is_ignored_and_unknown_releases_have_no_row() -> None:
    found = table().row("peft", "0.3.0+cu124")
    assert found is not None
    assert found.version == "0.3.0"
    assert table().row("peft", "9.9") is None
    assert table().row("nobody", "1.0") is None
    assert table().versions("nobody") == ()


def test_what_is_not_said_is_not_known() -> None:
    silent = replace(RELEASES[0], requires=(), requires_known=False, uploaded="")
    row = parse_release_files({"peft.txt": table_text("peft", [table_release(silent)])}).row("peft", "0.1.0")
    assert row is not None
    assert (row.known, row.requires, row.uploaded) == (False, (), "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("release 1.0", "peft.txt:1: expected 'release VERSION DAY' or"),
        ("wants 1.0 torch>=1", "peft.txt:1: expected"),
        ("requires 1.0.. torch>=1", "peft.txt:1: no line 'release 1.0' above"),
        ("release 1.0 2036-01-01", "peft.txt:1: expected a day of 2000 to 2035; found '2036-01-01'"),
        ("release 1.0 yesterday", "peft.txt:1: expected a day"),
        ("release 1.0 -\nrequires 1.0.. torch|peft", "peft.txt:2: expected"),
        ("release 1.0 -\nrequires 1.0.. torch^peft", "peft.txt:2: expected"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_release_files({"peft.txt": line})
    assert str(raised.value).startswith(said)


def test_facts_that_begin_alike_have_their_beginning_once_in_the_compiled_form() -> None:
    versions, days, _, python, requires, build = freeze_releases({"peft.txt": TEXT})["peft"]
    assert (versions, days[-3:]) == ("0.1.0 0.2.0 0.3.0 0.4.0 0.5.0", "p12")  # 2025-01-02
    assert requires == "accelerate^0101^0303^0202>=0.21|torch^04zz==2.0.1^0003>=1.13"
    assert python.startswith(">=3.")
    assert build == "torch ==2.0.1^04zz|wheel x86_64 glibc>=2.17 python 3.11^04zz"


@pytest.mark.parametrize("count", [35, 36, 37, 1294])
def test_each_fact_of_many_releases_is_found(count: int) -> None:
    lines = [f"release 1.{number} 2025-01-02" for number in range(count)]
    lines += [f"requires 1.{number} torch=={number}" for number in range(count)]
    texts = {"p.txt": "\n".join([*lines, f"requires 1.{count - 2}.. peft"])}
    for found in (parse_release_files(texts), ReleaseTable(freeze_releases(texts))):
        for number in (0, 1, count - 2, count - 1):
            row = found.row("p", f"1.{number}")
            assert row is not None
            assert set(row.requires) == {f"torch=={number}", *(["peft"] if number >= count - 2 else [])}


def test_more_releases_than_have_a_number_are_refused() -> None:
    with pytest.raises(InputError, match="expected fewer than 1295 releases; found 1295"):
        parse_release_files({"p.txt": "\n".join(f"release 1.{number} -" for number in range(1295))})


def test_a_look_up_in_a_long_table_takes_well_under_a_tenth_of_a_millisecond() -> None:
    releases = [
        release("p", f"1.{number}", tuple(f"r{one}>={number}" for one in range(20))) for number in range(60)
    ]
    frozen = ReleaseTable(
        freeze_releases({"p.txt": table_text("p", [table_release(one) for one in releases])})
    )
    frozen.row("p", "1.0")
    began = thread_time()
    for number in range(60):
        frozen.row("p", f"1.{number}")
    assert (thread_time() - began) / 60 < 0.001  # seconds of this thread; a tenth of that on a quiet machine


def test_what_a_source_distribution_requires_for_the_installed_torch_is_left_out() -> None:
    published = release("axolotl", "0.12.2", ("torch==2.6.0", "xformers==0.0.29.post3", "peft==0.17.0"))
    source = replace(published, wheels=())

    required = [
        table_release(each, built_for_torch=("torch", "xformers")).facts for each in (source, published)
    ]

    assert {text for kind, text in required[0] if kind == "requires"} == {"peft==0.17.0"}
    assert ("requires", "torch==2.6.0") in required[1]
