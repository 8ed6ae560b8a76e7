"""Install shipped locks and train their targets: `prove_locks.py [--uv] [--files|--without-kernels] NAME…`.

Each lock (`zero3-lora/py312-driver580.txt`) is installed into a separate environment (5 GB with CUDA
packages, removed afterwards) by the commands in its header, or by uv with the same options; locks with the
same pins share one. Then `pip check` must pass, and the self-tests of the target run in that environment, up
to level 3 on two ranks.

A lock is "trained" if a self-test that stands for all training facts of its target passed, and none failed.
It is "installed" if none of these tests can run without a GPU and no other failed. A lock for another kind of
machine, such as linux-aarch64, is "unpacked" instead: uv fetches every file with its hash and unpacks it,
and no rule may refuse what the files say (metadata, requirements, libraries). Nothing of them is run.
Packages that exist as source only are built here if that compiles nothing, and are left out otherwise. With
`--files`, a lock for this machine is treated so too, which takes less time.

With `--without-kernels`, packages of KERNELS are built without their compiled code, which takes
nvcc. An empty module takes the place of that code, so that whatever imports it is imported too. Such a lock
is "installed" at most, the record names these packages in `without_kernels`, and their own self-tests do not
run.

The result is written to lockfiles/manifest.toml and into the lock's header. The self-tests that were run are
added to compat/matrix.toml as cells. uv's cache lies in a separate folder, which is emptied when it exceeds
CACHE_GIB, and removed at the end. The result is valid only as long as the lock has the pins that were
tested. An interpreter of the lock's Python version must be on PATH, unless the lock is only unpacked, which
takes uv.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import shutil
import subprocess  # noqa: TID251 - a tool for curators, run by hand
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ship_locks import FOLDER, INSTALLED, TRAINED, UNPACKED, in_words, read_manifest, write_manifest

from envcheck.commands import examine, loading, selftest
from envcheck.commands.declared_machine import declare_machine
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.measure import tests_digest
from envcheck.commands.measured_cells import cell_toml, cells_of
from envcheck.commands.selftest.selection import UNUSED_KERNELS, select
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.rules import Severity, Target
from envcheck.host.machine import Host
from envcheck.lock.install import BUILDS, needs_torch
from envcheck.lock.model import Lock, pin_lines
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements
from envcheck.probes import every_probe
from envcheck.selftest.outcome import Outcome
from envcheck.selftest.report import tally

INSTALL_S = 1800
CACHE_GIB = 20
"""Size in GiB above which uv's cache is emptied; the files of one lock take up to 10."""
LEVEL, RANKS = 3, 2
MATRIX = FOLDER.parent / "compat/matrix.toml"
ELF_MACHINES = {"linux-x86_64": 62, "linux-aarch64": 183}
"""The numbers of machines in the header of an ELF file."""
ELF_CUDA = 190
"""The number in files for GPUs (flashinfer-cubin has thousands), which are the same for every machine."""


class Kernels(NamedTuple):
    """Hold how a package is built without its kernels: the build's variables, and their module."""

    settings: Mapping[str, str]
    module: str


