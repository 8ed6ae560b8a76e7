"""The house rules: types, lint, floors, and that every room can be entered alone."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TRACKED = [
    path
    for path in ROOT.rglob("*")
    if path.is_file()
    and not {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist"}
    & set(path.relative_to(ROOT).parts)
    and not any(part.startswith(".") and part.endswith("_cache") for part in path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports", "--no-logo"),
    ],
    ids=" ".join,
)
def test_house_rule(command: tuple[str, ...]) -> None:
    program = Path(sys.executable).parent / command[0]
    if not program.is_file():
        pytest.skip(f"{command[0]} is not installed beside this Python; the extra [test] brings it")
    ran = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


SOURCES = sorted((ROOT / "envcheck").rglob("*.py"))
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES
    if path.stem != "__main__" and "target_scripts" not in path.parts  # the target's interpreter runs those
]


_IMPORT_EACH = """
import importlib, json, os, sys, traceback
import packaging.requirements, rich.console, typer  # nearly every module imports them, which takes most of the time

for module in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    failed = ""
    try:
        importlib.import_module(module)
    except BaseException:
        failed = traceback.format_exc()
    print(json.dumps([module, failed]), flush=True)
    os._exit(0)
"""


def imported_alone(modules: Sequence[str], folder: Path = ROOT) -> dict[str, str]:
    """Import each module in a process of its own that has no other one of envcheck; return what was raised."""
    ran = subprocess.run(
        [sys.executable, "-c", _IMPORT_EACH, *modules],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        cwd=folder,
    )
    return dict(json.loads(line) for line in ran.stdout.splitlines())


@pytest.fixture(scope="module")
def raised_at_import() -> dict[str, str]:
    return imported_alone(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported_alone(module: str, raised_at_import: dict[str, str]) -> None:
    assert raised_at_import[module] == ""


def test_a_module_that_needs_another_to_be_imported_first_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import two\nA = 1\n")
    (tmp_path / "two.py").write_text("from one import A\n")
    raised = imported_alone(["two", "one", "json"], tmp_path)
    assert [raised["two"], raised["json"]] == ["", ""]
    assert "cannot import name 'A'" in raised["one"]


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("rules/planted.py", "import subprocess", "pure packages do not touch the machine"),
        (
            "knowledge/planted.py",
            "from envcheck.host import machine",
            "pure packages do not touch the machine",
        ),
        ("core/planted.py", "from envcheck.rules import judge", "floors: imports go down only"),
        ("memory/planted.py", "from envcheck.fleet import report", "floors: imports go down only"),
        ("planted.py", "x = 1", "floors: imports go down only"),
    ],
)
def test_a_new_module_falls_under_the_import_contracts(
    tmp_path: Path, file: str, line: str, broken: str
) -> None:
    """No contract names a module, so one that is added is held to them: a planted violation is found."""
    shutil.copytree(ROOT / "envcheck", tmp_path / "envcheck", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    clean = _lint_imports(tmp_path)
    assert clean.returncode == 0, clean.stdout
    (tmp_path / "envcheck" / file).write_text(f"{line}\n")
    planted = _lint_imports(tmp_path)
    assert planted.returncode != 0
    assert broken in " ".join(planted.stdout.split())
    assert "planted" in planted.stdout


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    if not program.is_file():
        pytest.skip("lint-imports is not installed beside this Python; the extra [test] brings it")
    return subprocess.run(
        [program, "--no-logo", "--no-cache"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},  # noqa: TID251 - tests are users
    )


@pytest.mark.parametrize("package", sorted(path.parent for path in SOURCES if path.name == "__init__.py"))
def test_every_package_says_what_it_holds(package: Path) -> None:
    source = (package / "__init__.py").read_text()
    assert ast.get_docstring(ast.parse(source)), package


def test_class_names_are_unique() -> None:
    """A class can be named in a sentence without its module."""
    owners: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    # The public result of `envcheck.doctor` wraps the report that formats render; both are called so.
    owners.pop("Report")
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}


def test_modules_with_named_tuples_of_ours_postpone_their_annotations() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "envcheck").rglob("*.py")}
    using = [path for path, text in texts.items() if "from envcheck.core.records import" in text]

    assert using
    assert [path for path in using if "from __future__ import annotations" not in texts[path]] == []


def test_scripts_run_by_the_target_need_no_third_party_and_no_envcheck() -> None:
    for path in [*(ROOT / "envcheck/target_scripts").glob("*.py")]:
        imported = set(re.findall(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", path.read_text(), re.MULTILINE))
        assert imported <= set(sys.stdlib_module_names), path


def test_nothing_names_a_registry_host_or_a_local_build() -> None:
    # Spelt backwards, so that this file does not name them either.
    hosts = [name[::-1] for name in ("detsohnohtyp", "gro.ipyp", "sjmpn.yrtsiger")]
    for path in TRACKED:
        if path.suffix in (".toml", ".md", ".py", ".txt", ".yml", ".yaml", ""):
            text = path.read_text(errors="replace")
            assert not any(host in text for host in hosts), path
            if "lockfiles" in path.parts:
                assert not re.search(r"==[^ ]*\+", text), path


def test_no_file_names_the_home_of_who_wrote_it() -> None:
    home = "/" + "root/"  # where things are made; in an example it is somebody's
    for path in TRACKED:
        if path.is_file() and path.suffix != ".png":
            assert home not in path.read_text(errors="replace"), path


# Files whose parsers read what envcheck itself wrote or ships, or check the text themselves.
UNBOUNDED_PARSERS = {
    "envcheck/api.py": "its own report",
    "envcheck/commands/atlas_tables.py": "shipped tables",
    "envcheck/commands/explain/library_answers.py": "shipped names",
    "envcheck/commands/fit/__init__.py": "shipped tables",
    "envcheck/commands/fleet/judging.py": "shipped tables",
    "envcheck/commands/gate_runtime.py": "may import the standard library only; 4 MiB of JSON at most",
    "envcheck/commands/harvest/store.py": "descriptions that it wrote",
    "envcheck/commands/loading.py": "the compiled matrix",
    "envcheck/commands/training_files.py": "shipped dialects",
    "envcheck/commands/user_settings.py": "shipped translations",
    "envcheck/core/parsing.py": "the door",
    "envcheck/dependency_files/conda.py": "after check_yaml",
    "envcheck/fleet/records.py": "after check_json",
    "envcheck/host/package_files.py": "shipped digests",
    "envcheck/knowledge/atlas.py": "shipped tables",
    "envcheck/knowledge/compiled.py": "what it just wrote",
    "envcheck/knowledge/hub_models.py": "shipped tables",
    "envcheck/target_scripts/c10d.py": "runs in the target's interpreter",
    "envcheck/training_config/readers/json_text.py": "single tokens of its own parser",
    "envcheck/training_config/readers/yaml_text.py": "events, which it counts",
}


def test_text_from_outside_is_parsed_through_the_bounded_door() -> None:
    parsers = {
        "json": {"load", "loads"},
        "tomllib": {"load", "loads"},
        "yaml": {"safe_load", "load", "compose", "parse"},
    }
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(call := node.func, ast.Attribute)
        and isinstance(call.value, ast.Name)
        and call.attr in parsers.get(call.value.id, ())
    }
    found -= {name for name in found if name.startswith("envcheck/target_scripts/selftests/")}
    assert found == set(UNBOUNDED_PARSERS)


def test_no_function_is_longer_than_80_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 80
    ]
    assert long == []
