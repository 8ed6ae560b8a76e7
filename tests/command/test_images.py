"""Images built for real, with `RUN envcheck gate` in their Dockerfile: a good one, and bad ones that stop."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_nvml import HERE as SCENARIOS
from tests.support.fake_nvml import library
from tests.support.image_builds import Builder, Built, run, torch, wheel
from tests.support.paths import ROOT

ENVIRONMENT = "/usr/bin/python3"
INSTALL = "COPY wheels /wheels\nRUN python3 -m pip install -q --break-system-packages --no-index --no-deps /wheels/*.whl"
STACK: dict[str, bytes | str] = dict(
    [
        wheel("deepspeed", "0.16.4"),
        wheel("transformers", "4.49.0", ("numpy>=1.17",), {"transformers/__init__.py": "x = 1\n"}),
        wheel("peft", "0.14.0", ("torch>=1.13.0",)),
        wheel("accelerate", "1.4.0"),
        wheel("numpy", "1.26.4"),
    ]
)
TORCH = torch("2.4.1", "12.1")
CONFIG = json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})


def wheels(*others: tuple[str, bytes]) -> dict[str, bytes | str]:
    """The stack's wheels, some of them in another version."""
    names = {name.partition("-")[0] for name, _ in others}
    return {
        **{file: data for file, data in STACK.items() if file.partition("-")[0] not in names},
        **dict(others),
    }


def gate(*words: str) -> str:
    return f"RUN envcheck gate --python {ENVIRONMENT} {' '.join(words)}"


def built(builder: Builder, files: Mapping[str, bytes | str], *lines: str, tag: str = "") -> Built:
    install = [INSTALL] if any(name.startswith("wheels/") for name in files) else []
    copies = [f"COPY {name} /" for name in files if not name.startswith("wheels/")]
    return builder.build("\n".join([*install, *copies, "WORKDIR /", *lines]), files, tag=tag)


def stopped(outcome: Built, reason: str, code: int = 1) -> None:
    """The build ended at the gate with this exit code, for this reason: `error RULE`, or part of the answer."""
    assert outcome.code != 0, outcome.out
    assert f"exit status {code}" in outcome.out
    shut = re.findall(r"^(?:gate shut|Cannot say): .*$", outcome.out, re.MULTILINE)
    assert len(shut) == 1, outcome.out
    severity, _, rule = reason.partition(" ")
    if severity == "error":
        assert re.search(rf"error: .*\[{re.escape(rule)}\]", outcome.out), outcome.out
    else:
        assert reason in shut[0]


def test_a_good_image_is_built_and_carries_what_was_judged(builder: Builder, tmp_path: Path) -> None:
    files = {**wheels(TORCH), "ds.json": CONFIG, "lock.txt": lock("2.4.1")}
    outcome = built(
        builder,
        files,
        gate(
            "--target zero2-lora --train ds.json --machine a100-r535 --machine h100-r550 --lock lock.txt --verify-files"
        ),
        "RUN test ! -e /imported",
        tag="good",
    )
    assert outcome.code == 0, outcome.out
    assert "gate open" in outcome.out
    assert 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"' in outcome.out
    assert 'LABEL envcheck.minimum-driver="525.60.13"' in outcome.out
    tree = manifest_of(builder, "good", tmp_path)
    assert (tree["target"], tree["cuda"], tree["minimum_driver"]) == ("zero2-lora", "12.1", "525.60.13")
    assert tree["packages"]["deepspeed"] == "0.16.4"
    assert tree["train"]["zero_stage"] == 2
    assert [each["name"] for each in tree["machines"]] == ["a100-r535", "h100-r550"]
    assert "sm_80" in tree["architectures"]
    starts(tmp_path)


