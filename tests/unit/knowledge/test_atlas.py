"""The atlas: its text, its JSON, the rows that two installed packages break, and the rules made of them."""

import json

import pytest

from envcheck.commands.judging import atlas_rules
from envcheck.commands.loading import known_vocabulary, load_matrix
from envcheck.core.facts import python_release
from envcheck.core.findings import Verdict
from envcheck.core.rules import Atlas, Severity
from envcheck.knowledge.atlas import (
    format_spans,
    freeze_atlas,
    gaps_text,
    parse_spans,
    read_atlas,
    spans_of,
    thaw_atlas,
)
from envcheck.knowledge.atlas_rules import rules_here, rules_of
from envcheck.knowledge.load import MatrixError
from envcheck.rules import judge
from envcheck.rules.atlas import broken_rows, fitting_releases, judged_versions, newer_releases
from tests.support.worlds import inventory

LAYERS = "transformers.modeling_layers.GradientCheckpointingLayer"

GAPS = f"""
read = 2026-11-22
["import peft"]
transformers = [
  ["name", "transformers.HybridCache", "0.17.1..0.18.0", "5.0.0", "peft/model.py:9"],
  ["name", "{LAYERS}", "0.18.0", "4.51.3..4.52.4", "peft/helpers.py:27"],
]
["peft.get_peft_model(...)"]
accelerate = [["keyword", "accelerate.dispatch_model(force_hooks=)", "0.17.1", "0.30.0", "peft/model.py:30"]]
"""

PACKAGES = """
[package.peft]
trainers = ["transformers"]
optional = ["peft.get_peft_model(...)"]
"""

RELEASES = {
    "peft": ("0.17.1", "0.18.0", "0.18.1"),
    "transformers": ("4.51.3", "4.52.4", "4.53.0", "5.0.0"),
    "accelerate": ("0.30.0", "0.31.0"),
}


@pytest.fixture
def atlas() -> Atlas:
    return read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": GAPS}, RELEASES)


def test_what_is_written_reads_back_equal(atlas: Atlas) -> None:
    rows = [row for of_pair in atlas.rows["peft"].values() for row in of_pair]
    text = gaps_text("peft", rows, "2026-11-22")

    again = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": text}, RELEASES)

    assert again == atlas
    assert gaps_text("peft", reversed(rows), "2026-11-22") == text, "the order of the rows shows"


def test_the_json_of_the_wheel_holds_the_same(atlas: Atlas) -> None:
    files = json.loads(json.dumps(freeze_atlas(atlas)))
    thawed = thaw_atlas(files["index"], files.__getitem__)

    assert {name: dict(partners) for name, partners in thawed.rows.items() if partners} == atlas.rows
    assert dict(thawed.releases) == atlas.releases
    assert thawed[2:] == atlas[2:]


def test_only_the_files_of_installed_packages_are_read(atlas: Atlas) -> None:
    files = freeze_atlas(atlas)
    read: list[str] = []

    def load(package: str) -> dict[str, object]:
        read.append(package)
        return files[package]

    installed = {"peft": "0.18.0", "transformers": "4.52.4", "rich": "14.0"}
    assert [rule.id for rule in rules_here(thaw_atlas(files["index"], load), installed)] != []
    assert sorted(read) == ["peft", "transformers"]


def test_a_row_without_five_texts_names_its_file() -> None:
    with pytest.raises(
        MatrixError, match=r"gaps/peft\.toml: import peft: transformers: expected kind, needs"
    ):
        read_atlas({"gaps/peft.toml": '["import peft"]\ntransformers = [["name", "x"]]'}, {})


def test_releases_are_written_as_spans_of_neighbours() -> None:
    every = ["1.0", "1.1", "1.2", "2.0", "2.1"]

    spans = spans_of({"1.0", "1.1", "2.1"}, every)

    assert format_spans(spans) == "1.0..1.1, 2.1"
    assert parse_spans("1.0..1.1, 2.1") == spans


