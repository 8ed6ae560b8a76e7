"""`envcheck matrix prove`: releases of an index are opened around the bounds of a rule, and what they hold is recorded."""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_index import LocalIndex, sdist, serving, wheel
from tests.support.paths import ROOT
from tests.support.running import Outcome, envcheck

RULE = """
[[rule]]
id = "peft-imports-gone"
severity = "error"
basis = "source"
title = "PEFT before 0.3 imports a name that is gone"
when = { "pkg.peft" = "WHEN" }
proof.reads = [{ pkg = "peft", file = "peft/__init__.py", has = 'import gone' }]
proof.around = "nobody was found"
sources = [{ url = "https://github.com/huggingface/peft/issues/1", kind = "issue", checked = 2026-11-20 }]
[[rule.fix]]
set = { "pkg.peft" = "FIX" }
"""
GONE = b"from transformers import gone\n"
LATE = {"0.1.0": GONE, "0.2.0": GONE, "0.3.0": b"pass\n", "0.4.0": b"pass\n"}
"""The name is imported up to 0.2.0."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    return tmp_path


def write(folder: Path, *, when: str = "<0.3.0", fix: str = ">=0.3.0", rule: str = RULE) -> None:
    """Write the one rule of a folder that is laid out like compat/."""
    (folder / "rules" / "peft.toml").write_text(rule.replace("WHEN", when).replace("FIX", fix))


def prove(folder: Path, *names: str, releases: dict[str, bytes] | None = None) -> Outcome:
    """Prove the rules of a folder by an index that has some releases of PEFT."""
    texts = LATE if releases is None else releases
    files = dict(wheel("peft", version, more={"peft/__init__.py": text}) for version, text in texts.items())
    with serving(LocalIndex(files, ranges=True)) as index:
        environ = {"PIP_INDEX_URL": index.url, "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": "/dev/null"}
        return envcheck("matrix", "prove", *names, "-o", str(folder), environ=environ)


def record(folder: Path) -> dict[tuple[str, str], Any]:
    """Return what the record of the rule says of each release and side."""
    rows = tomllib.loads((folder / "proofs" / "peft.toml").read_text())["proof"]
    assert [row["rule"] for row in rows] == ["peft-imports-gone"]
    return {(seen["release"], seen["side"]): seen["agrees"] for seen in rows[0]["opened"]}


def test_a_rule_that_holds_is_recorded_with_both_sides_of_its_bound_and_its_fix(folder: Path) -> None:
    write(folder)
    ran = prove(folder)
    assert (ran.code, ran.out) == (0, "1 rule proven, 0 contradicted\n")
    seen = record(folder)
    assert seen["peft 0.2.0", "inside"]
    assert seen["peft 0.3.0", "outside"]
    assert {name for name, side in seen if side == "fix 1"} == {"peft 0.3.0", "peft 0.4.0"}
    assert all(seen.values())


@pytest.mark.parametrize(
    ("when", "fix", "told"),
    [
        ("<0.2.0", ">=0.3.0", "peft 0.2.0 (outside) contradicts the rule: from transformers import gone"),
        ("<0.4.0", ">=0.4.0", "peft 0.3.0 (inside) contradicts the rule: no import gone"),
        ("==0.1.0", "==0.2.0", "peft 0.2.0 (fix 1) contradicts the rule: from transformers import gone"),
    ],
)
def test_a_wrong_bound_or_fix_is_told_with_the_release_and_ends_with_1(
    folder: Path, when: str, fix: str, told: str
) -> None:
    write(folder, when=when, fix=fix)
    ran = prove(folder)
    assert (ran.code, ran.out) == (1, "1 rule proven, 1 contradicted\n")
    assert told in ran.err
    assert not all(record(folder).values())


TABLE = """
[[release]]
package = "peft"
version = "0.3.0"
released = 2023-05-10
source = "here"
"""


@pytest.mark.parametrize("flags", [(), ("--older",)])
def test_a_bound_below_the_tables_is_opened_on_both_sides(folder: Path, flags: tuple[str, ...]) -> None:
    (folder / "tables").mkdir()
    (folder / "tables" / "releases.toml").write_text(TABLE)
    write(folder, when=">=0.2.0,<0.4.0", fix=">=0.4.0")
    releases = {"0.1.0": b"pass\n", "0.2.0": GONE, "0.3.0": GONE, "0.4.0": b"pass\n"}
    assert prove(folder, *flags, releases=releases).out == "1 rule proven, 0 contradicted\n"
    assert record(folder).keys() >= {("peft 0.1.0", "outside"), ("peft 0.2.0", "inside")}


def test_an_open_lower_bound_is_followed_below_the_tables_if_asked(folder: Path) -> None:
    (folder / "tables").mkdir()
    (folder / "tables" / "releases.toml").write_text(TABLE)
    write(folder, when="<0.4.0", fix=">=0.4.0")
    releases = {"0.0.9": GONE, "0.1.0": b"pass\n", "0.2.0": GONE, "0.3.0": GONE, "0.4.0": b"pass\n"}
    assert prove(folder, releases=releases).code == 0
    assert {name for name, _ in record(folder)} == {"peft 0.3.0", "peft 0.4.0"}
    ran = prove(folder, "peft", "--older", releases=releases)
    assert (ran.code, ran.out) == (1, "1 rule proven, 1 contradicted\n")
    assert "peft 0.1.0 (inside) contradicts the rule: no import gone" in ran.err
    seen = record(folder)
    assert seen["peft 0.2.0", "inside"]
    assert not seen["peft 0.1.0", "inside"]
    assert "peft 0.0.9" not in {name for name, _ in seen}


RUNS = """proof.runs = [
  { pkg = "peft", beside = ["other"], fails = "cannot import name 'gone'", program = "import peft, other" },
]"""


def run_program(folder: Path, files: dict[str, bytes], runs: str = RUNS) -> tuple[Outcome, dict[str, str]]:
    """Prove the rule by a program beside an index; return what was seen by release and side."""
    reads = next(line for line in RULE.splitlines() if line.startswith("proof.reads"))
    write(folder, rule=RULE.replace(reads, runs), when="<0.3.0", fix=">=0.3.0")
    with serving(LocalIndex(files, ranges=True)) as index:
        environ = {"PIP_INDEX_URL": index.url, "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": "/dev/null"}
        told = envcheck("matrix", "prove", "-o", str(folder), "--python", sys.executable, environ=environ)
    rows = tomllib.loads((folder / "proofs" / "peft.toml").read_text())["proof"][0]["opened"]
    return told, {f"{row['release']} {row['side']}": row["seen"] for row in rows}


def published(
    name: str, *versions: str, text: bytes = b"", requires: tuple[str, ...] = ()
) -> dict[str, bytes]:
    """Return wheels of a package with one module."""
    return dict(wheel(name, each, requires, more={f"{name}/__init__.py": text}) for each in versions)


BROKEN = published("peft", "0.1.0", "0.2.0", text=b"from sys import gone\n")
MENDED = published("peft", "0.3.0", "0.4.0")


def test_a_program_is_run_in_the_releases_around_a_bound_and_with_the_fix(folder: Path) -> None:
    told, seen = run_program(folder, {**BROKEN, **MENDED, **published("other", "1.0", "2.0")})
    assert (told.code, told.out.splitlines()[-1]) == (0, "1 rule proven, 0 contradicted"), told.err
    gone = "ImportError: cannot import name 'gone' from 'sys' (unknown location); beside other 2.0"
    assert seen == {
        "peft 0.1.0 inside": gone,
        "peft 0.2.0 inside": gone,
        "peft 0.3.0 outside": "works; beside other 2.0",
        "peft 0.3.0 fix 1 run": "works; beside other 2.0",
        "peft 0.4.0 fix 1 run": "works; beside other 2.0",
    }


def test_what_a_fix_breaks_in_another_package_is_found_by_its_program(folder: Path) -> None:
    told, seen = run_program(
        folder, {**BROKEN, **MENDED, **published("other", "2.0", text=b"import peft\nassert peft.old\n")}
    )
    assert told.code == 1
    assert "peft 0.4.0 (fix 1 run) contradicts the rule: fails otherwise: AttributeError" in told.err
    assert seen["peft 0.2.0 inside"].startswith("ImportError: cannot import name 'gone'")


def test_releases_that_refuse_each_other_are_run_together_only_if_the_proof_says_so(folder: Path) -> None:
    files = {**BROKEN, **MENDED, **published("other", "2.0", requires=("peft>=0.3",))}
    told, seen = run_program(folder, files, RUNS.replace("fails", "regardless = true, fails"))
    assert told.code == 0, told.out + told.err
    assert seen["peft 0.1.0 inside"].endswith("; beside other 2.0")


def test_a_release_that_cannot_be_built_is_no_proof(folder: Path) -> None:
    name, data = sdist("peft", "0.2.0")
    told, seen = run_program(
        folder,
        {**published("peft", "0.1.0", text=b"from sys import gone\n"), name: data, **MENDED}
        | published("other", "1.0"),
    )
    assert told.code == 1
    assert seen["peft 0.2.0 inside"] == "not built: peft==0.2.0; beside nothing else"


def test_a_program_needs_an_interpreter(folder: Path) -> None:
    reads = next(line for line in RULE.splitlines() if line.startswith("proof.reads"))
    write(folder, rule=RULE.replace(reads, RUNS))
    outcome = prove(folder)
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert "--python: expected an interpreter with torch" in outcome.err


def test_only_what_has_no_current_record_is_proven_unless_it_is_named(folder: Path) -> None:
    write(folder)
    prove(folder)
    assert prove(folder).out == "0 rules proven, 0 contradicted\n"
    assert prove(folder, "peft-imports-gone").out == "1 rule proven, 0 contradicted\n"
    assert prove(folder, "peft").out == "1 rule proven, 0 contradicted\n"
    write(folder, when="<0.2.0")
    assert prove(folder).code == 1


def test_an_unknown_rule_is_refused_in_one_line(folder: Path) -> None:
    write(folder)
    ran = prove(folder, "peft-import-gone")
    assert (ran.code, ran.out) == (2, "")
    assert "no rule 'peft-import-gone'" in ran.err
    assert "peft-imports-gone" in ran.err
    assert not (folder / "proofs").exists()


def test_a_check_that_cannot_be_read_is_refused_with_its_rule(folder: Path) -> None:
    write(folder, rule=RULE.replace("'import gone'", "'import (gone'"))
    ran = prove(folder)
    assert ran.code == 2
    assert "peft-imports-gone" in ran.err
    assert "Traceback" not in ran.err


def test_an_index_that_lacks_the_package_ends_with_3(folder: Path) -> None:
    write(folder)
    ran = prove(folder, releases={})
    assert ran.code == 3
    assert "peft-imports-gone" in ran.err
    assert not (folder / "proofs").exists()


def store(tmp_path: Path, releases: dict[str, dict[str, str]], package: str = "peft") -> Path:
    """Write a store as `matrix harvest` fills it; return its folder."""
    folder = tmp_path / "store"
    (folder / package).mkdir(parents=True)
    for version, texts in releases.items():
        row = {"package": package, "version": version, "yanked": False, "requires": [], "wheels": []}
        with zipfile.ZipFile(folder / package / f"{version}.zip", "w") as archive:
            archive.writestr("release.json", json.dumps(row))
            archive.writestr(f"{package}-{version}.dist-info/METADATA", f"Name: {package}\n")
            for name, text in texts.items():
                archive.writestr(name, text)
    return folder


def sweep(folder: Path, releases: dict[str, dict[str, str]]) -> Outcome:
    """Compare the rule of a folder with every release of a store; there is no index."""
    environ = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    where = str(store(folder, releases))
    return envcheck("matrix", "prove", "--sweep", "--store", where, "-o", str(folder), environ=environ)


TOP = {"peft/__init__.py": GONE.decode()}
CLEAN = {"peft/__init__.py": "pass\n"}


def test_a_sweep_of_a_rule_that_fits_every_release_is_silent(folder: Path) -> None:
    write(folder)
    ran = sweep(folder, {"0.1.0": TOP, "0.2.0": TOP, "0.3.0": CLEAN, "0.4.0": CLEAN})
    assert (ran.code, ran.out, ran.err) == (0, "1 rule swept, 0 contradicted\n", "")
    assert not (folder / "proofs").exists()


def test_a_sweep_tells_holes_and_releases_far_from_the_bound(folder: Path) -> None:
    write(folder)
    releases = {"0.1.0": TOP, "0.1.1": CLEAN, "0.2.0": TOP, "0.3.0": CLEAN, "0.4.0": TOP, "0.5.0": TOP}
    ran = sweep(folder, releases)
    assert (ran.code, ran.out) == (1, "1 rule swept, 1 contradicted\n")
    assert "too wide: not found in 0.1.1: no import gone" in ran.err
    assert "too narrow: found in 0.4.0 to 0.5.0: from transformers import gone" in ran.err


def test_a_sweep_leaves_out_what_the_proof_excuses(folder: Path) -> None:
    excused = RULE.replace("proof.around", 'proof.except = { "peft 0.4.0" = "never imported" }\nproof.around')
    write(folder, rule=excused)
    ran = sweep(folder, {"0.2.0": TOP, "0.3.0": CLEAN, "0.4.0": TOP})
    assert (ran.code, ran.err) == (0, "")


def test_a_sweep_finds_the_message_in_another_file_of_a_release_outside_the_bound(folder: Path) -> None:
    check = "def check(x):\n    if x is old_name:\n        raise ValueError(f'{x} cannot be used with this base model')\n"
    moved = {"peft/__init__.py": "pass\n", "peft/checks.py": check.replace("old_name", "new_name")}
    write(folder, rule=RULE.replace("import gone", "x is old_name"))
    ran = sweep(
        folder, {"0.1.0": {"peft/__init__.py": check}, "0.3.0": CLEAN, "0.4.0": moved, "0.5.0": CLEAN}
    )
    assert ran.out == "1 rule swept, 0 contradicted\n"
    assert "outside, elsewhere: 'cannot be used with this base model' in 0.4.0: peft/checks.py" in ran.err


def test_a_sweep_names_further_files_of_releases_inside_the_bounds(folder: Path) -> None:
    check = "def check(x):\n    if x is old_name_of_it:\n        pass\n"
    both = {"peft/__init__.py": check, "peft/other.py": check}
    write(folder, rule=RULE.replace("import gone", "if x is old_name_of_it"))
    ran = sweep(folder, {"0.1.0": both, "0.2.0": {"peft/__init__.py": check}, "0.3.0": CLEAN})
    assert ran.out == "1 rule swept, 0 contradicted\n"
    assert "inside, also: 'if x is old_name_of_it' in 0.1.0: peft/other.py" in ran.err


CASE = """
[[case]]
id = "peft-old"
expect = "broken"
rule = "peft-imports-gone"
title = "An old PEFT"
signature = ['cannot be used with this base model \\w+']
sources = [{ url = "https://github.com/huggingface/peft/issues/1", kind = "issue", checked = 2026-11-20 }]
[case.facts]
complete = ["pkg"]
pkg = { peft = "0.1.0" }
"""


def test_a_sweep_searches_the_text_of_the_log_where_nothing_is_read(folder: Path) -> None:
    unread = RULE.replace(
        'proof.reads = [{ pkg = "peft", file = "peft/__init__.py", has = \'import gone\' }]\n', ""
    )
    (folder / "cases").mkdir()
    (folder / "cases" / "peft.toml").write_text(CASE)
    write(folder, rule=unread.replace("proof.around", "proof.none").replace("WHEN", "<0.3.0"))
    says = {"peft/a.py": "def f(x):\n    print(f'cannot be used with this base model {x}')\n"}
    ran = sweep(folder, {"0.1.0": says, "0.2.0": CLEAN, "0.3.0": says, "0.4.0": CLEAN})
    assert ran.out == "1 rule swept, 0 contradicted\n"
    assert "outside, elsewhere: 'cannot be used with this base model' in 0.3.0: peft/a.py" in ran.err


def test_a_sweep_needs_a_store(folder: Path) -> None:
    write(folder)
    ran = envcheck("matrix", "prove", "--sweep", "-o", str(folder), environ={"PYTHONPATH": str(ROOT)})
    assert ran.code == 2
    assert "--sweep: expected --store" in ran.err


VERA = "if self.is_old(model):\n    raise ValueError('this base cannot be adapted')\n"


def search_siblings(folder: Path, releases: dict[str, dict[str, str]], adapters: str) -> Outcome:
    """Search a store for the line of a rule that names adapters."""
    rule = RULE.replace("import gone", "cannot be adapted").replace(
        "peft/__init__.py", "peft/tuners/vera/model.py"
    )
    rule = rule.replace('"pkg.peft" =', f'"train.adapter" = {adapters}, "pkg.peft" =')
    assert "train.adapter" in rule
    write(folder, rule=rule)
    where = str(store(folder, releases))
    environ = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    return envcheck("matrix", "prove", "--siblings", "--store", where, "-o", str(folder), environ=environ)


BESIDE = {"peft/tuners/vera/model.py": VERA, "peft/tuners/oft/model.py": VERA}
"""A release in which a second adapter has the line."""


def test_siblings_are_told_with_their_releases_and_the_condition_around_the_line(folder: Path) -> None:
    ran = search_siblings(folder, {"0.1.0": BESIDE, "0.2.0": BESIDE, "0.3.0": BESIDE}, '["vera"]')
    assert ran.code == 0
    assert "not named: train.adapter oft, 0.1.0 to 0.2.0: peft/tuners/oft/model.py" in ran.err
    assert "peft/tuners/vera/model.py: where self.is_old(model)" in ran.err
    assert ran.out == "1 rule searched, 1 with a line in files for values that they do not name\n"


def test_siblings_that_the_rule_names_are_not_told(folder: Path) -> None:
    ran = search_siblings(folder, {"0.1.0": BESIDE, "0.3.0": CLEAN}, '["vera", "oft"]')
    assert "not named" not in ran.err
    assert ran.out == "1 rule searched, 0 with a line in files for values that they do not name\n"
