"""Real image builds: a Debian root that is created once, buildah without Docker, stand-in wheels for the stack.

debootstrap creates the root, which is kept as a tar file in the folder that ENVCHECK_IMAGES names, or else in
pytest's cache. If a program, root rights or the network are missing, the tests are skipped with that reason.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT
from tests.support.running import folder_lock

SUITE = "bookworm"  # the oldest Debian whose Python envcheck runs on
LEFT_OUT = tuple(
    f"./{path}"
    for path in (
        *(
            "boot",
            "usr/share/doc",
            "usr/share/locale",
            "usr/share/man",
            "usr/share/zoneinfo",
            "usr/share/perl",
        ),
        *(
            "usr/lib/x86_64-linux-gnu/gconv",
            "usr/lib/x86_64-linux-gnu/perl",
            "usr/lib/systemd",
            "usr/lib/udev",
        ),
        *("var/cache/apt", "var/lib/apt/lists", "var/lib/dpkg/info"),
    )
)
"""Folders that no test needs; every build copies the others."""

LIBRARIES = ("typer", "rich", "packaging", "yaml", "pynvml.py", "shellingham", "markdown_it", "mdurl", "pygments",
             "typing_extensions.py", "annotated_doc", "click")  # fmt: skip
"""Modules that envcheck imports, by their names in the tests' environment."""

SHIM = "#!/opt/judge/bin/python3\nfrom envcheck.__main__ import main\nmain()\n"


class Built(NamedTuple):
    """The result of a build: buildah's exit code and output."""

    code: int
    out: str


def run(*command: str | Path, timeout: float = 300, cwd: Path | None = None) -> Built:
    ran = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        cwd=cwd,
    )
    return Built(ran.returncode, ran.stdout + ran.stderr)


def debian(kept: Path) -> Path:
    """Return the tar file of a minimal Debian with Python and pip; create it if the folder lacks it."""
    file = kept / f"{SUITE}-python-venv.tar"
    if file.is_file():
        return file
    for program in ("debootstrap", "buildah"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: no image is built here (Debian has both as packages)")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root: no image is built here")
    folder = kept / "root"
    made = run(
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-pip,python3-venv",
        SUITE,
        folder,
        timeout=560,
    )
    try:
        if made.code:
            said = [line for line in made.out.splitlines() if line.strip()]
            pytest.skip(
                f"debootstrap failed, so no image is built here: {said[-1] if said else 'no network?'}"
            )
        draft = file.with_suffix(".part")
        with tarfile.open(draft, "w") as archive:
            archive.add(folder, ".", filter=_kept)
        draft.rename(file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return file


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.startswith(LEFT_OUT) or member.isdev() else member


class Builder:
    """Builds images from Dockerfiles, with a base image that has envcheck in /opt/judge."""

    def __init__(self, folder: Path) -> None:
        """Keep all files below `folder`, which `close` removes."""
        self.folder = folder

    def buildah(self, *words: str | Path, timeout: float = 300, cwd: Path | None = None) -> Built:
        store = ("--root", self.folder / "store", "--runroot", self.folder / "run")
        return run("buildah", "--storage-driver", "vfs", *store, *words, timeout=timeout, cwd=cwd)

    def base(self, debian_tar: Path) -> None:
        """Build the base image: Debian, and envcheck installed apart from the environment that is judged."""
        context = self.folder / "base"
        site = context / "opt/judge/lib/python3.11/site-packages"
        site.mkdir(parents=True)
        wheels = self.folder / "wheel"
        made = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=ROOT)
        assert made.code == 0, made.out
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as archive:
            archive.extractall(site)  # noqa: S202 - our own wheel
        ours = Path(next(path for path in sys.path if path.endswith("site-packages")))
        for name in LIBRARIES:
            if (ours / name).is_dir():
                shutil.copytree(
                    ours / name, site / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
                )
            elif (ours / name).is_file():
                shutil.copy(ours / name, site / name)
        (context / "opt/judge/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
        programs = context / "opt/judge/bin"
        programs.mkdir()
        (programs / "python3").symlink_to("/usr/bin/python3")
        (context / "usr/local/bin").mkdir(parents=True)
        (context / "usr/local/bin/envcheck").write_text(SHIM)
        (context / "usr/local/bin/envcheck").chmod(0o755)
        (self.folder / "Dockerfile").write_text(f"FROM scratch\nADD {debian_tar.name} /\nCOPY base /\n")
        shutil.copy(debian_tar, self.folder / debian_tar.name)
        made = self.buildah("bud", "--isolation", "chroot", "-t", "base", ".", cwd=self.folder)
        assert made.code == 0, made.out

    def build(
        self,
        dockerfile: str,
        files: Mapping[str, bytes | str],
        *options: str,
        tag: str = "",
        base: str = "localhost/base",
    ) -> Built:
        """Build an image of these lines after `FROM base`, with these files beside the Dockerfile.

        Without a base, the lines are a whole Dockerfile.
        """
        context = self.folder / "context"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        for name, content in files.items():
            path = context / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        first = f"FROM {base}\n" if base else ""
        (context / "Dockerfile").write_text(f"{first}{dockerfile}\n")
        named = ("-t", tag) if tag else ()
        return self.buildah("bud", "--isolation", "chroot", *options, *named, ".", cwd=context)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def wheel(
    name: str, version: str, requires: tuple[str, ...] = (), more: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, bytes]:
    """Return the file name and bytes of a wheel whose RECORD has a hash for every file."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    files = {
        **more,
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_hash(text)},{len(text.encode())}\n" for path, text in files.items())
    files[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"wheels/{stem}-py3-none-any.whl", packed.getvalue()


def repacked(name: str) -> tuple[str, bytes]:
    """Return the file name and bytes of a wheel made of an installed package, without its compiled files."""
    installed = importlib.metadata.distribution(name)
    stem = f"{installed.name.replace('-', '_')}-{installed.version}"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in installed.files or ():
            about = path.parts[0].endswith(".dist-info")
            if path.suffix not in (".so", ".pyc") and not about and ".." not in path.parts:
                archive.writestr(str(path), path.read_binary())
        archive.writestr(f"{stem}.dist-info/METADATA", installed.read_text("METADATA") or "")
        tag = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{stem}.dist-info/WHEEL", tag)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{stem}-py3-none-any.whl", packed.getvalue()


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def torch(version: str, cuda: str | None) -> tuple[str, bytes]:
    """Return a wheel of a torch that only states its build; the test fails if torch is imported."""
    said = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\ngit_version = 'abc'\nhip: Optional[str] = None\n"
    loud = "open('/imported', 'w').close()\nraise SystemExit('torch was imported')\n"
    return wheel("torch", version, more={"torch/version.py": said, "torch/__init__.py": loud})


@pytest.fixture(scope="session")
def builder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    named = os.environ.get("ENVCHECK_IMAGES")  # noqa: TID251
    kept = Path(named) if named else Path(request.config.cache.mkdir("envcheck-images"))
    for program in ("buildah", "cc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: no image is built here")
    with folder_lock(kept):  # another process of the same tests may be creating it
        tar = debian(kept)
    made = Builder(tmp_path_factory.mktemp("images"))
    made.base(tar)
    yield made
    made.close()
