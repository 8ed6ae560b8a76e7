"""The files in `examples/` and the hooks: each is run, built, or validated against its schema."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command.test_gate_runtime import TREE
from tests.command.test_images import STACK
from tests.support.fake_nvml import HERE as SCENARIOS
from tests.support.fake_nvml import library
from tests.support.image_builds import Builder, Built, run, torch, wheel
from tests.support.paths import ROOT
from tests.support.running import envcheck

EXAMPLES = ROOT / "examples"


def program(name: str) -> str:
    """Return the path of a program beside this Python or on PATH; skip the test if there is none."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")  # noqa: TID251
    if found is None:
        pytest.skip(f"{name} is not installed; the extra [test] brings it")
    return found


def test_every_example_is_tested_here() -> None:
    text = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.iterdir() if path.name not in text] == []


# --- schemas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.compose-spec", "examples/compose.yaml"), ("vendor.github-actions", "action.yml")],
)
def test_a_file_matches_its_schema(schema: str, file: str) -> None:
    ran = run(program("check-jsonschema"), "--builtin-schema", schema, ROOT / file)
    assert ran.code == 0, ran.out


def test_the_kubernetes_job_matches_its_schema() -> None:
    ran = run(program("kubernetes-validate"), "--strict", EXAMPLES / "kubernetes.yaml")
    assert ran.code == 0, ran.out
    containers = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())["spec"]["template"]["spec"]
    gate, train = containers["initContainers"][0], containers["containers"][0]
    assert (gate["image"], gate["resources"]) == (train["image"], train["resources"])


# --- files to judge ---------------------------------------------------------------------------------


def test_the_files_in_examples_pass() -> None:
    ran = envcheck("check", "Dockerfile", "requirements.txt", cwd=EXAMPLES)
    assert (ran.code, ran.err) == (0, ""), ran
    assert "note    machine a100-r535" in ran.out  # named by envcheck.toml
    assert "ZeRO-2" in ran.out  # ds_config.json, named by envcheck.toml


def test_the_settings_in_examples_are_read() -> None:
    ran = envcheck("gate", "--root", "nowhere", cwd=EXAMPLES)
    assert ran.err == "envcheck: --root: nowhere: expected the folder of an unpacked image\n"


# --- the Dockerfile ---------------------------------------------------------------------------------


def packed(name: str) -> tuple[str, bytes]:
    """Build a wheel from a package installed beside the tests, without its compiled files."""
    found = importlib.metadata.distribution(name)
    more: dict[str, str] = {}
    for path in found.files or ():
        place = Path(str(found.locate_file(path)))
        if (
            path.suffix != ".so"
            and ".." not in path.parts
            and ".dist-info" not in str(path)
            and place.is_file()
        ):
            more[str(path)] = (
                place.read_text(encoding="utf-8", errors="surrogateescape")
                if path.suffix in (".py", ".typed")
                else ""
            )
    requires = tuple(line for line in found.requires or () if "extra" not in line)
    return wheel(found.metadata["Name"].lower(), found.version, requires, more)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder of wheels and a pip.conf that uses only this folder."""
    folder = tmp_path_factory.mktemp("index")
    made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert made.code == 0, made.out
    wanted, left = set[str](), ["typer", "rich", "packaging", "nvidia-ml-py", "PyYAML"]
    while left:
        name = left.pop()
        if name in wanted:
            continue
        wanted.add(name)
        file, data = packed(name)
        (folder / Path(file).name).write_bytes(data)
        lines = importlib.metadata.requires(name) or []
        left += [re.split(r"[\s<>=!~;\[(]", line)[0] for line in lines if ";" not in line]
    for file, made_up in {**STACK, **dict([torch("2.6.0+cu124", "12.4")])}.items():
        assert isinstance(made_up, bytes)
        (folder / Path(file).name).write_bytes(made_up)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /index\n")
    return folder


def test_the_dockerfile_is_built_and_starts_only_where_it_can(
    builder: Builder, index: Path, tmp_path: Path
) -> None:
    mounts = ("--volume", f"{index}:/index:ro", "--volume", f"{index}/pip.conf:/etc/pip.conf:ro")
    words = ("bud", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", *mounts)
    context = tmp_path / "context"
    shutil.copytree(EXAMPLES, context)
    (built,) = index.glob("envcheck_ml-*.whl")
    shutil.copy(built, context)
    made = builder.buildah(*words, "-t", "example", context)
    assert made.code == 0, made.out
    assert "gate open" in made.out
    assert 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"' in made.out  # the line that follows in the Dockerfile
    assert 'LABEL envcheck.minimum-driver="525.60.13"' in made.out
    config = json.loads(builder.buildah("inspect", "--type", "image", "localhost/example").out)["OCIv1"][
        "config"
    ]
    assert "NVIDIA_REQUIRE_CUDA=cuda>=12.0" in config["Env"]
    made = builder.buildah("from", "--pull-never", "--name", "start", "localhost/example")
    assert made.code == 0, made.out
    good = started(builder, config["Entrypoint"], "h100", tmp_path)
    assert (good.code, good.out.strip().splitlines()[-1]) == (0, "trained")
    bad = started(builder, config["Entrypoint"], "v100", tmp_path)
    assert (bad.code, "gate shut: driver 470.256.02" in bad.out, "trained" in bad.out) == (1, True, False)


def started(builder: Builder, entrypoint: list[str], scenario: str, folder: Path) -> Built:
    """Run the image's entrypoint inside it with the fake driver, as a container start would."""
    driver = library(folder / "nvml")
    mounts = ("--volume", f"{driver}:/driver:ro", "--volume", f"{SCENARIOS}:/scenarios:ro")
    played = ("--env", "LD_LIBRARY_PATH=/driver", "--env", f"FAKE_NVML=/scenarios/{scenario}.ini")
    words = ("run", "--isolation", "chroot", *mounts, *played, "start", "--", *entrypoint, "echo", "trained")
    return builder.buildah(*words)


