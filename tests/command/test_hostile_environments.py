"""A file of an environment that cannot be read is a finding about one distribution; the rest is judged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envcheck.core.errors import ExamineError
from envcheck.probes import layout
from tests.command.test_hostile_input import harmless
from tests.support.environments import env, install, pristine, put, read, site_of
from tests.support.running import measured

__all__ = ["env", "pristine"]

HEAD = "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
DIGITS = "9" * 5000
HOSTILE = {
    "parentheses": "(" * 5000,
    "closed": "(" * 2000 + "python_version>'3'" + ")" * 2000,
    "digits": f"python_version >= '{DIGITS}'",
    "not": "not " * 5000,
    "and": "python_version>'3' and (" * 5000,
    "quotes": "'\"" * 5000,
    "surrogates": "\udcff\udcfe",
}


def with_failure(env: Path) -> Path:
    """Install two packages of which one needs another release of the other, which any report must say."""
    site = site_of(env)
    install(site, "torch", "2.6.0")
    install(site, "asks", "1.0", "torch>=2.7")
    return site


def metadata(requires: str) -> bytes:
    return f"{HEAD}Requires-Dist: torch; {requires}\nRequires-Dist: numpy>=1\n".encode("utf-8", "replace")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_marker_that_cannot_be_read_is_one_finding(name: str, env: Path) -> None:
    put(with_failure(env), "evil-1.0.dist-info/METADATA", metadata(HOSTILE[name]))
    outcome = measured("gate", "--static", "--python", str(env), "--json", cwd=env, environ={"container": ""})
    harmless(outcome)
    assert outcome.code in (0, 1)
    findings = {each["rule"]: each for each in json.loads(outcome.out)["findings"]}
    assert findings["metadata:evil"]["severity"] == "warning"
    assert "the metadata of evil cannot be read: it requires " in findings["metadata:evil"]["title"]
    assert "requires-dist:evil:numpy" in findings  # the line that can be read still counts


def test_a_long_marker_is_not_repeated_for_each_requirement_below_it(env: Path) -> None:
    site = with_failure(env)
    put(site, "evil-1.0.egg-info/PKG-INFO", HEAD)
    section = f"[:{'python_version_' * 10_000}]\n" + "torch\n" * 3000
    put(site, "evil-1.0.egg-info/requires.txt", f"numpy>=1\n\n{section}")
    outcome = measured("gate", "--static", "--python", str(env), "--json", cwd=env, environ={"container": ""})
    harmless(outcome)
    findings = {each["rule"]: each for each in json.loads(outcome.out)["findings"]}
    assert findings["metadata:evil"]["severity"] == "warning"  # it does not become fine by being cut
    assert "requires-dist:evil:numpy" in findings


FILES = {
    "evil-1.0.dist-info/METADATA": [
        b"",
        b"\0" * 100_000,
        b"\xff\xfe" * 5000,
        b"Name: evil\nVersion: " + b"1" * 5000 + b"\n",
        b"Name: evil\nVersion: 1." + b"9" * 190 + b"\n",
        HEAD.encode() + b"Requires-Dist: a\n" * 100_000,
        HEAD.encode() + b"Requires-Dist: torch " + b">=1," * 400_000,
        HEAD.encode() + b"Requires-Dist: torch>=" + b"9" * 1_500_000,
        HEAD.encode() + b"Requires-Dist: torch[" + b"a," * 400_000,
        HEAD.encode() + b"X: " + b" \n" * 900_000,
        HEAD.encode() + b"Requires-Dist:" + b"\n " * 900_000,
    ],
    "evil-1.0.dist-info/RECORD": [
        b"\0" * 1000,
        b"," * 2_000_000,
        b"a.so,\n" * 300_000,
        b"\xff.so,,\n" * 1000,
    ],
    "evil-1.0.dist-info/direct_url.json": [
        b'{"editable":true' + b"[" * 10_000,
        b'{"dir_info":{"editable":true},"url":"file://[::1"}',
        b'{"dir_info":{"editable":true},"url":{}}',
        b'{"dir_info":{"editable":true},"url":"file:///%00%ff"}',
    ],
    "evil-1.0.dist-info/INSTALLER": [b"\0" * 1_000_000, b"\xff\n" * 1000],
    "torch/version.py": [
        b"__version__ = " + b"(" * 100_000,
        b"__version__ = '" + b"9" * 1_000_000 + b"'",
        b"cuda = " + b"[" * 3000 + b"]" * 3000,
        b"\0" * 1000,
        b"cuda: Optional[str] = '" + b"9" * 5000 + b".1'\n__version__ = '2.6.0+cu" + b"9" * 5000 + b"'",
    ],
    "evil.pth": [b"\0" * 5000, b"/\n" * 300_000, b"import " + b"x" * 1_000_000, b"\xff" * 5000, b"a\0b\n"],
    "__editable__.evil-1.0.pth": [b"\xff\xff", b"x" * 1_000_000],
    "evil.egg-link": [b"/" + b"a" * 20_000, b"/\0", b"\xff"],
    "evil-1.0.egg-info/requires.txt": [b"[" * 100_000, b"torch;" + b"(" * 5000],
    "../../../pyvenv.cfg": [
        b"version = " + b"9" * 5000,
        b"\0",
        b"home = /\0\n",
        b"home = " + b"/a" * 5000,
        b"=\n" * 9,
    ],
    "../../../conda-meta/pytorch-2.6.0-py3.11_cuda.json": [b"[" * 100_000, b"\xff", b'"site-packages/'],
    "../../../conda-meta/evil-9-9.json": [b"{" * 100_000],
}


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_of_an_environment_do_not_keep_the_rest_from_being_judged(name: str, env: Path) -> None:
    site = with_failure(env)
    install(site, "linked", "1.0")
    put(site, "linked.pth", "/nowhere\n")
    for content in FILES[name]:
        if name.endswith("requires.txt"):
            put(site, "evil-1.0.egg-info/PKG-INFO", "Name: evil\nVersion: 1.0\n")
        elif name.startswith("evil-") and not name.endswith("METADATA"):
            put(site, "evil-1.0.dist-info/METADATA", HEAD)
        put(site, name, content)
        outcome = measured("doctor", "--static", "--python", str(env), "--json", cwd=env)
        harmless(outcome)
        if name.endswith("pyvenv.cfg") and outcome.code in (2, 3):
            assert outcome.err.count("\n") == 1  # what it says of the Python cannot be true
            continue
        assert outcome.code in (0, 1), (content[:60], outcome.err)
        rules = {each["rule"] for each in json.loads(outcome.out)["findings"]}
        assert "requires-dist:asks:torch" in rules, (content[:60], rules)


@pytest.mark.parametrize("name", ["METADATA", "RECORD", "direct_url.json"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "unreadable"])
def test_a_record_s_file_may_be_no_file(kind: str, name: str, env: Path) -> None:
    site = with_failure(env)
    place = put(site, "evil-1.0.dist-info/METADATA", HEAD).with_name(name)
    place.unlink(missing_ok=True)
    match kind:
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "loop":
            place.symlink_to(place.name)
        case _:
            place.touch(mode=0)
    outcome = measured("doctor", "--static", "--python", str(env), "--json", cwd=env)
    harmless(outcome)
    assert outcome.code in (0, 1)
    rules = {each["rule"] for each in json.loads(outcome.out)["findings"]}
    assert ("metadata:evil" in rules) is (name == "METADATA")


def test_verifying_files_survives_hostile_records(env: Path) -> None:
    site = with_failure(env)
    for content in FILES["evil-1.0.dist-info/RECORD"]:
        put(site, "evil-1.0.dist-info/METADATA", HEAD)
        put(site, "evil-1.0.dist-info/RECORD", content)
        outcome = measured(
            *("gate", "--static", "--verify-files", "--python", str(env), "--manifest", "none"), cwd=env
        )
        harmless(outcome)


# --- an environment that nobody named ------------------------------------------------------------------

SETTING = {"doctor": [], "gate": ["--manifest", "none"], "facts": [], "explain": ["a.log"]}
SETTING |= {"fit": ["--model", "params=7e9"], "pin": ["--target", "zero3-lora", "--offline"]}


@pytest.fixture
def found(env: Path) -> Path:
    """Return a folder with a .venv whose start-up files leave a trace."""
    folder = env.parent / "project"
    folder.mkdir()
    env.rename(folder / ".venv")
    site = with_failure(folder / ".venv")
    put(site, "evil.pth", f"import pathlib; pathlib.Path({str(folder / 'ran')!r}).touch()\n")
    put(site, "sitecustomize.py", f"import pathlib; pathlib.Path({str(folder / 'ran')!r}).touch()\n")
    (folder / "a.log").write_text("RuntimeError: CUDA error\n")
    return folder


@pytest.mark.parametrize("command", [*SETTING, "selftest"])
def test_an_environment_that_was_found_is_not_run(command: str, found: Path) -> None:
    outcome = measured(command, *SETTING.get(command, []), cwd=found)
    assert not (found / "ran").exists()
    assert "internal error" not in outcome.err
    if command == "selftest":
        assert (outcome.code, outcome.err) == (
            2,
            "envcheck: .venv: not run, because you did not name it; use --python .venv\n",
        )
    if command in ("doctor", "gate"):
        judged = [line for line in outcome.out.splitlines() if line.startswith("judged")]
        assert len(judged) == 1
        assert judged[0].startswith("judged  .venv (in this folder, read and not run)  envcheck ")
        assert "requires-dist:asks:torch" in outcome.out


def test_an_environment_that_was_named_is_run(found: Path) -> None:
    for arguments, environ in ((["--python", ".venv"], {}), ([], {"VIRTUAL_ENV": str(found / ".venv")})):
        measured("doctor", *arguments, cwd=found, environ=environ)
        assert (found / "ran").exists()
        (found / "ran").unlink()
    measured("doctor", "--static", "--python", ".venv", cwd=found)
    assert not (found / "ran").exists()


# --- very many files ------------------------------------------------------------------------------------


def fill(site: Path, name: str, count: int) -> None:
    """Write many empty files, or folders if the name ends like that of a record; quickly, as hard links."""
    if name.endswith(".dist-info"):
        for number in range(count):
            (site / name.format(number)).mkdir()
        return
    first = put(site, name.format(0), "")
    for number in range(1, count):
        os.link(first, site / name.format(number))


def test_a_package_folder_of_very_many_entries_ends_with_one_line(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = with_failure(env)
    monkeypatch.setattr(layout, "MOST_ENTRIES", 2000)  # 200,000 files would take minutes to write and remove
    fill(site, "m{}.py", 2100)
    with pytest.raises(ExamineError, match=r"site-packages: 210\d entries, more than 2000: not read"):
        read(env)


def test_very_many_pth_files_end_with_one_line(env: Path) -> None:
    fill(with_failure(env), "p{}.pth", 5100)
    outcome = measured("doctor", "--static", "--python", str(env), cwd=env)
    harmless(outcome)
    assert outcome.code == 3
    assert "site-packages: 5100 .pth files, more than 5000: not read" in outcome.err
    assert outcome.err.count("\n") == 1


def test_many_unreadable_records_are_counted(env: Path) -> None:
    fill(with_failure(env), "p{}-1.0.dist-info", 300)
    outcome = measured("doctor", "--static", "--python", str(env), "--json", cwd=env)
    harmless(outcome)
    findings = {each["rule"]: each for each in json.loads(outcome.out)["findings"]}
    assert sum(rule.startswith("metadata:") for rule in findings) == 101
    assert (
        findings["metadata:further-packages"]["title"]
        == "the metadata of 200 further packages cannot be read either"
    )


def test_a_pth_file_that_names_its_own_folder_is_followed_once(env: Path) -> None:
    put(with_failure(env), "evil.pth", "../site-packages\n" + "../" * 3000 + "site-packages\n")
    outcome = measured("doctor", "--static", "--python", str(env), "--json", cwd=env)
    harmless(outcome)
    assert "requires-dist:asks:torch" in outcome.out
