"""`envcheck matrix harvest`: published files of releases come into a store, once, with few requests."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands.harvest.store import ReleaseStore
from envcheck.knowledge.release_metadata import parse_release_files
from tests.support.local_index import LocalIndex, sdist, serving, wheel
from tests.support.paths import ROOT
from tests.support.running import Outcome, envcheck
from tests.unit.atlas.test_library_facts import container, image, library
from tests.unit.probes.test_extensions import NEW_ERROR, ZEROS, compiled

PYTHON = {
    "peft/__init__.py": b"from peft.model import x\n",
    "peft/tests/test_x.py": b"",
    "peft/logo.png": b"png",
}
DAY = "2025-03-04T05:06:07Z"


def harvest(index: LocalIndex, store: Path, *arguments: str) -> Outcome:
    """Run the command of this checkout, because only a checkout has the list of packages."""
    environ = {"PIP_INDEX_URL": index.url, "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": "/dev/null"}
    return envcheck("matrix", "harvest", *arguments, "--store", str(store), environ=environ)


def peft(
    version: str, requires: tuple[str, ...] = (), more: Mapping[str, bytes] = PYTHON
) -> tuple[str, bytes]:
    return wheel("peft", version, requires, more=dict(more))


def replace_file(archive: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(archive) as stored:
        files = {each: stored.read(each) for each in stored.namelist()}
    with zipfile.ZipFile(archive, "w") as changed:
        for each, data in {**files, name: content}.items():
            changed.writestr(each, data)


def description(store: Path, package: str, version: str) -> dict[str, Any]:
    with zipfile.ZipFile(store / package / f"{version}.zip") as archive:
        row: dict[str, Any] = json.loads(archive.read("release.json"))
    return row


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_release_is_stored_with_its_python_metadata_and_the_names_of_the_rest(
    tmp_path: Path, as_json: bool, ranges: bool
) -> None:
    name, data = peft("0.14.0", ("torch>=1.13", "pytest; extra == 'dev'"))
    with serving(LocalIndex({name: data}, as_json=as_json, ranges=ranges)) as index:
        ran = harvest(index, tmp_path, "peft")
    assert (ran.code, ran.err) == (0, "peft: 1 releases, 1 fetched (0.0 MiB)\n")
    release = ReleaseStore(tmp_path).open("peft", "0.14.0")
    assert release.requires == ("torch>=1.13", "pytest; extra == 'dev'")
    assert sorted(release.files.names()) == [
        *("peft-0.14.0.dist-info/METADATA", "peft-0.14.0.dist-info/WHEEL", "peft/__init__.py"),
    ]
    assert release.files.read("peft/__init__.py") == PYTHON["peft/__init__.py"]
    assert set(release.others) == {"peft/tests/test_x.py", "peft/logo.png", "peft-0.14.0.dist-info/RECORD"}
    assert release.wheels == (name,)


def test_what_is_stored_is_not_fetched_again_and_only_new_releases_are(tmp_path: Path) -> None:
    files = dict([peft("0.13.0")])
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, tmp_path, "peft")
        sent = index.sent
        again = harvest(index, tmp_path, "peft")
        assert index.sent == sent
        files.update([peft("0.14.0")])
        ran = harvest(index, tmp_path, "peft")
    assert again.err == "peft: 1 releases, 0 fetched (0.0 MiB)\n"
    assert ran.err.startswith("peft: 2 releases, 1 fetched")
    assert ReleaseStore(tmp_path).versions("peft") == ["0.13.0", "0.14.0"]


def test_releases_before_the_first_day_and_pre_releases_are_left_out(tmp_path: Path) -> None:
    old, new = peft("0.1.0"), peft("0.14.0")
    said: dict[str, dict[str, object]] = {
        old[0]: {"upload-time": "2021-12-31T00:00:00Z"},
        new[0]: {"upload-time": DAY},
    }
    files = dict([old, new, peft("0.15.0rc1"), peft("0.15.0.dev1")])
    with serving(LocalIndex(files, as_json=True, ranges=True, said=said)) as index:
        harvest(index, tmp_path, "peft")
    assert ReleaseStore(tmp_path).versions("peft") == ["0.14.0"]
    assert description(tmp_path, "peft", "0.14.0")["uploaded"] == "2025-03-04"


def test_candidates_are_read_where_the_list_of_packages_says_so(tmp_path: Path) -> None:
    files = dict(
        wheel("transformers", version, more={"transformers/__init__.py": b""})
        for version in ("4.57.0", "5.0.0rc0", "5.0.0rc1", "5.0.0")
    )
    tables = tmp_path / "tables"
    with serving(LocalIndex(files, as_json=True, ranges=True)) as index:
        ran = harvest(index, tmp_path / "store", "transformers", "-o", str(tables))
    assert ran.code == 0
    store = ReleaseStore(tmp_path / "store")
    assert store.versions("transformers") == ["4.57.0", "5.0.0"]
    assert store.versions("transformers", candidates=True) == ["4.57.0", "5.0.0rc0", "5.0.0rc1", "5.0.0"]
    assert store.open("transformers", "5.0.0rc1").files.read("transformers/__init__.py") == b""
    table = parse_release_files(
        {"transformers.txt": (tables / "releases" / "transformers.txt").read_text("utf-8")}
    )
    assert table.versions("transformers") == ("4.57.0", "5.0.0")
    assert table.versions("transformers", candidates=True) == ("4.57.0", "5.0.0rc0", "5.0.0rc1", "5.0.0")
    assert table.row("transformers", "5.0.0rc1") is not None


def test_a_release_that_was_yanked_since_is_marked_without_being_fetched(tmp_path: Path) -> None:
    name, data = peft("0.14.0")
    with serving(LocalIndex({name: data}, as_json=True, ranges=True)) as index:
        harvest(index, tmp_path, "peft")
        assert not ReleaseStore(tmp_path).open("peft", "0.14.0").yanked
        sent = index.sent
        index.said[name] = {"yanked": "broken"}
        ran = harvest(index, tmp_path, "peft")
        assert index.sent == sent
    assert "1 read again" in ran.err
    release = ReleaseStore(tmp_path).open("peft", "0.14.0")
    assert release.yanked
    assert release.files.read("peft/__init__.py") == PYTHON["peft/__init__.py"]


def test_files_that_an_installer_moves_to_the_root_are_stored_there(tmp_path: Path) -> None:
    more = {"peft-0.14.0.data/purelib/peft/__init__.py": b"", "peft-0.14.0.data/platlib/peft/_C.so": b""}
    name, data = peft("0.14.0", more=more)
    with serving(LocalIndex({name: data})) as index:
        ran = harvest(index, tmp_path, "peft")
    assert "without code" not in ran.err
    release = ReleaseStore(tmp_path).open("peft", "0.14.0")
    assert "peft/__init__.py" in release.files.names()
    assert "peft/_C.so" in release.others


def test_of_a_large_wheel_only_the_python_part_is_transferred(tmp_path: Path) -> None:
    large = {"vllm/_moe_C.abi3.so": bytes(5_000_000)}
    modules = {f"vllm/m{number}.py": b"import torch\n" * 50 for number in range(300)}
    name, data = wheel("vllm", "0.6.0", more={**large, **modules})
    with serving(LocalIndex({name: data}, ranges=True)) as index:
        harvest(index, tmp_path, "vllm")
        assert index.sent < 700_000
        assert sum("/files/" in path for path in index.asked) <= 4
    release = ReleaseStore(tmp_path).open("vllm", "0.6.0")
    assert "vllm/_moe_C.abi3.so" in release.others
    assert len(release.files.names()) == 302


def test_a_large_library_that_the_list_names_is_read_once_and_not_kept(tmp_path: Path) -> None:
    code = container(image(2, 80, 90_000), image(2, 52, 24))
    more = {"vllm/__init__.py": b"", "vllm/_C.abi3.so": library(code)}
    name, data = wheel("vllm", "0.6.0", ("torch==2.4.0",), "cp38-abi3-manylinux1_x86_64", more)
    with serving(LocalIndex({name: data}, ranges=True)) as index:
        harvest(index, tmp_path / "store", "vllm", "-o", str(tmp_path / "tables"))
        sent = index.sent
        harvest(index, tmp_path / "store", "vllm")
        assert index.sent == sent
    release = ReleaseStore(tmp_path / "store").open("vllm", "0.6.0")
    assert "vllm/_C.abi3.so" in release.others
    table = (tmp_path / "tables/releases/vllm.txt").read_text()
    assert "build 0.6.0.. gpu sm_80\n" in table
    assert "build 0.6.0.. torch ==2.4.0\n" in table


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_symbol_that_a_release_of_torch_does_not_define_is_a_row(tmp_path: Path) -> None:
    def compile_library(name: str, needs: Sequence[str] = (), defines: Sequence[str] = ()) -> bytes:
        options = [f"-Wl,-soname,{name}"]
        path = tmp_path / "built" / name
        return compiled("cc", path, needs=needs, defines=defines, options=options).read_bytes()

    kernel = {"sgl_kernel/common_ops.abi3.so": compile_library("common_ops.abi3.so", needs=[ZEROS])}
    files = dict([wheel("sgl-kernel", "0.2.0", tag="cp39-abi3-manylinux2014_x86_64", more=kernel)])
    for version, defines in (("2.6.0", [ZEROS]), ("2.7.0", [NEW_ERROR])):
        more = {"torch/lib/libtorch_cpu.so": compile_library("libtorch_cpu.so", defines=defines)}
        files.update([wheel("torch", version, tag="cp311-cp311-manylinux1_x86_64", more=more)])
    store, tables = tmp_path / "store", tmp_path / "tables"
    row = f'["symbol", "{ZEROS}", "0.2.0", "2.7.0", "sgl_kernel/common_ops.abi3.so"]'
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, store, "torch", "sgl-kernel")
        replace_file(store / "torch/2.7.0.zip", "release.json", without_symbols(store, "torch", "2.7.0"))
        ran = harvest(index, store, "torch", "sgl-kernel", "-o", str(tables))
    assert "torch: 2 releases, 0 fetched (0.0 MiB), 1 read again\n" in ran.err
    assert row in (tables / "gaps/sgl-kernel.toml").read_text()


def without_symbols(store: Path, package: str, version: str) -> bytes:
    """Return the description of a release as it was written before symbols were read."""
    row = description(store, package, version)
    for facts in row["libraries"].values():
        del facts["needs"], facts["defines"]
    return json.dumps(row).encode()


def test_what_releases_require_is_written_as_a_table_of_all_that_is_stored(tmp_path: Path) -> None:
    files = dict([peft("0.13.0", ("torch>=1.13",)), peft("0.14.0", ("torch>=1.13", "numpy"))])
    store, tables = tmp_path / "store", tmp_path / "tables"
    with serving(LocalIndex(files, ranges=True)) as index:
        ran = harvest(index, store, "peft", "-o", str(tables))
    assert "releases: 1 packages, 0 KiB\n" in ran.out
    lines = (tables / "releases/peft.txt").read_text().splitlines()
    assert lines[1:] == [
        *("release 0.13.0 -", "release 0.14.0 -"),
        *("requires 0.14.0.. numpy", "requires 0.13.0.. torch>=1.13"),
    ]


def test_what_was_read_of_a_release_is_not_read_again(tmp_path: Path) -> None:
    asks = {"peft/__init__.py": b"from transformers import Gone\n"}
    files = dict([peft("0.13.0", more=asks), peft("0.14.0")])
    for version, text in (("4.0.0", b"class Gone: ...\n"), ("5.0.0", b"")):
        name, data = wheel("transformers", version, more={"transformers/__init__.py": text})
        files[name] = data
    store, tables = tmp_path / "store", tmp_path / "tables"
    row = '["name", "transformers.Gone", "0.13.0", "5.0.0", "peft/__init__.py:1"]'
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, store, "peft", "transformers", "-o", str(tables))
        assert row in (tables / "gaps/peft.toml").read_text()
        replace_file(store / "peft/0.13.0.zip", "peft/__init__.py", b"")
        ran = harvest(index, store, "peft", "transformers", "-o", str(tables))
    assert "peft: 2 releases, 0 fetched" in ran.err
    assert row in (tables / "gaps/peft.toml").read_text()


def refresh(index: LocalIndex, store: Path, tables: Path, *packages: str) -> Outcome:
    environ = {"PIP_INDEX_URL": index.url, "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": "/dev/null"}
    arguments = (*packages, "--store", str(store), "-o", str(tables))
    return envcheck("matrix", "refresh", *arguments, environ=environ)


def transformers(version: str, text: bytes) -> tuple[str, bytes]:
    return wheel("transformers", version, more={"transformers/__init__.py": text})


KEPT = b"from transformers import Kept\n"
PEFT_014 = "which `import peft` of peft 0.14.0"


def test_a_refresh_says_first_what_differs_and_what_to_run(tmp_path: Path) -> None:
    asks = {"peft/__init__.py": b"from transformers import Gone\n"}
    both = b"class Gone: ...\nclass Kept: ...\n"
    files = dict([peft("0.13.0", more=asks), transformers("4.0.0", both), transformers("5.0.0", both[16:])])
    store, tables = tmp_path / "store", tmp_path / "tables"
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, store, "peft", "transformers", "-o", str(tables))
        same = refresh(index, store, tables, "peft", "transformers")
        files.update([transformers("5.1.0", b"\n"), peft("0.14.0", more={"peft/__init__.py": KEPT})])
        ran = refresh(index, store, tables, "peft", "transformers")
    assert same.out.splitlines()[0] == "nothing changed"
    assert ran.code == 0
    assert ran.out.splitlines()[:5] == [
        "new: peft 0.14.0",
        "new: transformers 5.1.0 (1 known failure of the release before, too)",
        f"transformers 5.0.0 lacks transformers.Gone, {PEFT_014} needs: no longer expected to fail",
        "to run: peft==0.14.0 transformers==5.0.0, expected to work",
        "to run: peft==0.14.0 transformers==5.1.0, expected to fail",
    ]


def test_a_refresh_does_not_drop_rows_because_the_store_lacks_a_partner(tmp_path: Path) -> None:
    asks = {"peft/__init__.py": b"from transformers import Gone\n"}
    files = dict([peft("0.13.0", more=asks), transformers("4.0.0", b"class Gone: ...\n")])
    files.update([transformers("5.0.0", b"\n")])
    tables = tmp_path / "tables"
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, tmp_path / "store", "peft", "transformers", "-o", str(tables))
        ran = refresh(index, tmp_path / "empty", tables, "peft")
        nowhere = refresh(index, tmp_path / "empty", tmp_path / "nowhere", "peft")
    assert (ran.code, nowhere.code) == (2, 2)
    assert "has no release of transformers, which the table of peft names; harvest it first" in ran.err
    assert "expected the tables of the atlas; start in a checkout, or use -o" in nowhere.err
    assert "transformers.Gone" in (tables / "gaps/peft.toml").read_text()


def test_what_python_dropped_is_a_row_that_a_refresh_keeps_without_a_partner(tmp_path: Path) -> None:
    files = dict([peft("0.13.0", more={"peft/__init__.py": b"import cgi\n"})])
    store, tables = tmp_path / "store", tmp_path / "tables"
    with serving(LocalIndex(files, ranges=True)) as index:
        harvest(index, store, "peft", "-o", str(tables))
        row = '["name", "cgi", "0.13.0", "3.13..3.15", "peft/__init__.py:1"]'
        assert row in (tables / "gaps/peft.toml").read_text()
        again = refresh(index, store, tables, "peft")
    assert (again.code, again.out.splitlines()[0]) == (0, "nothing changed")
    assert row in (tables / "gaps/peft.toml").read_text()


def linked_sdist() -> tuple[str, bytes]:
    """Return a source distribution as DeepSpeed's: a package with links to folders beside it."""
    stem, packed = "deepspeed-0.14.0", io.BytesIO()
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.14.0\n",
        "setup.py": "raise SystemExit('ran')",
        "deepspeed/__init__.py": "",
        "deepspeed/csrc/a.cu": "x",
        "op_builder/builder.py": "class OpBuilder: ...",
        "deepspeed.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.14.0\n",
        "deepspeed.egg-info/requires.txt": "hjson\ntorch\n\n[dev]\npytest\n",
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in texts.items():
            info = tarfile.TarInfo(f"{stem}/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo(f"{stem}/deepspeed/ops/op_builder")
        link.type, link.linkname = tarfile.SYMTYPE, "../../op_builder"
        archive.addfile(link)
    return f"{stem}.tar.gz", packed.getvalue()


def test_without_a_wheel_the_source_distribution_is_read_and_never_run(tmp_path: Path) -> None:
    with serving(LocalIndex(dict([linked_sdist()]))) as index:
        ran = harvest(index, tmp_path, "deepspeed")
    assert ran.code == 0
    release = ReleaseStore(tmp_path).open("deepspeed", "0.14.0")
    assert release.requires == ("hjson", "torch", 'pytest ; extra == "dev"')
    assert "deepspeed/ops/op_builder/builder.py" in release.files.names()
    assert "setup.py" in release.files.names()
    assert release.others == ("deepspeed/csrc/a.cu",)
    assert release.wheels == ()


def test_a_release_that_was_published_without_its_code_is_stored_and_counted(tmp_path: Path) -> None:
    with serving(LocalIndex(dict([sdist("einops", "0.8.0", requires=("torch",))]))) as index:
        ran = harvest(index, tmp_path, "einops")
    assert (ran.code, ran.err) == (0, "einops: 1 releases, 1 fetched (0.0 MiB), 1 without code\n")
    assert ReleaseStore(tmp_path).open("einops", "0.8.0").requires == ("torch",)


def test_what_cannot_be_read_is_one_line_and_exit_code_3_and_the_rest_is_stored(tmp_path: Path) -> None:
    broken = ("peft-0.13.0-py3-none-any.whl", b"no zip archive")
    with serving(LocalIndex(dict([broken, peft("0.14.0")]), ranges=True)) as index:
        ran = harvest(index, tmp_path, "peft", "trl")
    assert ran.code == 3
    assert ReleaseStore(tmp_path).versions("peft") == ["0.14.0"]
    assert [line for line in ran.out.splitlines() if line.startswith("not read")] == [
        "not read: peft 0.13.0: not a readable zip archive (BadZipFile)",
        "not read: trl: the index answers 404 for trl",
    ]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("harvest", "peftt", "--store", "s"), "peftt: not a package of the atlas; did you mean 'peft'?"),
        (("harvest", "peft"), "--store: expected a folder for the fetched files"),
        (("show", "peft", "torch", "trl"), "trl: expected at most 2 subjects, found 3"),
        (("lint", "a", "b"), "b: expected at most 1 subject, found 2"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = envcheck("matrix", *arguments, cwd=tmp_path, environ={"PYTHONPATH": str(ROOT)})
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
