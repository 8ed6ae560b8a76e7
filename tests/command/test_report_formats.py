"""The report formats as the command writes them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from envcheck.core.rules import Severity
from tests.support.paths import ROOT
from tests.support.running import envcheck
from tests.unit.reports.test_formats import ACTING, ARGUMENTS, CONFIG, FACTS, FORMATS, SGR, rich, sarif_schema


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "facts.toml").write_text(FACTS)
    (tmp_path / "ds.json").write_text(CONFIG)
    (tmp_path / "run.args").write_text(ARGUMENTS)
    return tmp_path


QUESTION = ("--facts", "facts.toml", "--train", "run.args", "--target", "zero3-lora")


def closed(schema: Any) -> Any:
    """Return a schema that admits only the keys it names, because what is printed must be published."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(each) for key, each in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


CASES = {
    "rich": QUESTION,
    "fixed": (*QUESTION, "--fix"),
    "facts alone": ("--facts", "facts.toml"),
    "this environment": ("--static",),
}


@pytest.mark.parametrize("case", CASES)
def test_json_has_only_what_the_published_schema_names(case: str, folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="NOT VALIDATED: no jsonschema")
    schema = json.loads((ROOT / "envcheck/schemas/report.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    printed = json.loads(envcheck("doctor", *CASES[case], "--format", "json", cwd=folder).out)
    validator = jsonschema.Draft202012Validator(closed(schema))
    assert [error.message for error in validator.iter_errors(printed)] == []
    assert schema["properties"]["schema_version"]["const"] == printed["schema_version"]


@pytest.mark.parametrize("case", CASES)
def test_sarif_is_valid(case: str, folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="NOT VALIDATED: no jsonschema")
    printed = json.loads(envcheck("doctor", *CASES[case], "--format", "sarif", cwd=folder).out)
    errors = jsonschema.Draft4Validator(sarif_schema()).iter_errors(printed)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []
    (run,) = printed["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["kind"] == "fail") == (result["level"] != "none")


def test_sarif_and_annotations_point_at_the_line_in_the_users_file(folder: Path) -> None:
    rule = "zero3-frozen-nonreentrant-checkpoint"
    log = json.loads(envcheck("doctor", *QUESTION, "--format", "sarif", cwd=folder).out)
    (result,) = [each for each in log["runs"][0]["results"] if each["ruleId"] == rule]
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "facts.toml"
    line = where["region"]["startLine"]
    findings = json.loads(envcheck("doctor", *QUESTION, "--json", cwd=folder).out)["findings"]
    (fixes,) = [each["fix"] for each in findings if each["rule"] == rule]
    changed = next(iter(fixes[0]["set"])).removeprefix("pkg.")
    assert FACTS.splitlines()[line - 1].startswith(f"{changed} = "), "the line that the first fix changes"
    annotations = envcheck("doctor", *QUESTION, "--format", "github", cwd=folder).out
    assert f"::error file=facts.toml,line={line},col=1,title=envcheck%3A {rule}::" in annotations


def test_a_finding_in_a_lock_points_at_the_pin(tmp_path: Path) -> None:
    lock = "torch==2.4.0\nnumpy==1.26.4\ndeepspeed==0.14.0\n"
    (tmp_path / "requirements.txt").write_text(lock)
    ran = envcheck("check", "requirements.txt", "--format", "sarif", cwd=tmp_path)
    results = json.loads(ran.out)["runs"][0]["results"]
    (where,) = [
        each["locations"][0]["physicalLocation"]
        for each in results
        if each["ruleId"] == "deepspeed-elastic-log-import-torch24"
    ]
    assert where["artifactLocation"]["uri"] == "requirements.txt"
    assert lock.splitlines()[where["region"]["startLine"] - 1] == "deepspeed==0.14.0"
    annotations = envcheck("check", "requirements.txt", "--format", "github", cwd=tmp_path).out
    assert "::error file=requirements.txt,line=3,col=1,title=" in annotations


def test_a_diagnostic_points_at_the_exact_columns(folder: Path) -> None:
    log = json.loads(envcheck("doctor", *QUESTION, "--format", "sarif", cwd=folder).out)
    (result,) = [each for each in log["runs"][0]["results"] if each["ruleId"] == "configuration/unknown-key"]
    where = result["locations"][0]["physicalLocation"]
    region = where["region"]
    line = (folder / where["artifactLocation"]["uri"]).read_text().splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == '"gradient_cliping"'
    (two,) = [each for each in log["runs"][0]["results"] if each.get("relatedLocations")]
    assert two["ruleId"] == "configuration/contradicts-arguments"
    assert two["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "run.args"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_diagnostic_underlines_the_exact_columns(form: str, folder: Path) -> None:
    out = unescape(envcheck("doctor", *QUESTION, "--format", form, cwd=folder).out)
    line, under = re.findall(r'5 \|   ("gradient_cliping").*\n *\|   (\^+)', out)[0]
    assert len(line) == len(under)


def test_a_finding_of_an_installed_package_points_at_its_metadata(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    for name, version, needs in (("torch", "2.6.0", ""), ("peft", "0.14.0", "Requires-Dist: torch>=99\n")):
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n"
        )
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.9\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/usr/bin/python3")
    ran = envcheck("doctor", "--static", "--python", str(tmp_path), "--format", "sarif")
    (result,) = [
        each
        for each in json.loads(ran.out)["runs"][0]["results"]
        if each["ruleId"] == "requires-dist:peft:torch"
    ]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uriBaseId"] == "ENVIRONMENT"
    assert (tmp_path / artifact["uri"]).is_file()


@pytest.mark.parametrize("case", CASES)
def test_junit_has_one_test_case_for_each_rule(case: str, folder: Path) -> None:
    xml = envcheck("doctor", *CASES[case], "--format", "junit", cwd=folder).out
    summary = json.loads(envcheck("doctor", *CASES[case], "--json", cwd=folder).out)["summary"]
    suite = ET.fromstring(xml)[0]  # noqa: S314 - our own
    cases = [each for each in suite.findall("testcase") if each.get("classname") != "envcheck.configuration"]
    skipped = [each for each in cases if each.find("skipped") is not None]
    assert len(cases) - len(skipped) == summary["rules_applied"]
    assert len(skipped) == summary["undecided"] + sum(summary["waiting"].values())
    assert len([each for each in cases if each.find("failure") is not None]) == summary["broken"]["error"]
    assert len({each.get("name") for each in cases}) == len(cases)


def test_junit_failures_are_what_makes_the_exit_code_1(folder: Path) -> None:
    def failures(*more: str) -> set[str]:
        xml = envcheck("gate", *QUESTION, "--manifest", "none", "--format", "junit", *more, cwd=folder).out
        return {
            str(each.get("name")).partition(": ")[0]
            for each in ET.fromstring(xml).iter("testcase")  # noqa: S314
            if each.find("failure") is not None
        }

    found = rich().judgement.findings
    errors = failures()
    assert "contradicts-arguments" in errors
    assert errors < failures("--fail-on", "warning") < failures("--fail-on", "warning", "--undecided", "fail")
    assert "deepspeed-distutils-python312" not in errors
    assert len(errors) == 1 + sum(each.severity is Severity.ERROR for each in found)


def test_junitparser_reads_the_file_and_confirms_its_counts(folder: Path) -> None:
    junitparser = pytest.importorskip("junitparser", reason="NOT READ BY OTHERS: no junitparser")
    envcheck("doctor", *QUESTION, "-o", "report.xml", cwd=folder)
    read = junitparser.JUnitXml.fromfile(str(folder / "report.xml"))
    totals = read.tests, read.failures, read.skipped
    for suite in read:
        suite.update_statistics()
    read.update_statistics()
    assert (read.tests, read.failures, read.skipped) == totals


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("r.json", "{"),
        ("r.md", "✗ **Will not train: "),
        ("r.HTML", "<!DOCTYPE html>"),
        ("r.sarif", '{\n  "$schema"'),
        ("r.sarif.json", '{\n  "$schema"'),
        ("r.xml", "<?xml"),
        ("r.txt", "Will not train: "),
        ("r.log", "Will not train: "),
        ("report", "Will not train: "),
    ],
)
def test_the_file_name_selects_the_format(name: str, starts: str, folder: Path) -> None:
    ran = envcheck("doctor", *QUESTION, "-o", name, cwd=folder)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"written to {name}\n"
    assert (folder / name).read_text().startswith(starts)


def test_format_option_overrides_the_file_name(folder: Path) -> None:
    for name in ("r.html", "r.yaml"):
        envcheck("doctor", *QUESTION, "--format", "markdown", "-o", name, cwd=folder)
        assert (folder / name).read_text().startswith("✗ **Will not train: ")


def test_an_unwritable_report_is_refused_before_the_work(folder: Path) -> None:
    ran = envcheck("gate", "--facts", "nowhere.toml", "-o", "r.yaml", cwd=folder)
    assert (
        ran.code,
        ran.err.startswith("envcheck: -o r.yaml: cannot infer the format from this file name"),
    ) == (2, True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--format", "markdwn"), "--format markdwn: no such format; did you mean 'markdown'?"),
        (("--format", "../text"), "no such format"),
        (("--format", "__init__"), "no such format"),
        (("--json", "--format", "html"), "--json: contradicts --format html"),
        (("-o", "no/such/folder/r.html"), "the folder of this file does not exist"),
        (
            ("-o", "r.yaml"),
            "-o r.yaml: cannot infer the format from this file name; use --format, or one of the suffixes .htm, .html,",
        ),
        (("-o", "r.json.bak"), "cannot infer the format from this file name"),
        (("--quiet", "--verbose"), "--quiet: contradicts --verbose"),
        (("-q", "--json"), "--quiet: contradicts --format json"),
        (("-o", "."), "expected a file, found a directory"),
        (("-o", "/dev/full"), "expected a file, found a device"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "gate"])
def test_a_wrong_option_is_reported_in_one_line(
    command: str, more: tuple[str, ...], said: str, folder: Path
) -> None:
    ran = envcheck(command, *QUESTION, *more, cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_step_summary_is_appended_to(folder: Path) -> None:
    summary = folder / "summary.md"
    summary.write_text("before\n")
    environ = {"GITHUB_STEP_SUMMARY": str(summary)}
    ran = envcheck("gate", *QUESTION, "--format", "github", cwd=folder, environ=environ)
    assert ran.code == 1
    text = summary.read_text()
    assert text.startswith("before\n✗ **gate shut: ")
    assert "<details open>" in text
    envcheck("gate", *QUESTION, "--format", "text", cwd=folder, environ=environ)
    assert summary.read_text() == text


def test_a_hostile_facts_file_is_rendered_safely_by_the_command(folder: Path) -> None:
    """Run the real command on a facts file whose name and contents are hostile."""
    evil = folder / "a\n::error::x\x1b[2J<img src=x onerror=alert(1)>[x](y).toml"
    evil.write_text(
        FACTS.replace("NVIDIA A100-SXM4-80GB", "<script>alert(1)</script>\\u001b[31m\\n::error::x")
    )
    for name in FORMATS:
        ran = envcheck("doctor", "--facts", str(evil), "--format", name)
        assert ran.code == 1, ran.err
        assert not ACTING.search(SGR.sub("", ran.out).replace("\n", ""))
        assert "\n::error::x" not in ran.out
        assert "<img" not in ran.out or name not in ("html", "markdown", "junit") or "`" in ran.out


def test_the_sources_of_rules_stay_readable(folder: Path) -> None:
    for name in FORMATS:
        out = envcheck("doctor", *QUESTION, "--verbose", "--format", name, cwd=folder).out
        assert "https://github.com/deepspeedai/DeepSpeed/pull/8148" in out or name == "github"


def test_the_command_prints_nothing_private(tmp_path: Path) -> None:
    home = tmp_path / "home/zoe.doe"
    work = home / "secret-project"
    work.mkdir(parents=True)
    (work / "facts.toml").write_text(FACTS)
    environ = {
        "HOME": str(home),
        "USER": "zoe.doe",
        "NCCL_DEBUG_FILE": f"{home}/nccl.log",
        "CUDA_CACHE_PATH": "/scratch/zoe.doe/cuda",
        "TORCH_HOME": "https://zoe:hunter2@corp.example/hub",
        "DS_NOTE": "WANDB_API_KEY=" + "0123456789abcdef" * 2 + "01234567",
        "NCCL_HOSTID": "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    }
    for name in FORMATS:
        judged = envcheck(
            "doctor", "--facts", str(work / "facts.toml"), "--format", name, environ=environ
        ).out
        probed = envcheck("doctor", "--static", "--format", name, environ=environ).out
        assert "secret-project/facts.toml" in judged.replace("\\", "") or name == "github"
        for private in ("zoe.doe", "hunter2", "corp.example", "0123456789abcdef01234567", "AbCdEfGhIjK"):
            assert private not in (judged + probed).replace("\\", ""), name


def test_facts_are_printed_without_secrets(tmp_path: Path) -> None:
    home = tmp_path / "home/zoe.doe"
    home.mkdir(parents=True)
    environ = {"HOME": str(home), "USER": "zoe.doe", "CUDA_CACHE_PATH": "/scratch/zoe.doe/cuda"}
    out = envcheck("facts", "--static", environ=environ).out
    assert "zoe.doe" not in out
    assert json.loads(out)["env"]["CUDA_CACHE_PATH"] == "/scratch/…/cuda"