@pytest.mark.parametrize(
    ("peft", "transformers", "broken"),
    [
        ("0.18.0", "4.52.4", [LAYERS]),
        ("0.18.0", "4.53.0", []),  # the partner has it
        ("0.18.1", "4.52.4", []),  # no longer asked for
        ("0.17.1", "5.0.0", ["transformers.HybridCache"]),
        ("0.18.0", "4.52.4+vendor", [LAYERS]),  # a local label is the same code
        ("0.18.0", "4.52.0", []),  # a release that nobody read
        ("0.18.0", "5.0.0rc1", []),  # a pre-release between releases that have it
        ("0.18.0", "4.53.0.dev0", []),  # the next release has it
        ("0.18.0", "4.52.4rc1", [LAYERS]),  # both neighbours lack it
        ("0.18.0.dev0", "4.52.4", []),  # the release before does not ask
        ("0.18.0", "6.0.0.dev0", []),  # no release followed
    ],
)
def test_only_releases_that_were_read_are_judged(
    atlas: Atlas, peft: str, transformers: str, broken: list[str]
) -> None:
    installed = judged_versions(atlas, {"peft": peft, "transformers": transformers, "numpy": "2.0"})

    found = [row.needs for *_, rows in broken_rows(atlas, installed) for row in rows]

    assert found == broken


CANDIDATES = {**RELEASES, "transformers": ("4.51.3", "4.52.4", "4.53.0", "5.0.0rc0", "5.0.0rc1", "5.0.0")}


@pytest.mark.parametrize(
    ("transformers", "broken"),
    [
        ("5.0.0rc0", False),
        ("5.0.0rc1", True),
        ("5.0.0rc1+git1a2b3c4", True),
        ("5.0.0", True),
        ("5.0.0rc2", False),  # not read: 4.53.0 and the first candidate have the name
        ("5.0.0.dev0", False),
        ("4.53.0.dev0", False),
    ],
)
def test_a_candidate_that_was_read_is_judged_as_any_release(transformers: str, *, broken: bool) -> None:
    gaps = GAPS.replace('"5.0.0"', '"5.0.0rc1..5.0.0"')
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": gaps}, CANDIDATES)

    rules = list(rules_here(atlas, {"peft": "0.17.1", "transformers": transformers}))

    assert bool(rules) is broken
    for rule in rules:
        judged = judge.judge(inventory(f'[pkg]\npeft = "0.17.1"\ntransformers = "{transformers}"\n'), [rule])
        assert [finding.verdict for finding in judged.findings] == [Verdict.BROKEN]
        assert f"transformers {transformers.partition('+')[0]} lacks" in rule.title


def test_a_checkout_is_judged_where_all_candidates_agree() -> None:
    gaps = GAPS.replace('"5.0.0"', '"4.53.0..5.0.0"')
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": gaps}, CANDIDATES)

    (rule,) = rules_here(atlas, {"peft": "0.17.1", "transformers": "5.0.0.dev0"})

    assert "transformers 5.0.0.dev0 lacks" in rule.title
    assert all("rc" not in str(bound) for fix in rule.fixes for _, bound in fix.set)


def test_nobody_is_told_to_install_a_candidate() -> None:
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": GAPS}, CANDIDATES)

    assert fitting_releases(atlas, "transformers", "peft", "0.17.1") == ["4.51.3", "4.52.4", "4.53.0"]


def test_a_candidate_that_was_read_is_not_newer_than_the_atlas() -> None:
    atlas = read_atlas({}, {"verl": ("0.7.0", "0.8.0.dev0")})

    assert newer_releases(atlas, {"verl": "0.8.0.dev0"}) == {}
    assert newer_releases(atlas, {"verl": "0.8.0"}) == {"verl": "0.8.0"}


def test_a_rule_says_who_asks_who_lacks_it_and_where(atlas: Atlas) -> None:
    (rule,) = rules_here(atlas, {"peft": "0.18.0", "transformers": "4.52.4"})

    assert rule.id == "atlas:peft:transformers"
    assert rule.severity is Severity.ERROR
    assert rule.title == f"`import peft` fails: peft 0.18.0 needs {LAYERS}, which transformers 4.52.4 lacks"
    assert rule.why == f"{LAYERS}: in transformers from 4.53.0 on; asked for by peft 0.18.0"
    assert [source.url for source in rule.sources] == ["peft 0.18.0: peft/helpers.py:27"]
    assert [fix.set for fix in rule.fixes] == [
        (("pkg.transformers", "==4.53.0"),),
        (("pkg.peft", "==0.18.1"),),
        (("pkg.peft", "==0.17.1"),),
    ]


def test_an_entry_that_few_users_reach_is_a_warning(atlas: Atlas) -> None:
    (rule,) = rules_here(atlas, {"peft": "0.17.1", "accelerate": "0.30.0"})

    assert (rule.id, rule.severity) == ("atlas:peft:accelerate:get_peft_model", Severity.WARNING)
    assert "passes accelerate.dispatch_model(force_hooks=), unknown to accelerate 0.30.0" in rule.title


