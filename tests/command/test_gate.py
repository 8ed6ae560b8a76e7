"""The gate on an unpacked root: machines, lock, files, manifest; nothing of what is judged is ever run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.support.image_builds import run, torch, wheel
from tests.support.paths import ROOT
from tests.support.running import Outcome, envcheck

SITE = "usr/local/lib/python3.11/dist-packages"


def install(root: Path, *made: tuple[str, str | bytes], installer: str = "pip") -> None:
    """Unpack wheels as pip would."""
    import io
    import zipfile

    for file, data in made:
        assert isinstance(data, bytes)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(root / SITE)
        name, version = Path(file).name.split("-")[:2]
        (root / SITE / f"{name}-{version}.dist-info/INSTALLER").write_text(f"{installer}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image's tree: its interpreter is no program, and its links are absolute."""
    folder = tmp_path / "root"
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/python3.11").write_text("this is run by nobody\n")
    (folder / "usr/bin/python3").symlink_to("/usr/bin/python3.11")
    (folder / SITE).mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib/ld-linux-aarch64.so.1").write_text("")
    (folder / "etc").mkdir()
    (folder / "etc/os-release").write_text("ID=debian\n")
    install(folder, torch("2.4.1", "12.1"), wheel("deepspeed", "0.16.4"), wheel("peft", "0.14.0"))
    return folder


def gate(root: Path, *more: str) -> Outcome:
    return envcheck("gate", "--root", str(root), *more, cwd=root.parent)


def findings(root: Path, *more: str) -> dict[str, dict[str, object]]:
    ran = gate(root, "--json", *more)
    assert ran.code in (0, 1), ran.err
    return {each["rule"]: each for each in json.loads(ran.out)["findings"]}


# --- an unpacked root -------------------------------------------------------------------------------


def test_links_lead_inside_the_root_and_the_architecture_is_the_roots(root: Path) -> None:
    ran = gate(root, "--machine", "a100-r535")
    assert ran.code == 0, ran.err
    assert "Python 3.11: torch 2.4.1 for CUDA 12.1, deepspeed 0.16.4, peft 0.14.0" in ran.out
    assert "linux aarch64" in ran.out
    outside = root.parent / "elsewhere"
    shutil.move(root / SITE, outside)
    (root / SITE).symlink_to(outside)  # on the image that path would not be there
    assert gate(root).code in (2, 3)
    (root / SITE).unlink()
    shutil.move(outside, root / "opt-site")
    (root / SITE).symlink_to("/opt-site")
    assert "torch 2.4.1" in gate(root).out


def test_no_manifest_is_written_for_a_root_unless_requested(root: Path) -> None:
    before = sorted(path for path in root.rglob("*"))
    assert "manifest" not in gate(root).err
    assert sorted(path for path in root.rglob("*")) == before
    assert gate(root, "--manifest", "out.json").err == "manifest written to out.json\n"
    tree = json.loads((root.parent / "out.json").read_text())
    assert tree["packages"] == {"deepspeed": "0.16.4", "peft": "0.14.0", "torch": "2.4.1"}
    assert tree["platform"] == "linux-aarch64"
    assert (tree["architectures"], "x86_64" in tree["unknown"]["architectures"]) == (None, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--root", "nowhere"), "--root: nowhere: expected the folder of an unpacked image"),
        (("--root", "/"), "--root: / is this machine; remove --root"),
        (("--root", "."), "--root: .: no /usr/local/bin/python3"),
        (
            ("--root", "root", "--machine", "a", "--driver", "550.1"),
            "--machine: declares the driver and the GPUs",
        ),
        (("--root", "root", "--machine", "a100"), "machine a100: no such machine; did you mean"),
        (
            ("--root", "root", "--manifest", "nowhere/out.json"),
            "nowhere/out.json: the folder of this file does not exist",
        ),
        (("--root", "root", "--lock", "none.txt"), "none.txt: no such file or directory"),
        (("--facts", "facts.toml", "--verify-files"), "--verify-files: a facts file has no installed files"),
    ],
)
def test_wrong_use_is_one_line(root: Path, words: tuple[str, ...], said: str) -> None:
    (root.parent / "facts.toml").write_text('[pkg]\ntorch = "2.4.1"\n')
    ran = envcheck("gate", *words, cwd=root.parent)
    assert (ran.code, ran.err.startswith(f"envcheck: {said}")) == (2, True), ran.err
    assert len(ran.err.splitlines()) == 1


# --- machines ---------------------------------------------------------------------------------------

TWO = """\
[machine.old]
driver = "470.256.02"
gpu = "A100 80GB"

[machine.arm]
driver = "550.54.15"
platform = "linux-aarch64"

[machine.intel]
driver = "550.54.15"
platform = "linux-x86_64"
"""