def manifest_of(builder: Builder, image: str, folder: Path) -> dict[str, Any]:
    """What the image carries, read out of it and kept in the folder."""
    made = builder.buildah("from", "--pull-never", "--name", f"of-{image}", f"localhost/{image}")
    assert made.code == 0, made.out
    try:
        where = builder.buildah("mount", f"of-{image}").out.strip().splitlines()[-1]
        text = Path(where, "usr/share/envcheck/manifest.json").read_text()
        unpacked(where, text)
    finally:
        builder.buildah("rm", f"of-{image}")
    (folder / "manifest.json").write_text(text)
    return dict(json.loads(text))


def unpacked(root: str, text: str) -> None:
    """The gate comes to the same from outside, on the unpacked root, with nothing of it run."""
    command = (
        "-m",
        "envcheck",
        "gate",
        "--root",
        root,
        "--machine",
        "a100-r535",
        "--json",
        "--manifest",
        f"{root}/out.json",
    )
    ran = run(sys.executable, *command, cwd=ROOT)
    assert ran.code == 0, ran.out
    outside, inside = json.loads(Path(root, "out.json").read_text()), json.loads(text)
    for key in ("packages", "cuda", "minimum_driver", "architectures", "platform"):
        assert outside[key] == inside[key], key


def starts(folder: Path) -> None:
    """The manifest of the image lets the nodes in on which it runs, and no others."""
    driver = library(folder / "nvml")
    for scenario, code, said in (
        ("h100", 0, "gate open: driver 535.161.08, 1 x NVIDIA H100 80GB HBM3"),
        ("v100", 1, "gate shut: driver 470.256.02: the image (CUDA 12.1) needs 525.60.13 or newer"),
        ("rtx5090", 1, "gate shut: GPU 0 (NVIDIA GeForce RTX 5090, compute capability 12.0)"),
        ("lost", 1, "gate shut: GPU 1: NVML says 15 GPU lost"),
    ):
        played = ("env", f"LD_LIBRARY_PATH={driver}", f"FAKE_NVML={SCENARIOS / f'{scenario}.ini'}")
        words = ("-m", "envcheck", "gate", "--runtime", "--manifest", folder / "manifest.json")
        ran = run(*played, sys.executable, *words, cwd=ROOT)
        assert (ran.code, ran.out.startswith(said)) == (code, True), ran.out


def lock(torch_version: str, transformers: str = "4.49.0") -> str:
    pins = {"torch": torch_version, "transformers": transformers, "deepspeed": "0.16.4", "peft": "0.14.0"}
    pins |= {"accelerate": "1.4.0", "numpy": "1.26.4"}
    return "".join(f"{name}=={version} --hash=sha256:{'0' * 64}\n" for name, version in sorted(pins.items()))


def test_a_deepspeed_that_cannot_be_imported_beside_torch_stops_the_build(builder: Builder) -> None:
    files = wheels(torch("2.4.0", "12.1"), wheel("deepspeed", "0.14.0"))
    stopped(built(builder, files, gate("--machine a100-r535")), "error deepspeed-elastic-log-import-torch24")


def test_a_torch_too_new_for_the_drivers_of_the_fleet_stops_the_build(builder: Builder) -> None:
    outcome = built(
        builder, wheels(torch("2.10.0+cu130", "13.0")), gate("--machine h100-r550 --machine a100-r535")
    )
    stopped(outcome, "error driver-below-cuda-family-floor")
    assert "machine a100-r535" in outcome.out


def test_a_torch_without_code_for_the_gpu_stops_the_build(builder: Builder) -> None:
    outcome = built(
        builder, wheels(torch("2.6.0", "12.4")), gate("--machine a100-r550 --machine rtx5090-r580")
    )
    stopped(outcome, "error torch-build-lacks-gpu-code")
    assert re.search(r"note +machine rtx5090-r580", outcome.out)


def test_a_torchvision_of_another_torch_stops_the_build(builder: Builder) -> None:
    files = wheels(TORCH, wheel("torchvision", "0.18.0"))
    stopped(built(builder, files, gate("--machine a100-r535")), "error torch-torchvision-mismatch")