KERNELS: Mapping[str, Kernels] = {
    # setup.py of 2.8.3: without FORCE_BUILD it first looks for a wheel that upstream has built.
    "flash-attn": Kernels(
        {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"},
        "flash_attn_2_cuda",
    )
}


class Proof(NamedTuple):
    """What a lock's tests showed: `result` is TRAINED, INSTALLED, UNPACKED, or empty if one failed."""

    result: str
    summary: Mapping[str, Any]
    cells: Sequence[Mapping[str, Any]]


def prove(names: Sequence[str], *, uv: bool, kernels: bool = True) -> dict[str, Proof]:
    """Install locks with the same pins once, and test them; return the proof of each.

    A self-test that several of their targets select runs once. Without `kernels`, packages of KERNELS are
    built without their compiled code.

    Raises:
        RuntimeError: the locks cannot be installed.
    """
    locks = {name: parse_requirements((FOLDER / name).read_text(encoding="utf-8"), name) for name in names}
    first = locks[names[0]]
    without = () if kernels else tuple(name for name in first.build if name in KERNELS)
    done: dict[tuple[str, str], Outcome] = {}
    proofs = {}
    with tempfile.TemporaryDirectory(prefix="envcheck-lock-") as folder:
        python = _installed(render_requirements(first), first, Path(folder), uv=uv, without=without)
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # noqa: TID251
        host = Host(Path("/"), variables)
        options = selftest.SelftestOptions(level=LEVEL, ranks=RANKS, device="cpu", patience=3.0)
        prepared = selftest.prepare(ExamineRequest(python=python), host)
        python_version = str(prepared.inventory.known("python.version"))
        for name, lock in locks.items():
            target = loading.knowledge().targets[lock.target]
            for_target = prepared._replace(target=target)
            selected = [
                each
                for each in select(for_target, options, "cpu", host)
                if each.variant.name not in without  # its self-test is about the kernels
            ]
            wanted = [(each.claim.name, each.variant.name) for each in selected if not each.skipped]
            if left := tuple(variant for claim, variant in wanted if (claim, variant) not in done):
                for each in selftest.run(for_target, replace(options, only=left), "cpu", host):
                    done[each.claim.name, each.variant.name] = each
            outcomes = [done[each] for each in wanted]
            _print_failures(outcomes)
            head = _head(lock, target, options, python_version)
            cells = [{**head, **cell} for cell in cells_of(outcomes, target) if not without]
            unused = [each.variant.name for each in selected if each.skipped.startswith(UNUSED_KERNELS)]
            proofs[name] = Proof(_result(outcomes, cells), _summary(outcomes, unused, without), cells)
    return proofs


def _head(
    parsed: Lock, target: Target, options: selftest.SelftestOptions, python_version: str
) -> dict[str, Any]:
    pins = {pin.name: pin.version for pin in parsed.pins}
    return {
        "target": target.name,
        "pkg": {name: pins[name] for name in target.packages},
        "python": python_version,
        "device": "cpu",
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "test": tests_digest(options),
    }


def _result(outcomes: Sequence[Outcome], cells: Sequence[Mapping[str, Any]]) -> str:
    counts = tally(outcomes)
    if counts["fail"] or counts["unknown"] or not counts["pass"]:
        return ""
    return TRAINED if any(cell["outcome"] == "ok" for cell in cells) else INSTALLED


def _summary(
    outcomes: Sequence[Outcome], unused: Sequence[str], without: Sequence[str] = ()
) -> dict[str, Any]:
    counts = tally(outcomes)
    return {
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "device": "cpu",
        "ranks": RANKS,
        **{key: counts[key] for key in ("pass", "fail", "unknown")},
        **({"unused": [*unused]} if unused else {}),
        **({"without_kernels": [*without]} if without else {}),
    }


def _print_failures(outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        if each.result in ("fail", "unknown"):
            print(f"    {each.result} {each.claim.name}/{each.variant.name}: {each.why}\n{each.trace}")


def _installed(text: str, parsed: Lock, folder: Path, *, uv: bool, without: Sequence[str] = ()) -> str:
    """Create an environment with the commands in the lock's header; return its interpreter.

    The packages `without` kernels get an empty module in their place.
    """
    settings = {key: value for name in without for key, value in KERNELS[name].settings.items()}
    base = shutil.which(f"python{parsed.python}")
    if base is None:
        raise RuntimeError(f"no python{parsed.python} on PATH")
    env = folder / "env"
    python = str(env / "bin/python")
    _run([base, "-m", "venv", str(env)], folder)
    (folder / "requirements.txt").write_text(text, encoding="utf-8")
    for command in re.findall(r"^#   (.+)$", text, re.MULTILINE):
        by_uv = command.replace("python -m pip install", f"uv pip install --python {python}")
        _run(["bash", "-euo", "pipefail", "-c", by_uv if uv else command], folder, env, settings)
    site = env / f"lib/python{parsed.python}/site-packages"
    for name in without:
        (site / f"{KERNELS[name].module}.py").write_text(
            f'"""Stand in for the kernels of {name}."""\n', "utf-8"
        )
    _run(["uv", "pip", "check", "--python", python] if uv else [python, "-m", "pip", "check"], folder)
    return python


# --- locks for another kind of machine --------------------------------------------------------------


def unpack(names: Sequence[str]) -> dict[str, Proof]:
    """Unpack locks with the same pins once, and judge their files for each target; return the proof of each.

    Raises:
        RuntimeError: the files cannot be fetched, or uv cannot unpack them.
    """
    locks = {name: parse_requirements((FOLDER / name).read_text(encoding="utf-8"), name) for name in names}
    with tempfile.TemporaryDirectory(prefix="envcheck-lock-") as folder:
        site = _unpacked(next(iter(locks.values())), Path(folder))
        machines = machines_of(site)
        return {name: _judged_files(lock, Path(folder), machines) for name, lock in locks.items()}


def _unpacked(parsed: Lock, folder: Path) -> Path:
    """Unpack every file of a lock as if for its machine; return the folder of the packages."""
    site = folder / f"lib/python{parsed.python}/site-packages"
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(f"home = {sys.prefix}/bin\nversion = {parsed.python}.0\n", "utf-8")
    kept = [pin for pin in parsed.pins if pin.name not in left_out(parsed)]
    (folder / "requirements.txt").write_text(pin_lines(kept), encoding="utf-8")
    built = [name for name in parsed.build if name not in left_out(parsed)]
    _, _, architecture = parsed.platform.partition("-")
    uvs_name = f"{architecture}-manylinux_{parsed.glibc.replace('.', '_')}"
    command = ["uv", "pip", "install", "--quiet", "--target", str(site), "--python", sys.executable]
    command += ["--python-version", parsed.python, "--python-platform", uvs_name, "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:"]
    command += [word for name in built for word in ("--no-binary", name)]
    settings = [setting for name in built for setting in BUILDS[name].settings.split()]
    _run(["env", *settings, *command, "-r", "requirements.txt"], folder)
    return site


def left_out(parsed: Lock) -> tuple[str, ...]:
    """Return the packages of a lock that are not unpacked, because their build compiles or needs torch."""
    compiled = (name for name in parsed.build if name in BUILDS and BUILDS[name].compiles)
    return tuple(sorted({*needs_torch(parsed.build), *compiled}))


def machines_of(site: Path) -> Mapping[str, Counter[int]]:
    """Return by folder of `site` for which machines its files are compiled, and how many; not for GPUs."""
    found: dict[str, Counter[int]] = {}
    for path in site.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if (code := elf_machine(path)) not in (None, ELF_CUDA):
            found.setdefault(path.relative_to(site).parts[0], Counter())[code] += 1
    return found


def elf_machine(path: Path) -> int | None:
    """Return the number of the machine for which a file was compiled; None if it is no ELF file."""
    with path.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") else None


def _judged_files(parsed: Lock, environment: Path, machines: Mapping[str, Counter[int]]) -> Proof:
    """Judge the unpacked packages on the machine that the lock is for; print what refuses them."""
    probes, matrix = every_probe(), loading.knowledge()
    request = ExamineRequest(python=str(environment), static=True, target=parsed.target, deadline_s=INSTALL_S)
    host = Host(Path("/"), dict(os.environ))  # noqa: TID251
    _, read, _ = examine.take_inventory(request, host, probes, matrix, loading.vocabulary(probes))
    packages = [fact for key, fact in read.facts.items() if not key.startswith(("host.", "driver.", "gpu"))]
    driver = next((value for key, _, value in parsed.needs if key == "driver.version"), None)
    declared = declare_machine(
        Inventory({}), matrix, platform=parsed.platform, glibc=parsed.glibc, driver=driver
    )
    packages += [
        Fact(package_key(pin.name), Known(pin.version), "the lock")
        for pin in parsed.pins
        if pin.name in left_out(parsed)
    ]
    inventory = declared.with_facts(packages)._replace(complete=read.complete)
    report = examine.report_on(str(environment), inventory, matrix, matrix.targets[parsed.target])
    errors = [
        each for each in report.judgement.findings if each.decided and each.rule.severity is Severity.ERROR
    ]
    for each in errors:
        print(f"    {each.rule.id}: {each.rule.title}")
    missing = [pin.name for pin in parsed.pins if inventory.known(package_key(pin.name)) != pin.version]
    for name in missing:
        print(f"    {name}: not unpacked")
    # Some packages have helper programs for several machines.
    here = ELF_MACHINES[parsed.platform]
    foreign = [folder for folder, codes in machines.items() if not codes[here]]
    for folder in foreign:
        print(f"    {folder}: compiled for another machine")
    summary = {
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "packages": len(parsed.pins) - len(left_out(parsed)),
        "libraries": sum(codes[here] for codes in machines.values()),
        **({"left_out": [*left_out(parsed)]} if left_out(parsed) else {}),
    }
    return Proof("" if errors or missing or foreign else UNPACKED, summary, ())


def _run(
    command: list[str], folder: Path, env: Path | None = None, settings: Mapping[str, str] | None = None
) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # noqa: TID251
    environ |= settings or {}
    if env is not None:
        environ["PATH"] = f"{env / 'bin'}{os.pathsep}{environ['PATH']}"
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_S, check=False, cwd=folder, env=environ
    )
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)[:80]}: {(ran.stderr or ran.stdout).strip()[-800:]}")