def test_what_a_trainer_calls_counts_where_that_trainer_is_used(atlas: Atlas) -> None:
    (rule,) = rules_here(atlas, {"peft": "0.17.1", "accelerate": "0.30.0"})
    versions = '[pkg]\npeft = "0.17.1"\naccelerate = "0.30.0"\n'

    def verdicts(train: str) -> tuple[int, int]:
        judged = judge.judge(inventory(versions + train), [rule])
        return len(judged.findings), len(judged.waiting)

    assert verdicts('[train]\ntrainer = "transformers"\n') == (1, 0)
    assert verdicts('[train]\ntrainer = "openrlhf"\n') == (0, 0)
    assert verdicts("") == (0, 1), "without a training it is a condition"


def test_what_fails_beside_a_third_package_counts_where_it_is_installed() -> None:
    row = '["name", "transformers.Unpad", "0.5.0", "4.56.0", "verl/actor.py:42"]'
    gaps = f'read = 2026-11-29\n["import verl.workers.actor beside torch-npu"]\ntransformers = [{row}]\n'
    releases = {"verl": ("0.5.0", "0.6.0"), "transformers": ("4.55.0", "4.56.0")}
    atlas = read_atlas({"gaps/verl.toml": gaps}, releases)
    pair = {"verl": "0.5.0", "transformers": "4.56.0"}

    assert list(rules_here(atlas, pair)) == []
    assert list(rules_of(atlas, pair)) == []
    (rule,) = rules_here(atlas, {**pair, "torch-npu": "2.7.1"})

    assert (rule.id, rule.severity) == ("atlas:verl:transformers:actor:torch-npu", Severity.WARNING)
    assert rule.title == (
        "`import verl.workers.actor` fails: verl 0.5.0 needs transformers.Unpad, which transformers 4.56.0 lacks"
    )
    assert [clause.key for clause in rule.when[0]] == ["pkg.verl", "pkg.transformers", "pkg.torch-npu"]
    (finding,) = judge.judge(
        inventory('[pkg]\nverl = "0.5.0"\ntransformers = "4.56.0"\ntorch-npu = "2.7.1"\n'), [rule]
    ).findings
    assert finding.verdict is Verdict.BROKEN


def test_a_method_that_does_not_take_a_call_is_said_from_both_sides() -> None:
    row = '["override", "transformers.Trainer.log(2 arguments)", "0.12.0", "4.47.0", "trl/sft.py:4"]'
    gaps = f'read = 2026-11-23\n["trl.SFTTrainer.train(...)"]\ntransformers = [{row}]\n'
    releases = {"trl": ("0.12.0", "0.13.0"), "transformers": ("4.46.0", "4.47.0")}
    (rule,) = rules_here(
        read_atlas({"gaps/trl.toml": gaps}, releases), {"trl": "0.12.0", "transformers": "4.47.0"}
    )

    call = "transformers.Trainer.log(2 arguments)"
    assert rule.id == "atlas:trl:transformers:SFTTrainer.train"
    assert rule.title == (
        f"`trl.SFTTrainer.train(...)` fails: trl 0.12.0 does not accept the call {call} of transformers 4.47.0"
    )
    assert rule.why == f"{call}: called in transformers 4.47.0; not accepted in trl 0.12.0"


def test_a_registration_that_is_refused_is_said_from_both_sides() -> None:
    row = """["register", "AutoConfig.register('bitnet')", "0.2.1", "4.52.0", "fla/bitnet.py:8"]"""
    gaps = f'read = 2026-11-28\n["import fla"]\ntransformers = [{row}]\n'
    releases = {"fla": ("0.2.1", "0.2.2"), "transformers": ("4.51.0", "4.52.0")}
    (rule,) = rules_here(
        read_atlas({"gaps/fla.toml": gaps}, releases), {"fla": "0.2.1", "transformers": "4.52.0"}
    )

    call = "AutoConfig.register('bitnet')"
    assert rule.title == (
        f"`import fla` fails: fla 0.2.1 makes the call {call}, which transformers 4.52.0 refuses"
    )
    assert rule.why == (
        f"{call}: refused by transformers 4.52.0, which has this name itself; called in fla 0.2.1"
    )
    assert [fix.set for fix in rule.fixes] == [
        (("pkg.transformers", "==4.51.0"),),
        (("pkg.fla", "==0.2.2"),),
    ]


