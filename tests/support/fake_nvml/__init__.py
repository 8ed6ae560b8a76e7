"""A fake NVML library for running the real probe: compiled once, controlled by scenario files.

`library` compiles it. `Box` is a machine with staged files, on which processes are really run.
"""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - the tests compile the library
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envcheck.host.machine import Host

HERE = Path(__file__).parent


def library(folder: Path, without: str = "") -> Path:
    """Return a folder with libnvidia-ml.so.1, compiled on first use; `without` names a symbol to leave out.

    Raises:
        FileNotFoundError: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler (cc): the driver probe is not tested on this machine")
    whole = folder / "whole/libnvidia-ml.so.1"
    if not whole.exists():
        whole.parent.mkdir(parents=True)
        command = [compiler, "-shared", "-fPIC", "-o", str(whole), str(HERE / "fake_nvml.c")]
        subprocess.run(command, check=True, timeout=60)
    built = folder / (without or "whole") / whole.name
    if not built.exists():
        # The first occurrence of the name is the one in the table that the loader searches by hash.
        held, name = whole.read_bytes(), f"\0{without}\0".encode()
        assert name in held, without
        built.parent.mkdir(parents=True)
        built.write_bytes(held.replace(name, b"\0" + b"x" * len(without) + b"\0", 1))
    return built.parent


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the library's folder, which lacks a symbol if one is named; skip without a compiler."""
    folder = tmp_path_factory.mktemp("fake_nvml")

    def build(without: str = "") -> Path:
        try:
            return library(folder, without)
        except FileNotFoundError as missing:
            pytest.skip(str(missing))

    return build


@pytest.fixture
def box(tmp_path: Path, built: Callable[[str], Path]) -> Box:
    """Return a host with the driver's device file, but without a readable kernel module and without a PCI bus."""
    return Box(tmp_path, built("")).put("/dev/nvidiactl")


class LiveTree(Host):
    """A staged tree that counts as the live machine, so that processes are run."""

    __slots__ = ()

    @property
    def staged(self) -> bool:
        """Return False, as if the tree were the live machine."""
        return False


@dataclass
class Box:
    """A machine to probe: files under `root`, the fake library, a scenario."""

    root: Path
    library: Path | None = None
    environ: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, text: str = "") -> Box:
        """Write a file of the machine."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self

    def with_gpus(self, count: int, names: Sequence[str] = ()) -> Box:
        """Put NVIDIA display devices on the PCI bus, and their names into the kernel module's files."""
        for index in range(count):
            address = f"0000:{index + 1:02x}:00.0"
            self.put(f"/sys/bus/pci/devices/{address}/vendor", "0x10de\n")
            self.put(f"/sys/bus/pci/devices/{address}/class", "0x030200\n")
            if index < len(names):
                text = f"Model: \t\t {names[index]}\nIRQ:   \t\t 16\n"
                self.put(f"/proc/driver/nvidia/gpus/{address}/information", text)
        return self

    def host(self, scenario: str = "", environ: Mapping[str, str] | None = None) -> Host:
        """Return the host; its NVML answers as `scenario` says: a text, or the name of a recorded file."""
        kept = HERE / f"{scenario}.ini"
        if scenario and ("\n" in scenario or not kept.exists()):
            kept = self.root / f"scenario{zlib.crc32(scenario.encode())}.ini"
            kept.write_text(scenario)
        played = {"FAKE_NVML": str(kept)} if scenario else {}
        found = {"LD_LIBRARY_PATH": str(self.library)} if self.library else {}
        return LiveTree(self.root, {**found, **played, **self.environ, **(environ or {})})