def record(name: str, proof: Proof) -> None:
    """Write a proof into the manifest, the lock's header and the cells."""
    rows = read_manifest()
    row = next(each for each in rows if each["name"] == name)
    row |= {"proven": proof.result, "proof": proof.summary}
    write_manifest(rows)
    path = FOLDER / name
    lock = parse_requirements(path.read_text(encoding="utf-8"), name)
    path.write_text(render_requirements(replace(lock, proof=in_words(row))), encoding="utf-8")
    known = MATRIX.read_text(encoding="utf-8")
    new = [cell_toml(cell) for cell in proof.cells if cell["outcome"] == "ok"]
    MATRIX.write_text(known + "".join(text for text in new if text not in known), encoding="utf-8")


def main(words: list[str]) -> int:
    """Test the named locks; return 1 if one of them does not install, unpack or train."""
    status = 0
    names = [word for word in words if not word.startswith("--")]
    rows = read_manifest()
    digests = {each["name"]: (each["python"], each["pins"]) for each in rows}
    platforms = {each["name"]: each["platform"] for each in rows}
    here = f"{sys.platform}-{platform.machine()}"
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if name not in digests:
            print(f"{name}: not in lockfiles/manifest.toml")
            return 2
        groups.setdefault(digests[name], []).append(name)
    with tempfile.TemporaryDirectory(prefix="envcheck-uv-cache-") as cache:
        os.environ["UV_CACHE_DIR"] = cache  # noqa: TID251
        for group in groups.values():
            bound_folder(Path(cache), CACHE_GIB * 2**30)
            try:
                foreign = "--files" in words or platforms[group[0]] != here
                whole = "--without-kernels" not in words
                proofs = unpack(group) if foreign else prove(group, uv="--uv" in words, kernels=whole)
            except RuntimeError as error:
                print(f"{', '.join(group)}: {error}", flush=True)
                status = 1
                continue
            for name, proof in proofs.items():
                if proof.result:
                    record(name, proof)
                status = status or int(not proof.result)
                print(f"{name}: {proof.result or 'failed'} {dict(proof.summary)}", flush=True)
    return status


def bound_folder(folder: Path, limit: int) -> None:
    """Empty a folder if its files take more than `limit` bytes; a file with several names counts once."""
    files = (path.lstat() for path in folder.rglob("*") if not path.is_dir())
    sizes = {file.st_ino: file.st_size for file in files}
    if sum(sizes.values()) > limit:
        for child in folder.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