# --- Slurm ------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Mapping[str, str]:
    """Return a node's environment variables: envcheck as a program, a manifest, the fake driver, nothing else."""
    try:
        driver = library(tmp_path / "nvml")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    (tmp_path / "manifest.json").write_text(json.dumps(TREE))
    shim = tmp_path / "envcheck"
    shim.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom envcheck.__main__ import main\nmain()\n"
    )
    shim.chmod(0o755)
    srun = tmp_path / "srun"
    srun.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n[ "$1" = python3 ] && { echo trained; exit; }\nexec "$@"\n'
    )
    srun.chmod(0o755)
    return {
        "ENVCHECK": str(shim),
        "ENVCHECK_MANIFEST": str(tmp_path / "manifest.json"),
        "LD_LIBRARY_PATH": str(driver),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }


def script(name: str, node: Mapping[str, str], scenario: str, **more: str) -> Built:
    environ = {**node, "FAKE_NVML": str(SCENARIOS / f"{scenario}.ini"), **more}
    ran = subprocess.run(
        [EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    return Built(ran.returncode, ran.stdout + ran.stderr)


def test_slurm_prolog_drains_only_an_unsuitable_node(node: Mapping[str, str]) -> None:
    bare = {key: value for key, value in node.items() if key != "PATH"}  # as Slurm runs a prolog
    assert script("slurm-prolog.sh", bare, "h100") == Built(0, "")
    bad = script("slurm-prolog.sh", bare, "v100")
    assert (bad.code, bad.out.startswith("envcheck: gate shut: driver 470.256.02")) == (1, True)
    mistaken = script("slurm-prolog.sh", bare, "h100", ENVCHECK_MANIFEST="/nowhere.json")
    assert (mistaken.code, "no such file" in mistaken.out) == (0, True)


def test_slurm_job_trains_only_on_suitable_nodes(node: Mapping[str, str]) -> None:
    good = script("slurm-job.sh", node, "a100x8")
    assert (good.code, good.out.splitlines()[-1]) == (0, "trained")
    bad = script("slurm-job.sh", node, "v100")
    assert (bad.code, "trained" in bad.out) == (1, False)


SRUN_OF_TWO = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
[ "$1" = python3 ] && { echo trained; exit; }
export SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=5
SLURM_PROCID=1 SLURMD_NODENAME=gpu002 NCCL_ALGO="$SECOND" "$@" & SLURM_PROCID=0 SLURMD_NODENAME=gpu001 "$@"
code=$?
wait $! || code=$?
exit $code
"""


def test_slurm_fleet_trains_only_on_equal_nodes(node: Mapping[str, str], tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (site / "torch-2.13.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
    (site / "torch-2.13.0.dist-info/METADATA").write_text(metadata)
    (tmp_path / "srun").write_text(SRUN_OF_TWO)
    shared = {"ENVCHECK_ENV": str(tmp_path / "env"), "ENVCHECK_SHARED": str(tmp_path), "NCCL_ALGO": "Ring"}
    good = script("slurm-fleet.sh", node, "h100", **shared, SECOND="Ring")
    assert (good.code, good.out.splitlines()[-1]) == (0, "trained"), good.out
    bad = script("slurm-fleet.sh", node, "h100", **shared, SECOND="Tree")
    assert (bad.code, "trained" in bad.out) == (1, False)
    assert "NCCL_ALGO, a tie: Ring on gpu001, Tree on gpu002" in bad.out


# --- the action -------------------------------------------------------------------------------------


def action() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "action.yml").read_text()))


def test_every_step_of_the_action_has_a_shell_and_no_input_in_its_script() -> None:
    for step in action()["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script is run as code"


@pytest.mark.parametrize(
    ("command", "arguments", "code", "words"),
    [
        ("check", "", 0, ["check"]),
        ("check", "a.txt 'b c.txt' --machine x", 0, ["check", "a.txt", "b c.txt", "--machine", "x"]),
        ("gate", "$(touch x) `id` ; echo", 1, ["gate", "$(touch", "x)", "`id`", ";", "echo"]),
        ("check", "a.txt\n--machine\nx y\n", 0, ["check", "a.txt", "--machine", "x y"]),
        ("check", 'a.txt\r\n\r\n--only\r\nlock: "\r\n', 0, ["check", "a.txt", "--only", 'lock: "']),
        ("check", "$(touch x)\n--a 'b", 0, ["check", "$(touch x)", "--a 'b"]),
        (
            "check",
            "requirements.txt --only lock: --strict\n",
            1,
            ["check", "requirements.txt", "--only", "lock:", "--strict"],
        ),
        ("check", "a.txt ''", 0, ["check", "a.txt", ""]),
        ("check", 'requirements.txt --only lock: "--strict', 2, None),
        ("gate", "--python it's", 2, None),
        ("doctor", "", 2, None),
    ],
)
def test_the_actions_judging_step(
    tmp_path: Path, command: str, arguments: str, code: int, words: list[str] | None
) -> None:
    stub = tmp_path / "envcheck/bin/envcheck"
    stub.parent.mkdir(parents=True)
    stub.write_text(
        f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(tmp_path / 'words')!r}, 'w'))\nsys.exit({code})\n"
    )
    stub.chmod(0o755)
    environ = {
        "PATH": "/usr/bin:/bin",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "COMMAND": command,
        "ARGUMENTS": arguments,
    }
    step = action()["runs"]["steps"][1]["run"]
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step],
        capture_output=True, text=True, timeout=60, check=False, env=environ,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    if words is None:
        assert not (tmp_path / "words").exists()
        assert (tmp_path / "output").read_text() == "code=2\n"
        assert ran.stderr.strip().splitlines()[-1].startswith(("arguments: ", "command: "))
    else:
        assert json.loads((tmp_path / "words").read_text()) == words
        assert (tmp_path / "output").read_text() == f"code={code}\n"


# --- pre-commit -------------------------------------------------------------------------------------


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return dict(found)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("requirements.txt", True), ("deploy/requirements-gpu.in", True), ("constraints.txt", True),
        ("pylock.toml", True), ("pylock.gpu.toml", True), ("environment.yml", True), ("docker/environment-gpu.yaml", True),
        ("Dockerfile", True), ("train.Dockerfile", True), ("Dockerfile.gpu", True), ("Containerfile", True),
        ("notes.txt", False), ("pyproject.toml", False), ("compose.yaml", False), ("poetry.lock", False), ("Dockerfiles/x", False),
    ],
)  # fmt: skip
def test_the_hook_matches_the_files_that_check_reads(name: str, taken: bool) -> None:
    assert bool(re.search(hook()["files"], name)) is taken


def test_the_hook_stops_a_commit(tmp_path: Path) -> None:
    """Run the real pre-commit with the hook's own entry and files, but with this envcheck instead of an install."""
    tool = program("pre-commit")
    local = {**hook(), "language": "system", "entry": f"{sys.executable} -m {hook()['entry']}"}
    (tmp_path / ".pre-commit-config.yaml").write_text(
        yaml.safe_dump({"repos": [{"repo": "local", "hooks": [local]}]})
    )
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\ndeepspeed==0.14.0\n")
    (tmp_path / "notes.txt").write_text("torch==2.4.0\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "home")}  # noqa: TID251

    def tried() -> Built:
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True, timeout=60)
        ran = subprocess.run(
            [tool, "run", "--all-files"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env=environ,
        )
        return Built(ran.returncode, ran.stdout + ran.stderr)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    stopped = tried()
    assert (stopped.code, "requirements.txt:2:1: error: DeepSpeed" in stopped.out) == (1, True), stopped.out
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\ndeepspeed==0.15.4\n")
    assert tried().code == 0
    manifest = run(tool, "validate-manifest", ROOT / ".pre-commit-hooks.yaml")
    assert manifest.code == 0, manifest.out