def test_a_release_that_fits_no_row_excludes(atlas: Atlas) -> None:
    assert fitting_releases(atlas, "transformers", "peft", "0.18.0") == ["4.53.0"]
    assert fitting_releases(atlas, "peft", "transformers", "5.0.0") == ["0.18.1"]


def test_no_fix_names_a_withdrawn_release_and_each_minor_release_is_tried() -> None:
    row = '["name", "transformers.A", "0.17.1", "4.54.0", "peft/helpers.py:27"]'
    gaps = f'read = 2026-11-29\n["import peft"]\ntransformers = [{row}]\n'
    releases = {
        "peft": ("0.17.1", "0.18.0"),
        "transformers": ("4.51.0", "4.52.4", "4.53.0", "4.53.1", "4.54.0", "4.55.0", "4.55.1", "4.56.0"),
    }
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/peft.toml": gaps}, releases)

    def fixes(*withdrawn: str) -> list[str]:
        installed = {"peft": "0.17.1", "transformers": "4.54.0"}
        (rule,) = rules_here(atlas, installed, withdrawn=[("transformers", each) for each in withdrawn])
        return [str(value) for fix in rule.fixes for key, value in fix.set if key == "pkg.transformers"]

    assert fixes() == ["==4.55.0", "==4.56.0", "==4.53.1", "==4.52.4", "==4.51.0"]
    assert fixes("4.55.0", "4.53.1") == ["==4.55.1", "==4.56.0", "==4.53.0", "==4.52.4", "==4.51.0"]


def test_the_searches_get_all_releases_of_two_packages_as_one_rule(atlas: Atlas) -> None:
    rules = list(rules_of(atlas, ["peft", "transformers", "torch"]))

    assert [rule.id for rule in rules] == ["atlas:peft:transformers"]
    assert len(rules[0].when) == 2


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        (
            "_ZNK3c106SymInt6sym_neERKS0_",
            "the symbol c10::SymInt::sym_ne, which torch 2.9.0 does not define in this form",
        ),
        (
            "_ZN3c105ErrorC2ENS_14SourceLocationESs",
            "the symbol c10::Error::Error (old C++ ABI), which torch 2.9.0 does not define in this form",
        ),
        ("aoti_torch_new", "the symbol aoti_torch_new, which torch 2.9.0 does not define"),
    ],
)
def test_a_title_spells_a_symbol_as_in_source_code(symbol: str, said: str) -> None:
    gaps = f'["import peft"]\ntorch = [["symbol", "{symbol}", "0.17.1", "2.9.0", "peft/_C.so"]]\n'
    releases = {"peft": ("0.17.1",), "torch": ("2.8.0", "2.9.0")}
    atlas = read_atlas({"packages.toml": "", "gaps/peft.toml": f"read = 2026-11-22\n{gaps}"}, releases)

    (rule,) = rules_here(atlas, {"peft": "0.17.1", "torch": "2.9.0"})

    assert rule.title == f"`import peft` fails: peft 0.17.1 needs {said}"
    assert rule.why.startswith(f"{symbol}: in torch 2.8.0; ")
    assert rule.id == "atlas:peft:torch"


PYTHON_GAPS = """
["import peft"]
python = [
  ["name", "distutils.util.strtobool", "0.17.1..0.18.0", "3.12..3.14", "peft/model.py:3"],
  ["name", "inspect.getargspec", "0.17.1", "3.11..3.14", "peft/model.py:4"],
]
"""
PYTHONS = {**RELEASES, "python": ("3.10", "3.11", "3.12", "3.13", "3.14")}
PROVIDED = '[package.peft]\n[python.provided_by]\ndistutils = ["setuptools", "standard-distutils"]\n'