def test_the_image_must_pass_on_every_machine_and_findings_name_the_failing_ones(root: Path) -> None:
    (root.parent / "envcheck.toml").write_text(TWO)
    assert gate(root, "--machine", "arm").code == 0
    ran = gate(root, "--machine", "old", "--machine", "arm")
    assert ran.code == 1
    assert ran.out.startswith("gate shut: 1 error. The NVIDIA driver is too old")
    assert "    here    driver.version 470.256.02" in ran.out
    assert "note    machine old\n" in ran.out
    assert "for the machines old, arm" in ran.out


def test_machines_with_different_gpus_do_not_read_as_a_missing_gpu(root: Path) -> None:
    two = '[machine.a]\ndriver = "550.54.15"\ngpu = "A100 80GB"\n[machine.b]\ndriver = "580.65.06"\ngpu = "H100"\n'
    (root.parent / "envcheck.toml").write_text(two)
    said = gate(root, "--machine", "a", "--machine", "b").out
    assert "possible only on the real machine" in said
    assert "on the GPU (declare" not in said


def test_an_environment_for_another_processor_is_stopped(root: Path) -> None:
    (root.parent / "envcheck.toml").write_text(TWO)
    found = findings(root, "--machine", "intel")
    assert found["machine:platform"]["title"] == (
        "the environment is one for aarch64, the machine has another processor"
    )


@pytest.mark.parametrize(
    ("linker", "gpu", "stopped"),
    [
        ("lib64/ld-linux-x86-64.so.2", "GH200", True),
        ("lib/ld-linux-aarch64.so.1", "GH200", False),
        ("lib64/ld-linux-x86-64.so.2", "H200", False),
    ],
)
def test_an_image_for_another_processor_than_the_gpu_comes_with_is_stopped(
    root: Path, linker: str, gpu: str, stopped: bool
) -> None:
    (root / "lib64").mkdir()
    (root / "lib/ld-linux-aarch64.so.1").rename(root / linker)
    (root.parent / "envcheck.toml").write_text(f'[machine.one]\ndriver = "580.65.06"\ngpu = "{gpu}"\n')
    assert ("machine:platform" in findings(root, "--machine", "one")) is stopped


def test_machines_in_the_settings_are_judged_without_an_option(root: Path) -> None:
    (root.parent / "envcheck.toml").write_text('machines = ["old"]\n' + TWO)
    assert gate(root).code == 1
    assert gate(root, "--machine", "arm").code == 0
    assert gate(root, "--driver", "550.54.15").code == 0


def test_facts_of_the_building_machine_are_not_judged(root: Path) -> None:
    facts = root.parent / "facts.toml"
    facts.write_text(
        'complete = ["pkg", "gpu"]\n[host]\nram_mib = 1\nshm_mib = 1\nos = "linux"\narch = "x86_64"\n'
        '[driver]\nversion = "470.1"\n[gpus]\ncount = 0\n[pkg]\ntorch = "2.4.1"\n'
    )
    ran = envcheck("gate", "--facts", str(facts), "--machine", "a100-r535", "--json", cwd=root.parent)
    said = json.loads(ran.out)["facts"]
    assert (said["driver"]["version"], said["gpus"]["count"]) == ("535.54.03", 1)
    assert "ram_mib" not in said["host"]
    assert "shm_mib" not in said["host"]


# --- the lock ---------------------------------------------------------------------------------------


def drift(root: Path, *pins: str) -> dict[str, str]:
    (root.parent / "lock.txt").write_text("".join(f"{pin}\n" for pin in pins))
    found = findings(root, "--lock", "lock.txt")
    return {rule: str(each["title"]) for rule, each in found.items() if rule.startswith("lock:")}


def test_an_installed_lock_has_no_drift(root: Path) -> None:
    assert drift(root, "torch==2.4.1", "deepspeed==0.16.4", "peft==0.14.0") == {}
    assert drift(root, "torch==2.4.1", "deepspeed==0.16.4.0", "PEFT==0.14").keys() <= {
        "lock:version:peft",
        "lock:version:deepspeed",
    }


def test_every_kind_of_drift_is_reported(root: Path) -> None:
    assert drift(root, "torch==2.4.0", "deepspeed==0.16.4", "trl==0.12.0") == {
        "lock:version:torch": "the lock has torch 2.4.0, installed is 2.4.1",
        "lock:missing:trl": "the lock has trl 0.12.0, which is not installed",
        "lock:extra": "installed and not in the lock: peft",
    }


