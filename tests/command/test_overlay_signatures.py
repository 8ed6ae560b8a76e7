"""Settings that trust keys: only overlays that one of these keys signed are used."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - tests are users
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.running import Outcome, envcheck, installed, surroundings

minisign = pytest.importorskip("minisign", reason="py-minisign (the extra `signed`) is not installed")

OVERLAY = b"""[[rule]]
id = "house"
severity = "error"
basis = "measured"
title = "torch is not used here"
why = "w"
when = { "pkg.torch" = "present" }
sources = [{ url = "https://example.org", kind = "docs", checked = 2026-11-20 }]
"""
FACTS = 'complete = ["pkg"]\n[pkg]\ntorch = "2.6.0"\n'


@pytest.fixture
def keys() -> Any:
    return minisign.KeyPair.generate()


def public(keys: Any) -> str:
    return str(keys.public_key.to_base64().decode())


def judged(folder: Path, trusted: str, signature: bytes | None, content: bytes = OVERLAY) -> Outcome:
    (folder / "envcheck.toml").write_text(f'trusted_keys = ["{trusted}"]\n')
    (folder / "facts.toml").write_text(FACTS)
    (folder / "house.toml").write_bytes(content)
    if signature is not None:
        (folder / "house.toml.minisig").write_bytes(signature)
    found = os.pathsep.join([str(installed()), str(Path(minisign.__file__).parents[1])])
    return envcheck(
        "doctor", "--facts", "facts.toml", "--matrix", "house.toml", cwd=folder, environ={"PYTHONPATH": found}
    )


def test_a_signed_overlay_is_used(tmp_path: Path, keys: Any) -> None:
    ran = judged(tmp_path, public(keys), bytes(keys.secret_key.sign(OVERLAY)))
    assert ran.code == 1, ran.err
    assert "torch is not used here" in ran.out


@pytest.mark.parametrize("case", ["changed", "other key", "unsigned", "garbage", "comment changed", "empty"])
def test_an_overlay_that_no_trusted_key_signed_is_refused(case: str, tmp_path: Path, keys: Any) -> None:
    signature = bytes(keys.secret_key.sign(OVERLAY, trusted_comment="for the house"))
    given: bytes | None = {
        "unsigned": None,
        "garbage": b"\xff\n\n\nx",
        "empty": b"",
        "comment changed": signature.replace(b"for the house", b"for the mouse"),
        "other key": bytes(minisign.KeyPair.generate().secret_key.sign(OVERLAY)),
    }.get(case, signature)
    content = OVERLAY.replace(b"present", b"absent") if case == "changed" else OVERLAY
    ran = judged(tmp_path, public(keys), given, content)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("envcheck: house.toml"), ran.err
    assert ran.err.count("\n") == 1


def test_overlays_that_the_settings_name_are_checked_as_well(tmp_path: Path, keys: Any) -> None:
    assert judged(tmp_path, public(keys), bytes(keys.secret_key.sign(OVERLAY))).code == 1
    with (tmp_path / "envcheck.toml").open("a") as settings:
        settings.write('matrix = ["second.toml"]\n')
    (tmp_path / "second.toml").write_bytes(OVERLAY)
    found = os.pathsep.join([str(installed()), str(Path(minisign.__file__).parents[1])])
    ran = envcheck("doctor", "--facts", "facts.toml", cwd=tmp_path, environ={"PYTHONPATH": found})
    assert ran.code == 2
    assert "second.toml.minisig is not there" in ran.err


def test_a_malformed_key_is_named_with_its_file(tmp_path: Path, keys: Any) -> None:
    ran = judged(tmp_path, "RWQnonsense", bytes(keys.secret_key.sign(OVERLAY)))
    assert ran.code == 2
    assert ran.err.startswith("envcheck: envcheck.toml: trusted_keys: 'RWQnonsense' is no public key")


def test_without_the_extra_nothing_is_trusted(tmp_path: Path, keys: Any) -> None:
    judged(tmp_path, public(keys), bytes(keys.secret_key.sign(OVERLAY)))
    (tmp_path / "away").mkdir()
    (tmp_path / "away/minisign.py").write_text("raise ImportError('no such package')\n")
    found = os.pathsep.join([str(tmp_path / "away"), str(installed())])
    ran = envcheck(
        "doctor",
        "--facts",
        "facts.toml",
        "--matrix",
        "house.toml",
        cwd=tmp_path,
        environ={"PYTHONPATH": found},
    )
    assert ran.code == 2
    assert "needs py-minisign (the extra `signed`)" in ran.err


def test_settings_that_trust_no_key_import_nothing(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FACTS)
    (tmp_path / "house.toml").write_bytes(OVERLAY)
    program = (
        "import sys\nfrom envcheck.cli.main import run\nrun(['doctor', '--facts', 'facts.toml', '--matrix', 'house.toml'])\n"
        "sys.exit('minisign' in sys.modules or 'cryptography' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=surroundings(),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0