@pytest.mark.parametrize(
    ("peft", "python", "beside", "expected"),
    [
        ("0.18.0", "3.12.4", {}, ["distutils.util.strtobool"]),
        ("0.18.0", "3.14.0", {}, ["distutils.util.strtobool"]),
        ("0.18.0", "3.11.9", {}, []),
        ("0.18.0", "3.12.4", {"setuptools": "75.0"}, []),
        ("0.18.0", "3.12.4", {"standard-distutils": "3.11.9"}, []),
        ("0.17.1", "3.12.4", {"setuptools": "75.0"}, ["inspect.getargspec"]),
        ("0.17.1", "3.11.0", {}, ["inspect.getargspec"]),
        ("0.17.1", "3.9.18", {}, []),
        ("0.18.1", "3.14.2", {}, []),
    ],
)
def test_python_is_a_partner_by_its_minor_release(
    peft: str, python: str, beside: dict[str, str], expected: list[str]
) -> None:
    atlas = read_atlas({"packages.toml": PROVIDED, "gaps/peft.toml": PYTHON_GAPS}, PYTHONS)
    pins = {"peft": peft, **beside}
    here = inventory(
        "\n".join([f'python.version = "{python}"', *(f'pkg.{each} = "{pins[each]}"' for each in pins)])
    )
    rules = [*rules_here(atlas, {**pins, **python_release(here)})]

    broken = [each for each in judge.judge(here, rules).findings if each.verdict is Verdict.BROKEN]

    assert [rule.id for rule in rules] == ["atlas:peft:python"] * bool(expected)
    assert [each.rule.id for each in broken] == [rule.id for rule in rules]
    for rule, needs in zip(rules, expected, strict=True):
        title = f"`import peft` fails: peft {peft} needs {needs}, which Python {'.'.join(python.split('.')[:2])} lacks"
        assert rule.title == title
        assert next(key for fix in rule.fixes for key, _ in fix.set) == "pkg.peft"
        fixes = [value for fix in rule.fixes for key, value in fix.set if key == "python.version"]
        assert "==3.10" in fixes
        assert f"=={python[:4]}" not in fixes


@pytest.mark.parametrize(
    ("beside", "broken"),
    [
        ({}, True),
        ({"unsloth": "2025.11.5"}, True),
        ({"unsloth": "2025.11.6"}, False),
        ({"unsloth": "built from source"}, False),
        ({"swift": "1.0"}, False),
    ],
)
def test_a_name_that_a_third_package_puts_back_is_not_missing(
    beside: dict[str, str], *, broken: bool
) -> None:
    packages = '[package.peft]\n[put_back]\n"torch.uint1" = ["unsloth>=2025.11.6", "swift"]\n'
    gaps = '["import peft"]\ntorch = [["name", "torch.uint1", "0.18.0", "2.4.1", "peft/model.py:3"]]\n'
    releases = {"peft": ("0.18.0",), "torch": ("2.4.1", "2.6.0")}
    atlas = read_atlas({"packages.toml": packages, "gaps/peft.toml": gaps}, releases)
    frozen = freeze_atlas(atlas)
    for each in (atlas, thaw_atlas(frozen["index"], frozen.__getitem__)):
        rules = [*rules_here(each, {"peft": "0.18.0", "torch": "2.4.1", **beside})]
        assert bool(rules) is broken


def test_the_rules_of_a_search_are_about_the_python_that_is_here() -> None:
    atlas = read_atlas({"packages.toml": PROVIDED, "gaps/peft.toml": PYTHON_GAPS}, PYTHONS)
    (rule,) = rules_of(atlas, ["peft", "python"])
    here = inventory('python.version = "3.13.1"\npkg.peft = "0.18.0"')
    assert [each.verdict for each in judge.judge(here, [rule]).findings] == [Verdict.BROKEN]
    (left,) = rules_of(atlas, ["peft", "python", "setuptools"])
    assert [each.verdict for each in judge.judge(here, [left]).findings] == []


@pytest.mark.parametrize(
    ("package", "host", "compiled_for_another"),
    [
        ("xformers", 'host = { os = "linux", arch = "x86_64" }', True),
        ("xformers", "", True),  # x86_64 is assumed
        ("xformers", 'host = { os = "linux", arch = "aarch64" }', False),  # there is no such wheel
        ("torchvision", 'host = { os = "linux", arch = "aarch64" }', True),  # there is one
    ],
)
def test_what_has_wheels_for_other_processors_only_was_compiled_on_this_one(
    package: str, host: str, *, compiled_for_another: bool
) -> None:
    release = {"xformers": "0.0.28.post3", "torchvision": "0.20.1"}[package]
    here = inventory(f'{host}\npkg = {{ torch = "2.8.0", {package} = "{release}" }}')
    found = [each.id for each in atlas_rules(here, load_matrix(known_vocabulary()), worded=False)]
    assert any(each.startswith(f"atlas:{package}:torch") for each in found) is compiled_for_another