def test_another_build_of_the_same_release_is_drift(root: Path) -> None:
    shutil.rmtree(root / SITE)
    (root / SITE).mkdir()
    (root / "lib/ld-linux-aarch64.so.1").unlink()
    (root / "lib64").mkdir()
    (root / "lib64/ld-linux-x86-64.so.2").write_text("")
    install(root, torch("2.6.0+cu118", "11.8"))
    assert drift(root, "torch==2.6.0") == {
        "lock:build:torch": "another build: torch 2.6.0 of the lock is for CUDA 12.4, the 2.6.0+cu118 that is installed "
        "is for CUDA 11.8"
    }
    assert drift(root, "torch @ https://example.org/torch-2.6.0%2Bcu118-cp311-cp311-linux_x86_64.whl") == {}
    shutil.rmtree(root / SITE / "torch-2.6.0+cu118.dist-info")
    install(root, torch("2.6.0+cu124", "12.4"))  # as the default index names its own
    assert drift(root, "torch==2.6.0") == {}


def test_lock_lines_that_cannot_be_compared_are_reported(root: Path) -> None:
    pins = ("torch", "deepspeed==0.16.4", "peft==0.14.0", "./wheels/own.whl")
    assert drift(root, *pins) == {"lock:not-compared": "2 lines of the lock were not compared"}
    said = str(findings(root, "--lock", "lock.txt")["lock:not-compared"]["because"])
    assert "lock.torch" in said
    assert "lock.txt:4:1: a path or an address" in said
    assert gate(root, "--lock", "lock.txt").code == 0
    assert gate(root, "--lock", "lock.txt", "--undecided", "fail").code == 1


def test_an_unreadable_version_does_not_match_the_lock(root: Path) -> None:
    (root / SITE / "peft-0.14.0.dist-info").rename(root / SITE / "peft.dist-info")
    (root / SITE / "peft.dist-info/METADATA").write_text("Name: peft\n")
    found = drift(root, "torch==2.4.1", "deepspeed==0.16.4", "peft==0.14.0")
    assert found == {"lock:not-compared": "1 line of the lock was not compared"}


def test_an_unknown_build_of_a_release_does_not_match_the_locked_one(root: Path) -> None:
    shutil.rmtree(root / SITE)
    (root / SITE).mkdir()
    install(root, torch("9.9.0+cu118", "11.8"))
    title = "which CUDA torch 9.9.0 of the lock is for is not known, installed is 9.9.0+cu118"
    assert drift(root, "torch==9.9.0") == {"lock:build:torch": title}
    assert drift(root, "torch==9.9.0+cu118") == {}


def test_envcheck_and_its_dependencies_do_not_count_as_extra(root: Path) -> None:
    install(
        root, wheel("envcheck-ml", "0.1.0", ("typer>=0.26", "rich")), wheel("typer", "0.26.0", ("click",))
    )
    install(root, wheel("click", "8.1.0"), wheel("pip", "24.0"), wheel("trl", "0.12.0"))
    found = drift(root, "torch==2.4.1", "deepspeed==0.16.4", "peft==0.14.0")
    assert found == {"lock:extra": "installed and not in the lock: trl"}


def test_a_pylock_is_a_lock_too_and_a_finding_names_its_line(root: Path) -> None:
    (root.parent / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "x"\n\n[[packages]]\nname = "torch"\nversion = "2.4.0"\n'
        '\n[[packages]]\nname = "colorama"\nversion = "0.4"\nmarker = "sys_platform == \'win32\'"\n'
    )
    ran = gate(root, "--lock", "pylock.toml")
    assert "    at      pylock.toml:5:1\n" in ran.out
    assert "colorama" not in ran.out


def test_a_lock_changed_by_hand_is_refused(root: Path) -> None:
    lock = ROOT / "lockfiles"
    text = next(lock.glob("*/*.txt")).read_text()
    (root.parent / "lock.txt").write_text(text.replace("\ntorch==", "\ntorch==9.", 1))
    ran = gate(root, "--lock", "lock.txt")
    assert (ran.code, "the digest differs" in ran.err) == (2, True)


# --- files ------------------------------------------------------------------------------------------


def test_unchanged_files_are_not_a_finding(root: Path) -> None:
    assert not [rule for rule in findings(root, "--verify-files") if rule.startswith("files:")]


def test_changed_missing_and_replaced_files_are_reported(root: Path) -> None:
    (root / SITE / "torch/version.py").write_text("# changed\n")
    init = root / SITE / "torch/__init__.py"
    init.write_text(init.read_text().replace("imported", "exported"))
    (root / SITE / "peft-0.14.0.dist-info/WHEEL").unlink()
    os.mkfifo(root / SITE / "peft-0.14.0.dist-info/WHEEL")
    found = findings(root, "--verify-files")
    torch_said = str(found["files:changed:torch"]["because"])
    assert "torch/version.py (another size)" in torch_said
    assert "torch/__init__.py (another content)" in torch_said
    assert "peft-0.14.0.dist-info/WHEEL (" in str(found["files:changed:peft"]["because"])
    assert gate(root, "--verify-files").code == 1