def test_drift_from_the_lock_stops_the_build(builder: Builder) -> None:
    files = {**wheels(TORCH), "lock.txt": lock("2.4.1", "4.50.0") + f"trl==0.12.0 --hash=sha256:{'0' * 64}\n"}
    outcome = built(builder, files, gate("--lock lock.txt"))
    stopped(outcome, "error lock:version:transformers")
    stopped(outcome, "error lock:missing:trl")
    assert "the lock has transformers 4.50.0, installed is 4.49.0" in outcome.out
    assert re.search(r"at +lock\.txt:6:1", outcome.out), outcome.out


def test_a_tampered_file_stops_the_build(builder: Builder) -> None:
    spoil = "RUN echo 'import os' >> $(python3 -m pip show -f transformers | sed -n 's/^Location: //p')/transformers/__init__.py"
    outcome = built(builder, wheels(TORCH), spoil, gate("--verify-files"))
    stopped(outcome, "error files:changed:transformers")
    assert "transformers/__init__.py (another size)" in outcome.out


def test_a_configuration_that_will_fail_stops_the_build(builder: Builder) -> None:
    config = json.dumps({"zero_optimization": {"stage": 3}})
    arguments = "--use_lora true --gradient_checkpointing true --gradient_checkpointing_kwargs '{\"use_reentrant\": false}'"
    files = {**wheels(torch("2.6.0", "12.4")), "ds.json": config, "args.txt": arguments}
    outcome = built(builder, files, gate("--machine h100-r550 --train ds.json --train args.txt"))
    stopped(outcome, "error zero3-frozen-nonreentrant-checkpoint")


def test_an_expired_waiver_no_longer_opens_the_gate(builder: Builder) -> None:
    rule = "deepspeed-elastic-log-import-torch24"
    waive = '[[waive]]\nrule = "{}"\nreason = "we patch it"\nuntil = {}\n'
    files = wheels(torch("2.4.0", "12.1"), wheel("deepspeed", "0.14.0"))
    settings = {
        **files,
        "later.toml": 'machines = ["a100-r535"]\n' + waive.format(rule, "2026-01-01"),
        "envcheck.toml": 'machines = ["a100-r535"]\n' + waive.format(rule, "2099-01-01"),
    }
    outcome = built(builder, settings, gate(), "RUN mv later.toml envcheck.toml", gate())
    assert re.search(r"^gate open: .*; 1 waived$", outcome.out, re.MULTILINE), outcome.out
    assert "waived until 2099-01-01: we patch it (envcheck.toml:3)" in outcome.out
    stopped(outcome, f"error {rule}")
    assert "no longer waived since 2026-01-01: we patch it (envcheck.toml:3)" in outcome.out
    assert "waiver:expired" in outcome.out


def test_an_image_without_torch_cannot_be_examined(builder: Builder) -> None:
    outcome = built(builder, {}, "USER nobody", gate("--machine a100-r535"))
    stopped(outcome, "no torch", code=3)
    assert (
        "no manifest: /usr/share/envcheck/manifest.json: permission denied (--manifest names" in outcome.out
    )


def test_an_unknown_machine_is_wrong_use(builder: Builder) -> None:
    outcome = built(builder, {}, gate("--machine a100-r53"))
    assert "exit status 2" in outcome.out
    assert "machine a100-r53: no such machine; did you mean 'a100-r535'?" in outcome.out


@pytest.mark.stack
def test_the_real_stack_passes_and_every_file_is_as_it_was_installed(builder: Builder, stack: str) -> None:
    """The real torch, DeepSpeed, transformers and PEFT; their interpreter is not in the image, so files are read."""
    found = run(stack, "-c", "import sys; print(sys.prefix)")
    words = "--target zero3-lora --machine h100-r570 --verify-files --verify-timeout 120 --undecided fail"
    lines = f"RUN envcheck gate --python /opt/stack --static {words}"
    outcome = builder.build(lines, {}, "--volume", f"{found.out.strip()}:/opt/stack:ro")
    assert outcome.code == 0, outcome.out
    assert re.search(r"torch 2\.\d+\.\d+", outcome.out)
    assert "gate open" in outcome.out
