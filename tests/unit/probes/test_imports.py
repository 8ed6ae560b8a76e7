"""Facts about which package an import finds, compared with what Python itself imports."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess  # noqa: TID251 - makes virtual environments, and asks Python for the truth
import sys
import sysconfig
from pathlib import Path

import pytest

from envcheck.commands import examine
from envcheck.core.facts import Absent, Known, Unknown
from envcheck.host.machine import Host
from tests.support.environments import install, listed, packages, put, read, site_of

BOTH = pytest.mark.parametrize("static", [True, False], ids=["static", "asked"])
SHORT = f"{sys.version_info[0]}.{sys.version_info[1]}"


def virtual(folder: Path, *options: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return virtual(tmp_path_factory.mktemp("venv") / "env")


@pytest.fixture
def env(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "env", symlinks=True)
    return tmp_path / "env"


def imported(env: Path, name: str, here: Path, **environ: str) -> str:
    """Return the file that Python imports when it is started in a folder; empty if there is none."""
    code = f"import importlib.util as u; s = u.find_spec({name!r}); print(s.origin if s and s.origin else '')"
    return subprocess.run(
        [env / "bin/python", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=here,
        env={"PATH": os.environ["PATH"], **environ},  # noqa: TID251 - the interpreter's own
    ).stdout.strip()


def with_environ(**more: str) -> Host:
    plain = {key: value for key, value in Host().environ.items() if not key.startswith("PYTHON")}
    return Host(environ={**plain, **more})


# --- what hides an installed package ------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("file", "hides"),
    [
        ("peft/__init__.py", True),
        ("peft.py", True),
        (f"peft{sysconfig.get_config_var('EXT_SUFFIX')}", True),
        ("peft/layers.py", False),  # a namespace: Python goes on looking
        ("peft.md", False),
        ("peft-0.9/__init__.py", False),
    ],
)
@pytest.mark.parametrize("by", ["folder", "PYTHONPATH"])
def test_a_module_found_first_on_the_path_hides_the_installed_package(
    env: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    *,
    hides: bool,
    by: str,
    static: bool,
) -> None:
    put(site_of(env), "peft/__init__.py", "")
    install(site_of(env), "peft", "0.14.0")
    put(tmp_path, f"project/{file}", "")
    put(tmp_path, "empty/x", "")
    here = tmp_path / ("project" if by == "folder" else "empty")
    environ = {"PYTHONPATH": str(tmp_path / "project")} if by == "PYTHONPATH" else {}
    monkeypatch.chdir(here)
    truth = imported(env, "peft", here, **environ)
    assert truth.startswith(str(site_of(env))) is not hides
    hidden = read(env, host=with_environ(**environ), static=static).known("pkg.peft.hidden_by")
    assert (hidden is not None) is hides
    if hides:
        assert truth in (hidden, f"{hidden}/__init__.py")


@BOTH
def test_checkout_that_is_installed_editable_hides_nothing(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, static: bool
) -> None:
    checkout = tmp_path / "my checkout"
    put(checkout, "trl/__init__.py", "")
    put(checkout, "src/peft/__init__.py", "")
    for name, folder in (("trl", checkout), ("peft", checkout / "src")):
        put(site_of(env), f"__editable__.{name}-0.1.pth", f"{folder}\n")
        url = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
        put(install(site_of(env), name, "0.1"), "direct_url.json", json.dumps(url))
    for here in (checkout, checkout / "src"):
        monkeypatch.chdir(here)
        inventory = read(env, static=static)
        hidden = [inventory.known(f"pkg.{name}.hidden_by") for name in ("trl", "peft")]
        assert hidden == [None, None]
        assert inventory.fact("pkg.trl.editable").source == str(checkout)
    put(tmp_path, "other/trl/__init__.py", "")
    monkeypatch.chdir(tmp_path / "other")
    assert imported(env, "trl", tmp_path / "other") == f"{tmp_path}/other/trl/__init__.py"
    assert read(env, static=static).known("pkg.trl.hidden_by") == f"{tmp_path}/other/trl"


def test_python_options_that_exclude_the_current_folder_are_respected(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site_of(env), "torch/__init__.py", "")
    install(site_of(env), "torch", "2.6.0")
    put(tmp_path, "project/torch.py", "")
    monkeypatch.chdir(tmp_path / "project")
    assert read(env, host=with_environ()).known("pkg.torch.hidden_by") is not None
    assert read(env, host=with_environ(PYTHONSAFEPATH="1")).known("pkg.torch.hidden_by") is None


def test_leftover_in_an_earlier_package_folder_hides_a_later_one(tmp_path: Path) -> None:
    home = f"home = {tmp_path}/bin\nversion = {SHORT}.1\ninclude-system-site-packages = true\n"
    put(tmp_path, "env/pyvenv.cfg", home)
    put(tmp_path, f"env/lib/python{SHORT}/site-packages/torch/__init__.py", "")  # and no record
    later = put(tmp_path, f"lib/python{SHORT}/site-packages/torch/__init__.py", "").parent.parent
    install(later, "torch", "2.6.0")
    hidden = read(tmp_path / "env").known("pkg.torch.hidden_by")
    assert hidden == f"{tmp_path}/env/lib/python{SHORT}/site-packages/torch"


def test_folder_named_as_a_distribution_that_is_imported_by_another_name(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site_of(env), "yaml/__init__.py", "")
    install(site_of(env), "PyYAML", "6.0")
    put(tmp_path, "project/pyyaml/__init__.py", "")
    monkeypatch.chdir(tmp_path / "project")
    assert read(env).known("pkg.pyyaml.hidden_by") is None


def test_a_tree_of_files_is_not_started_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = put(tmp_path, "image/usr/local/lib/python3.12/site-packages/torch/__init__.py", "").parent.parent
    put(tmp_path, "image/usr/local/bin/python3.12", "")
    install(site, "torch", "2.6.0")
    put(tmp_path, "project/torch.py", "")
    monkeypatch.chdir(tmp_path / "project")
    host = Host(tmp_path / "image", {"PATH": "/usr/local/bin"})
    assert read("/usr/local/bin/python3.12", host=host).known("pkg.torch.hidden_by") is None


# --- two records, and files of another version --------------------------------------------------------

VERSION_PY = "__all__ = ['__version__']\n__version__ = '{}'\ndebug = False\ncuda = None\n"


@BOTH
@pytest.mark.parametrize("stated", ["2.5.1+cu124", "2.6.0+cu124", "2.6.0"])
def test_of_two_records_the_one_that_agrees_with_torch_counts(
    env: Path, stated: str, *, static: bool
) -> None:
    site = site_of(env)
    for version in ("2.6.0", "2.5.1"):
        install(site, "torch", version)
    put(site, "torch/version.py", VERSION_PY.format(stated))
    inventory = read(env, static=static)
    mine, other = ("2.5.1", "2.6.0") if stated.startswith("2.5.1") else ("2.6.0", "2.5.1")
    assert inventory.known("pkg.torch") == mine
    assert inventory.known("pkg.torch.leftovers") == (other,)
    assert inventory.known("pkg.torch.own_version") is None
    every = {each.version for each in importlib.metadata.distributions(path=[str(site)], name="torch")}
    duplicates = inventory.known("pkg.torch.duplicates")
    assert isinstance(duplicates, tuple)
    assert every == set(duplicates)


@pytest.mark.parametrize(
    ("recorded", "stated", "differs"),
    [
        ("2.6.0", "2.6.0+cu124", False),
        ("2.6.0+cu124", "2.6.0", False),
        ("2.4.0a0+07cecf4168.nv24.05", "2.4.0a0+07cecf4168.nv24.05", False),
        ("2.6.0", "2.5.1+cu124", True),
    ],
)
def test_torch_whose_files_are_of_another_version(
    env: Path, recorded: str, stated: str, *, differs: bool
) -> None:
    install(site_of(env), "torch", recorded)
    put(site_of(env), "torch/version.py", VERSION_PY.format(stated))
    assert read(env).known("pkg.torch.own_version") == (stated if differs else None)


def test_conda_record_of_a_package_that_was_replaced(tmp_path: Path) -> None:
    site = put(tmp_path, "lib/python3.11/site-packages/x", "").parent
    install(site, "torch", "2.6.0+cu124")
    install(site, "numpy", "1.26.4")
    install(site, "accelerate", "1.2.0.post301")  # conda-forge's own way to number a build
    put(tmp_path, "conda-meta/accelerate-1.2.0-pyhd8ed1ab_0.json", "{}")
    put(tmp_path, "conda-meta/pytorch-2.4.1-py3.11_cuda12.1_cudnn9.1.0_0.json", "{}")
    put(tmp_path, "conda-meta/numpy-1.26.4-py311h64a7726_0.json", "{}")
    inventory = read(tmp_path)
    assert packages(inventory) == {"torch": "2.6.0+cu124", "numpy": "1.26.4", "accelerate": "1.2.0.post301"}
    assert inventory.known("pkg.torch.conda") == "2.4.1"
    assert [inventory.known(f"pkg.{name}.conda") for name in ("numpy", "accelerate")] == [None, None]


def test_cuda_of_a_conda_torch_whose_build_string_lacks_it(tmp_path: Path) -> None:
    files = '{"files": ["lib/python3.11/site-packages/torch/__init__.py"]}'
    put(tmp_path, "lib/python3.11/site-packages/x", "")
    put(tmp_path, "conda-meta/pytorch-2.4.1-py3.11_0.json", files)
    assert isinstance(read(tmp_path).fact("build.torch.cuda").reading, Unknown)
    put(tmp_path, "conda-meta/pytorch-cuda-12.1-ha16c6d3_5.json", "{}")
    assert read(tmp_path).known("build.torch.cuda") == "12.1"


@pytest.mark.parametrize(
    ("path", "named_by"),
    [
        ("/v/bin:/c/bin", "VIRTUAL_ENV"),
        ("/usr/bin:/c/bin:/v/bin", "CONDA_PREFIX"),
        ("/usr/bin", "VIRTUAL_ENV"),
    ],
)
def test_of_two_active_environments_the_one_whose_python_a_shell_starts_is_examined(
    path: str, named_by: str
) -> None:
    environ = {"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "PATH": path}
    folder, why = examine.which_environment(None, Host(environ=environ))
    assert (str(folder), why) == (environ[named_by], f"named by {named_by}")


# --- virtual environments and their bases -------------------------------------------------------------


@BOTH
def test_what_a_virtual_environment_is_made_from(env: Path, tmp_path: Path, *, static: bool) -> None:
    inventory = read(env, static=static)
    assert inventory.known("python.base") == os.path.realpath(sys.base_prefix)
    assert inventory.known("python.system_site") is False
    seeing = read(virtual(tmp_path / "seeing", "--system-site-packages"), static=static)
    assert seeing.known("python.system_site") is True
    assert seeing.fact("python.base_torch").reading == Absent()


def test_torch_of_the_base_that_a_virtual_environment_hides(env: Path, tmp_path: Path) -> None:
    base = put(tmp_path, f"base/lib/python{SHORT}/site-packages/torch/__init__.py", "").parents[4]
    install(base / f"lib/python{SHORT}/site-packages", "torch", "2.8.0a0+34c6371d24.nv25.08")
    settings = (env / "pyvenv.cfg").read_text()
    (env / "pyvenv.cfg").write_text(settings.replace(settings.splitlines()[0], f"home = {base}/bin"))
    inventory = read(env)
    assert inventory.known("python.base_torch") == "2.8.0a0+34c6371d24.nv25.08"
    assert inventory.known("pkg.torch") is None
    install(site_of(env), "torch", "2.6.0")
    assert read(env).fact("python.base_torch").reading == Absent()


def test_externally_managed_interpreter_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/python3.11", "")
    put(tmp_path, "usr/lib/python3.11/EXTERNALLY-MANAGED", "[externally-managed]\n")
    put(tmp_path, "usr/lib/python3/dist-packages/x", "")
    host = Host(tmp_path, {"PATH": "/usr/bin"})
    assert read("/usr/bin/python3.11", host=host).known("python.externally_managed") is True
    put(tmp_path, "srv/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
    put(tmp_path, "srv/venv/lib/python3.11/site-packages/x", "")
    assert read("/srv/venv", host=host).known("python.externally_managed") is None


# --- code that runs at every start --------------------------------------------------------------------


@BOTH
def test_files_that_run_code_at_every_start_are_named_and_read_only(env: Path, *, static: bool) -> None:
    site = site_of(env)
    put(site, "telemetry.pth", "import os; os.environ['SEEN'] = '1'\n")
    put(site, "paths.pth", f"# import nothing\n{env}/somewhere\n important = 1\n")
    put(site, "distutils-precedence.pth", "import os; 1\n")
    put(site, "sitecustomize.py", "")
    code = "import os; print(os.environ.get('SEEN', ''))"
    ran = subprocess.run([env / "bin/python", "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "1"
    inventory = read(env, static=static)
    at = f"lib/python{SHORT}/site-packages"
    assert inventory.known("python.startup_code") == (f"{at}/sitecustomize.py", f"{at}/telemetry.pth")
    assert "SEEN" not in os.environ  # noqa: TID251 - it was not run in this process


# --- large and slow folders ---------------------------------------------------------------------------


def test_folder_that_cannot_be_read_in_time_is_reported_as_partly_read(env: Path) -> None:
    for number in range(300):
        install(site_of(env), f"package{number}", "1.0")
    inventory = read(env, limit=0)
    assert "pkg" not in inventory.complete
    reading = inventory.fact("pkg.package299").reading
    assert isinstance(reading, Unknown)
    assert "not completely read within 0 s" in reading.why


def test_files_that_are_not_records_are_not_opened(env: Path, tmp_path: Path) -> None:
    site = site_of(env)
    install(site, "torch", "2.6.0")
    os.mkfifo(tmp_path / "pipe")
    for number in range(1000):
        os.link(tmp_path / "pipe", site / f"module{number}.py")  # to open one would wait for ever
    assert packages(read(env)) == {"torch": "2.6.0"}


@BOTH
def test_python_without_site_finds_no_packages_and_reports_it(env: Path, *, static: bool) -> None:
    install(site_of(env), "torch", "2.6.0")
    bare = env / "bin/bare"
    bare.write_text(f'#!/bin/sh\nexec {env}/bin/python -S "$@"\n')
    bare.chmod(0o755)
    if static:
        assert read(env, static=True).known("pkg.torch") == "2.6.0"
        return
    inventory = read(bare, static=False)
    truth = subprocess.run(
        [bare, "-I", "-c", "import importlib.metadata as m; print([d.name for d in m.distributions()])"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "torch" not in truth.stdout
    assert inventory.known("pkg.torch") is None
    assert inventory.fact("python.version").reading == Known(".".join(map(str, sys.version_info[:3])))


# --- several copies of a CUDA library -----------------------------------------------------------------


def test_two_copies_of_a_cuda_library_are_named_with_their_owners(tmp_path: Path) -> None:
    site = tmp_path / "opt/env/lib/python3.11/site-packages"
    put(tmp_path, "opt/env/pyvenv.cfg", "version = 3.11.2\n")
    install(site, "torch", "2.0.1+cu118")
    put(site, "torch/lib/libcudart-d0da41ae.so.11.0", "")
    put(site, "torch/lib/libc10.so", "")
    runtime = listed(site, "nvidia/cuda_runtime/lib/libcudart.so.12", "")
    install(site, "nvidia-cuda-runtime-cu12", "12.4.127", record=runtime)
    install(site, "nvidia-nccl-cu12", "2.21.5", record=listed(site, "nvidia/nccl/lib/libnccl.so.2", ""))
    put(tmp_path, "usr/local/cuda/lib64/libnccl.so.2.19.3", "")
    copies = read("/opt/env", host=Host(tmp_path)).known("cuda.copies")
    assert copies == (
        "libcudart: libcudart.so.12 of nvidia-cuda-runtime-cu12, libcudart-d0da41ae.so.11.0 of torch",
        "libnccl: libnccl.so.2 of nvidia-nccl-cu12, libnccl.so.2.19.3 of the toolkit in /usr/local/cuda",
    )


def test_one_copy_of_each_cuda_library_is_not_reported(tmp_path: Path) -> None:
    site = tmp_path / "opt/env/lib/python3.11/site-packages"
    put(tmp_path, "opt/env/pyvenv.cfg", "version = 3.11.2\n")
    install(site, "torch", "2.13.0")
    install(site, "nvidia-nccl-cu13", "2.29.1", record=listed(site, "nvidia/nccl/lib/libnccl.so.2", ""))
    assert read("/opt/env", host=Host(tmp_path)).fact("cuda.copies").reading == Absent()