def test_a_record_that_leads_out_of_the_root_stays_in_it(root: Path) -> None:
    (root.parent / "secret").write_text("x")
    record = root / SITE / "peft-0.14.0.dist-info/RECORD"
    record.write_text("../../../../../../secret,sha256=AAAA,1\n/secret,sha256=AAAA,1\n")
    said = str(findings(root, "--verify-files")["files:changed:peft"]["because"])
    assert "/secret (missing)" in said
    assert "another" not in said


def test_files_that_were_not_compared_are_reported(root: Path) -> None:
    (root / SITE / "peft-0.14.0.dist-info/RECORD").unlink()
    (root / SITE / "deepspeed-0.16.4.dist-info/INSTALLER").write_text("conda\n")
    with (root / SITE / "deepspeed-0.16.4.dist-info/METADATA").open("a") as metadata:
        metadata.write("x")
    found = findings(root, "--verify-files")
    assert (found["files:not-compared"]["verdict"], found["files:not-ours"]["severity"]) == (
        "undecided",
        "note",
    )
    assert "files:changed:deepspeed" not in found
    assert gate(root, "--verify-files", "--undecided", "fail").code == 1


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("", "no hashes in RECORD"),
        ("peft/__init__.py,,\n", "no hashes in RECORD"),
        ("peft/__init__.py,sha512=AAAA,1\n", "hashes other than sha256 in RECORD"),
    ],
)
def test_an_unusable_record_counts_as_not_compared(record: str, why: str, root: Path) -> None:
    (root / SITE / "peft-0.14.0.dist-info/RECORD").write_text(record)
    found = findings(root, "--verify-files")["files:not-compared"]
    assert (found["verdict"], found["title"]) == ("undecided", "the files of 1 package were not compared")
    assert f"peft: {why}" in str(found["because"])


def test_packages_without_a_record_and_checkouts_are_reported(root: Path) -> None:
    (root / SITE / "old-1.0.egg-info").write_text("Name: old\nVersion: 1.0\n")
    (root / SITE / "__editable__.peft-0.14.0.pth").write_text("/src\n")
    said = json.loads(gate(root, "--json", "--verify-files").out)["findings"]
    told = [each for each in said if each["rule"] == "files:not-compared"]
    assert [each["because"][0]["why"] for each in told] == [
        "old: no RECORD of their files",
        "peft: installed from a checkout",
    ]


def test_comparing_files_ends_at_its_deadline(root: Path) -> None:
    many = {f"big/f{number}": "x" * 100_000 for number in range(300)}
    install(root, wheel("big", "1.0", more=many))
    began = time.monotonic()
    found = findings(root, "--verify-files", "--verify-timeout", "0.1")
    assert time.monotonic() - began < 30
    assert [rule for rule in found if rule.startswith("files:changed")] == []


# --- the manifest -----------------------------------------------------------------------------------


def test_the_manifest_of_a_shut_gate_records_it(root: Path) -> None:
    assert gate(root, "--driver", "470.256.02", "--manifest", "out.json").code == 1
    tree = json.loads((root.parent / "out.json").read_text())
    assert tree["gate"] == {
        "verdict": "shut",
        "reasons": ["error driver-below-cuda-family-floor"],
        "waived": [],
    }
    ran = envcheck("gate", "--runtime", "--manifest", str(root.parent / "out.json"))
    assert (ran.code, "the image did not pass when it was built" in ran.out) == (1, True)


def test_the_same_build_gives_the_same_manifest(root: Path) -> None:
    texts = []
    for _ in range(2):
        ran = envcheck(
            "gate",
            "--root",
            str(root),
            "--manifest",
            "out.json",
            cwd=root.parent,
            environ={"SOURCE_DATE_EPOCH": "86400"},
        )
        assert ran.code == 0
        texts.append((root.parent / "out.json").read_text())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["date"] == "1970-01-02"


def test_json_output_is_nothing_but_json(root: Path) -> None:
    assert json.loads(gate(root, "--json").out)["subject"].startswith("/usr/bin/python3")


def test_no_file_of_the_environment_is_run(root: Path) -> None:
    """The stand-in torch would leave a file behind and end the process."""
    ran = run(
        sys.executable,
        "-m",
        "envcheck",
        "gate",
        "--root",
        root,
        "--verify-files",
        cwd=ROOT,
    )
    assert ran.code == 0
    assert not Path("/imported").exists()
