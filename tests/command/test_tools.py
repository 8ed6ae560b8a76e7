"""The curators' tools: they refresh tables from an index, and find intervals from the tags of a repository."""

from __future__ import annotations

import subprocess  # noqa: TID251 - tests are users, and the tools use git
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_index import LocalIndex, sdist, serving, wheel
from tests.support.paths import ROOT
from tests.support.running import Outcome, envcheck


def tool(name: str, *arguments: str, **environ: str) -> Outcome:
    """Run a tool as a curator does."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environ},
        check=False,
    )
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


def added(diff: str) -> list[str]:
    return [
        line[1:].strip() for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")
    ]


def removed(diff: str) -> list[str]:
    return [
        line[1:].strip() for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")
    ]


# --- releases ---------------------------------------------------------------------------------------

TABLE = """\
# Releases: a comment that stays.
release = [
  # small: 2 releases
  { package = "small", version = "1.0", date = 2025-01-02, requires_python = ">=3.9", requires = { torch = ">=2.0" }, extras = { fast = { peft = ">=0.1" } }, kinds = ["wheel"] },
  { package = "small", version = "1.2", date = 2025-03-02, requires = { torch = ">=2.0,<3" }, kinds = ["wheel"] },
  # torch: 1 releases
  { package = "torch", version = "2.0", requires = {}, kinds = ["wheel"] },
]
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "releases.toml"
    path.write_text(TABLE)
    return path


def small(
    version: str, requires: tuple[str, ...] = ("torch>=2.0",), python: str = ">=3.9"
) -> tuple[str, bytes]:
    return wheel("small", version, requires, python=python)


KNOWN = dict(
    [small("1.0", ("torch>=2.0", 'peft>=0.1; extra == "fast"')), small("1.2", ("torch<3,>=2.0",), "")]
)


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex(dict(KNOWN), ranges=True, as_json=True)) as served:
        yield served


def refresh(index: LocalIndex, table: Path, *more: str) -> Outcome:
    return tool("refresh_releases.py", "small", "--table", str(table), *more, PIP_INDEX_URL=index.url)


def test_without_news_the_diff_is_empty_even_if_everything_is_read_again(
    index: LocalIndex, table: Path
) -> None:
    assert refresh(index, table) == Outcome(0, "", "")
    assert not [path for path in index.asked if path.startswith("/files/")]
    assert refresh(index, table, "--all") == Outcome(0, "", "")


def test_a_new_release_is_proposed_in_order_and_written_only_with_write(
    index: LocalIndex, table: Path
) -> None:
    for version in ("1.1", "1.3"):
        name, data = small(
            version,
            ("torch<3,>=2.1", "unheard-of>=1", "peft; extra == 'fast'", "torch; sys_platform == 'win32'"),
        )
        index.files[name] = data
        index.said[name] = {"upload-time": f"2025-0{version[-1]}-09T10:00:00Z"}
    ran = refresh(index, table)
    assert ran.code == 1
    assert added(ran.out) == [
        "# small: 4 releases",
        '{ package = "small", version = "1.1", date = 2025-01-09, requires_python = ">=3.9", requires = { torch = ">=2.1,<3" }, kinds = ["wheel"] },',
        '{ package = "small", version = "1.3", date = 2025-03-09, requires_python = ">=3.9", requires = { torch = ">=2.1,<3" }, kinds = ["wheel"] },',
    ]
    assert removed(ran.out) == ["# small: 2 releases"]
    assert table.read_text() == TABLE
    assert refresh(index, table, "--write").code == 0
    assert [line.split('"')[3] for line in table.read_text().splitlines() if '"small"' in line] == [
        "1.0",
        "1.1",
        "1.2",
        "1.3",
    ]
    assert refresh(index, table) == Outcome(0, "", "")


def test_a_release_that_was_yanked_later_is_proposed(index: LocalIndex, table: Path) -> None:
    index.said[small("1.2")[0]] = {"yanked": "broken"}
    assert added(refresh(index, table).out)[0].endswith('kinds = ["wheel"], yanked = true },')


def test_changed_metadata_is_proposed_only_with_all(index: LocalIndex, table: Path) -> None:
    name, data = small("1.2", ("torch>=2.4",), "")
    index.files[name] = data
    assert refresh(index, table).out == ""
    assert 'requires = { torch = ">=2.4" }' in added(refresh(index, table, "--all").out)[0]


def test_pre_releases_and_releases_older_than_the_table_are_left_out(index: LocalIndex, table: Path) -> None:
    index.files.update([small("1.4rc1"), small("1.4.dev1"), small("0.9")])
    assert refresh(index, table).out == ""


def test_metadata_beside_the_wheel_is_preferred(index: LocalIndex, table: Path) -> None:
    name, data = small("1.3")
    index.files[name] = data
    index.files[f"{name}.metadata"] = (
        b"Metadata-Version: 2.1\nName: small\nVersion: 1.3\nRequires-Dist: torch>=9\n"
    )
    index.said[name] = {"core-metadata": True}
    assert 'torch = ">=9"' in refresh(index, table).out
    assert f"/files/{name}" not in index.asked


def test_only_parts_of_a_wheel_are_fetched(index: LocalIndex, table: Path) -> None:
    name, data = wheel("small", "1.3", ("torch>=2.5",), more={"small/weights.bin": bytes(4 * 1024 * 1024)})
    index.files[name] = data
    assert 'torch = ">=2.5"' in refresh(index, table).out
    assert index.sent < 300 * 1024


def test_a_source_distribution_is_read(index: LocalIndex, table: Path) -> None:
    name, data = sdist("small", "1.3")
    index.files[name] = data
    assert (
        added(refresh(index, table).out)[-1]
        == '{ package = "small", version = "1.3", requires = {}, kinds = ["sdist"] },'
    )


def test_an_html_index_page_works_too(table: Path) -> None:
    name, data = small("1.3")
    said: dict[str, dict[str, object]] = {small("1.2")[0]: {"yanked": ""}}
    with serving(LocalIndex({**KNOWN, name: data}, ranges=True, hashes=False, said=said)) as index:
        lines = added(refresh(index, table).out)
    assert any('version = "1.3"' in line for line in lines)
    assert any("yanked = true" in line for line in lines)


def test_without_range_requests_the_release_is_left_out_with_a_message(
    index: LocalIndex, table: Path
) -> None:
    index.ranges = False
    name, data = small("1.3")
    index.files[name] = data
    ran = refresh(index, table)
    assert (ran.code, ran.out) == (0, "")
    assert (
        ran.err
        == "refresh_releases: small 1.3 is left out: the index serves no parts of files (HTTP ranges)\n"
    )


def test_garbage_in_a_wheel_leaves_the_release_out(index: LocalIndex, table: Path) -> None:
    index.files["small-1.3-py3-none-any.whl"] = b"PK\x05\x06" + bytes(200)
    ran = refresh(index, table)
    assert ran.out == ""
    assert "small 1.3 is left out" in ran.err


def test_a_hanging_index_is_given_up_at_the_deadline(index: LocalIndex, table: Path) -> None:
    index.hang_s = 5
    ran = refresh(index, table, "--deadline", "1")
    assert ran.code == 3
    assert len(ran.err.splitlines()) == 1
    assert "127.0.0.1" not in ran.err


def test_a_package_that_is_not_in_the_table_is_refused(index: LocalIndex, table: Path) -> None:
    ran = tool("refresh_releases.py", "other", "--table", str(table), PIP_INDEX_URL=index.url)
    assert ran.code == 2
    assert "not in the table" in ran.err


# --- torch ------------------------------------------------------------------------------------------

TORCH = """\
# A comment that stays.
[[torch]]
version = "2.6.0"
date = 2025-01-29
requires_python = ">=3.9"
python = ["3.11", "3.13t"]
cuda = "12.4"
architectures = ["sm_80", "sm_90"]
ptx = ["9.0"]
cudnn = "9.1.0.70"
nccl = "2.21.5"
triton = "3.2.0"
torchvision = "0.21.0"
manylinux = "manylinux_2_28"
cxx11_abi = false
basis = "measured"

[[variant]]
torch = "2.6.0"
cuda = "11.8"
"""

PINS = (
    'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux"',
    "nvidia-nccl-cu12==2.21.5",
    "triton==3.2.0",
    "numpy>=1",
)


def torch_wheel(
    version: str, python: str = "cp311-cp311", cuda: str = "12.4", arches: bytes = b"sm_80 sm_90 compute_90"
) -> tuple[str, bytes]:
    files = {
        "torch/version.py": f"__version__ = '{version}'\ncuda: Optional[str] = '{cuda}'\n".encode(),
        "torch/lib/libtorch_python.so": b"\x7fELF"
        + bytes(1000)
        + b"sm_80\x00"
        + arches
        + b"\x00"
        + bytes(1000),
        "torch/lib/libtorch_cuda.so": bytes(3 * 1024 * 1024),
        "torch/share/cmake/Torch/TorchConfig.cmake": b'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n',
    }
    return wheel("torch", version, PINS, f"{python}-manylinux_2_28_x86_64", files, ">=3.9")


@pytest.fixture
def torch_table(tmp_path: Path) -> Path:
    path = tmp_path / "torch.toml"
    path.write_text(TORCH)
    return path


@pytest.fixture
def torch_index() -> Iterator[LocalIndex]:
    files = dict(
        [torch_wheel("2.6.0"), torch_wheel("2.6.0", "cp313-cp313t"), torch_wheel("2.6.0+cu118", cuda="11.8")]
    )
    with serving(LocalIndex(files, ranges=True, as_json=True)) as served:
        yield served


def refresh_torch(index: LocalIndex, table: Path, *arguments: str) -> Outcome:
    return tool("refresh_torch.py", *arguments, "--table", str(table), PIP_INDEX_URL=index.url)


def test_a_correct_torch_row_stays_and_little_is_fetched(torch_index: LocalIndex, torch_table: Path) -> None:
    ran = refresh_torch(torch_index, torch_table, "2.6.0")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "refresh_torch: 2.6.0: 0.1 MiB fetched\n"
    assert torch_index.sent < 200 * 1024


def test_fields_that_differ_from_the_wheel_are_proposed(torch_index: LocalIndex, torch_table: Path) -> None:
    wrong = (
        TORCH.replace('cuda = "12.4"', 'cuda = "12.1"')
        .replace('"sm_80", "sm_90"', '"sm_80"')
        .replace('"3.11", ', "")
    )
    torch_table.write_text(wrong.replace("cxx11_abi = false", "cxx11_abi = true"))
    ran = refresh_torch(torch_index, torch_table, "2.6.0")
    assert ran.code == 1
    assert added(ran.out) == [
        'python = ["3.11", "3.13t"]',
        'cuda = "12.4"',
        'architectures = ["sm_80", "sm_90"]',
        "cxx11_abi = false",
    ]


def test_a_new_torch_gets_a_row_after_the_others(torch_index: LocalIndex, torch_table: Path) -> None:
    torch_index.files.update([torch_wheel("2.7.0", cuda="12.6")])
    assert refresh_torch(torch_index, torch_table, "2.7.0", "--write").code == 0
    text = torch_table.read_text()
    assert text.index('version = "2.6.0"') < text.index('version = "2.7.0"') < text.index("[[variant]]")
    assert 'cuda = "12.6"' in text
    assert refresh_torch(torch_index, torch_table, "2.6.0", "2.7.0").out == ""


def test_a_missing_torch_and_an_unknown_wheel_structure_are_one_line(
    torch_index: LocalIndex, torch_table: Path
) -> None:
    ran = refresh_torch(torch_index, torch_table, "2.9.0")
    assert (ran.code, ran.err) == (3, "refresh_torch: the index has no Linux x86_64 wheel of torch 2.9.0\n")
    torch_index.files.update([wheel("torch", "2.8.0", (), "cp311-cp311-manylinux_2_28_x86_64")])
    ran = refresh_torch(torch_index, torch_table, "2.8.0")
    assert (ran.code, ran.out) == (3, "")
    assert "lacks" in ran.err


# --- model types ------------------------------------------------------------------------------------

MODEL_RELEASES = """\
release = [
  { package = "peft", version = "9.9" },
  { package = "transformers", version = "4.34.0" },
  { package = "transformers", version = "4.35.0" },
  { package = "transformers", version = "4.35.1", yanked = true },
  { package = "transformers", version = "4.35.2" },
  { package = "transformers", version = "4.36.0" },
  { package = "transformers", version = "4.36.1" },
  { package = "transformers", version = "4.36.2" },
  { package = "transformers", version = "5.6.0" },
]
"""
MODELS = "# A comment that stays.\n\nmodel = [\n]\n"
AUTO = "transformers/models/auto/"


def configuration(*types: str, wrapped: str = "OrderedDict") -> bytes:
    """Return a configuration_auto.py in the form used up to 5.5; running it would raise."""
    pairs = "".join(f'        ("{each}", "Config"),\n' for each in types)
    special = '{"spelt-otherwise": "old_folder"}'
    return (
        "from collections import OrderedDict\nraise SystemExit('ran')\n"
        f"CONFIG_MAPPING_NAMES = {wrapped}(\n    [\n{pairs}    ]\n)\n"
        f"SPECIAL_MODEL_TYPE_TO_MODULE_NAME = OrderedDict({special})\n"
        "def other():\n    CONFIG_MAPPING_NAMES = OrderedDict([('not-this', 'one')])\n"
    ).encode()


def models_wheel(
    version: str, text: bytes, *folders: str, more: dict[str, bytes] | None = None
) -> tuple[str, bytes]:
    files = {f"{AUTO}configuration_auto.py": text, "transformers/weights.bin": bytes(1024 * 1024)}
    files |= {f"transformers/models/{each}/__init__.py": b"" for each in folders}
    return wheel("transformers", version, more={**files, **(more or {})})


@pytest.fixture
def models_index() -> Iterator[LocalIndex]:
    """Serve releases: `patched` appears in a patch release, `part` has code before it is listed, `left` goes in 5.6."""
    later = (
        b"from .auto_mappings import CONFIG_MAPPING_NAMES\n"
        b'CONFIG_MAPPING_NAMES = OrderedDict(**{"gpt-sw3": "C"}, **CONFIG_MAPPING_NAMES)\n'
        b'CONFIG_MAPPING_NAMES.update({"added": "C"})\n'
    )
    mappings = {f"{AUTO}auto_mappings.py": configuration("llama", "new", "patched", "part")}
    old, mid = ("llama", "old_folder", "deprecated/left"), ("llama", "old_folder", "patched", "part")
    files = dict(
        [
            models_wheel("4.34.0", configuration("llama", "left"), *old),
            models_wheel("4.35.0", configuration("llama", "left"), *old),
            models_wheel("4.35.1", configuration("llama", "left", "patched"), *mid),
            models_wheel("4.35.2", configuration("llama", "left", "patched"), *mid),
            *(
                models_wheel(
                    each,
                    configuration(
                        "llama", "left", "patched", "spelt-otherwise", wrapped="OrderedDict[str, str]"
                    ),
                    *mid,
                )
                for each in ("4.36.0", "4.36.1", "4.36.2")
            ),
            models_wheel("5.6.0", later, *mid, "new", more=mappings),
        ]
    )
    with serving(LocalIndex(files, ranges=True, as_json=True)) as served:
        yield served


@pytest.fixture
def models_table(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(MODELS)
    (tmp_path / "releases.toml").write_text(MODEL_RELEASES)
    return path


def refresh_models(index: LocalIndex, table: Path, *more: str) -> Outcome:
    paths = ("--table", str(table), "--releases", str(table.parent / "releases.toml"))
    return tool("refresh_models.py", *paths, *more, PIP_INDEX_URL=index.url)


def test_a_model_type_starts_with_the_first_release_that_lists_it(
    models_index: LocalIndex, models_table: Path
) -> None:
    ran = refresh_models(models_index, models_table)
    assert ran.code == 1
    assert added(ran.out) == [
        '{ model_type = "left", transformers = "4.34.0", before = true, gone = "5.6.0" },',
        '{ model_type = "llama", transformers = "4.34.0", before = true },',
        '{ model_type = "patched", transformers = "4.35.1", install = "4.35.2" },',
        '{ model_type = "spelt-otherwise", transformers = "4.36.0", before = true, gone = "5.6.0" },',
        '{ model_type = "added", transformers = "5.6.0" },',
        '{ model_type = "gpt-sw3", transformers = "5.6.0" },',
        '{ model_type = "new", transformers = "5.6.0" },',
        '{ model_type = "part", transformers = "5.6.0", code = "4.35.1", install = "4.35.2" },',
    ]
    assert models_table.read_text() == MODELS
    models_table.write_text(f"# Up to the newest release that was read, 4.34.0.\n{MODELS}")
    assert refresh_models(models_index, models_table, "--write").code == 0
    head = "# Up to the newest release that was read, 5.6.0.\n# A comment that stays.\n"
    assert models_table.read_text().startswith(head)
    assert refresh_models(models_index, models_table).out == ""


def test_only_the_needed_parts_of_the_wheels_are_fetched(
    models_index: LocalIndex, models_table: Path
) -> None:
    ran = refresh_models(models_index, models_table)
    assert (
        ran.err == "refresh_models: 7 of 8 releases read\n"
    )  # the first and last 4.36 agree, so those between are skipped
    assert not any("4.36.1" in path for path in models_index.asked)
    assert models_index.sent < 8 * 200 * 1024


def test_a_missing_release_is_reported_and_the_others_are_read(
    models_index: LocalIndex, models_table: Path
) -> None:
    del models_index.files[models_wheel("4.35.0", b"")[0]]
    ran = refresh_models(models_index, models_table)
    assert "the index has no wheel of transformers 4.35.0\n" in ran.err
    assert '{ model_type = "patched", transformers = "4.35.1", install = "4.35.2" },' in added(ran.out)


@pytest.mark.parametrize(
    "text",
    [
        b"CONFIG_MAPPING_NAMES = OrderedDict(read_them())\n",
        b"CONFIG_MAPPING_NAMES = OrderedDict([(f'{x}', 'C')])\n",
        b"CONFIG_MAPPING_NAMES = OrderedDict(llama='C')\n",
        b"CONFIG_MAPPING_NAMES = {} if x else {}\n",
        b"CONFIG_MAPPING_NAMES = (\n",
        b"OTHER = {}\n",
        b"(" * 5000,
    ],
)
def test_an_unknown_way_of_listing_names_changes_nothing(
    text: bytes, models_index: LocalIndex, models_table: Path
) -> None:
    models_index.files.update([models_wheel("4.35.1", text)])
    ran = refresh_models(models_index, models_table, "--write")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("refresh_models: transformers-4.35.1-py3-none-any.whl: ")
    assert len(ran.err.splitlines()) == 1
    assert models_table.read_text() == MODELS


def test_a_model_index_without_ranges_or_that_hangs_is_one_line(
    models_index: LocalIndex, models_table: Path
) -> None:
    models_index.ranges = False
    ran = refresh_models(models_index, models_table)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (3, "", 1)
    models_index.hang_s = 5
    ran = refresh_models(models_index, models_table, "--deadline", "1")
    assert (ran.code, len(ran.err.splitlines())) == (3, 1)
    assert "127.0.0.1" not in ran.err


# --- releases beyond what is known ------------------------------------------------------------------


def test_lint_online_reports_releases_newer_than_the_known_ones(index: LocalIndex, tmp_path: Path) -> None:
    folder = tmp_path / "compat"
    folder.mkdir()
    (folder / "matrix.toml").write_text('[known_through]\nsmall = "1.2"\n')
    ran = envcheck(
        "matrix", "lint", str(folder), "--online", environ={"PIP_INDEX_URL": index.url, "HOME": str(tmp_path)}
    )
    assert (ran.code, ran.out) == (0, "0 errors, 0 notes\n")
    index.files.update([small("1.3rc1"), small("1.4", python=">=3.99")])
    ran = envcheck(
        "matrix", "lint", str(folder), "--online", environ={"PIP_INDEX_URL": index.url, "HOME": str(tmp_path)}
    )
    assert ran.code == 1
    assert (
        "matrix.toml:2: error: small: expected 1.2 as the newest release; found 1.4 [known-through]"
        in ran.out
    )


# --- first tags -------------------------------------------------------------------------------------


class Repository:
    """A small git repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "tag.gpgsign=false",
        ]
        ran = subprocess.run(
            ["git", "-C", str(self.folder), *identity, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return ran.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


class Upstream(Repository):
    """A fault starts after v0.9.0 and is fixed after v0.10.1; the fix is cherry-picked as v0.10.0.post1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.commit("start")
        self.git("tag", "v0.9.0")
        self.broke = self.commit("breaks")
        self.git("tag", "v0.10.0rc1")
        self.git("tag", "v0.10.0")
        self.git("tag", "nightly")
        self.commit("more")
        self.git("tag", "v0.10.1")
        self.fixed = self.commit("mends")
        self.git("tag", "v0.11.0")
        self.unreleased = self.commit("later")
        self.git("checkout", "-q", "-b", "release", "v0.10.0")
        self.picked = self.commit("mends, picked")
        self.git("tag", "v0.10.0.post1")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def first_tag(of: Repository, *arguments: str) -> Outcome:
    return tool("first_tag.py", str(of.folder), *arguments)


def test_the_interval_starts_at_the_first_broken_tag_and_ends_at_the_first_fixed_tag(
    upstream: Upstream,
) -> None:
    ran = first_tag(upstream, "--broke", upstream.broke, "--fixed", upstream.fixed)
    assert ran.code == 0
    assert f"broke  {upstream.broke}  first in 0.10.0 (tag v0.10.0)\n" in ran.out  # neither the rc nor 0.9.0
    assert f"fixed  {upstream.fixed}  first in 0.11.0 (tag v0.11.0)\n" in ran.out
    assert ran.out.endswith("interval  >=0.10.0,<0.11.0\n")


def test_tags_are_sorted_as_versions(upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "main")
    upstream.git("tag", "v0.100.0")
    assert "first in 0.11.0 " in first_tag(upstream, "--fixed", upstream.fixed).out


def test_a_cherry_pick_counts_if_it_is_named(upstream: Upstream) -> None:
    ran = first_tag(upstream, "--broke", upstream.broke, "--fixed", upstream.fixed, upstream.picked)
    assert ran.out.endswith("interval  >=0.10.0,<0.10.0.post1\n")


def test_without_broke_there_is_no_lower_bound_and_without_fixed_no_upper_bound(upstream: Upstream) -> None:
    assert first_tag(upstream, "--fixed", upstream.fixed).out.endswith("interval  <0.11.0\n")
    assert first_tag(upstream, "--broke", upstream.broke).out.endswith("interval  >=0.10.0\n")
    assert first_tag(upstream, "--broke", upstream.broke, "--fixed", upstream.unreleased).out.endswith(
        "interval  >=0.10.0\n"
    )


def test_a_fault_that_was_never_released_has_no_interval(upstream: Upstream) -> None:
    ran = first_tag(upstream, "--broke", upstream.unreleased, "--fixed", upstream.fixed)
    assert ran.code == 1
    assert "in no release" in ran.out
    assert ran.out.endswith("interval  no release has it\n")


def test_a_prefix_leaves_out_tags_of_other_projects(upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "main")
    upstream.git("tag", "other-0.1.0", upstream.broke)
    assert "first in 0.1.0 " in first_tag(upstream, "--broke", upstream.broke).out
    assert "first in 0.10.0 " in first_tag(upstream, "--broke", upstream.broke, "--prefix", "v").out


@pytest.mark.parametrize("commit", ["0123456789", "--all", "HEAD; rm -rf /"])
def test_an_unknown_commit_is_one_line(upstream: Upstream, commit: str) -> None:
    ran = first_tag(upstream, f"--fixed={commit}")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1


def test_a_folder_without_a_repository_is_one_line(tmp_path: Path) -> None:
    ran = tool("first_tag.py", str(tmp_path / "none"), "--fixed", "HEAD")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


# --- shipped locks ----------------------------------------------------------------------------------


def test_a_lock_stays_if_the_index_does_not_answer(tmp_path: Path) -> None:
    name = "zero3-lora/py312-driver580.txt"
    before = (ROOT / "lockfiles" / name).read_text()
    (tmp_path / "tools").mkdir()
    (tmp_path / "lockfiles/zero3-lora").mkdir(parents=True)
    script = tmp_path / "tools/ship_locks.py"
    script.write_text((ROOT / "tools/ship_locks.py").read_text())
    (tmp_path / "lockfiles" / name).write_text(before)
    (tmp_path / "lockfiles/manifest.toml").write_text((ROOT / "lockfiles/manifest.toml").read_text())
    nowhere = {"UV_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}

    ran = tool(str(script), name, PIP_CONFIG_FILE="/dev/null", UV_HTTP_RETRIES="0", **nowhere)

    assert ran.code == 1, ran.err
    assert f"{name}: none; the existing lock stays" in ran.out
    assert (tmp_path / "lockfiles" / name).read_text() == before
    assert 'proven = "trained"' in (tmp_path / "lockfiles/manifest.toml").read_text()


def test_a_cache_is_emptied_only_above_its_limit(tmp_path: Path) -> None:
    cache, environment = tmp_path / "cache", tmp_path / "environment"
    (cache / "wheels").mkdir(parents=True)
    environment.mkdir()
    (cache / "wheels/torch.so").write_bytes(b"x" * 1000)
    (cache / "wheels/the same.so").hardlink_to(cache / "wheels/torch.so")
    (environment / "torch.so").hardlink_to(cache / "wheels/torch.so")
    program = "import sys; from pathlib import Path; import prove_locks; prove_locks.bound_folder(Path(sys.argv[1]), {})"

    for limit, left in ((1000, 1), (999, 0)):
        command = [sys.executable, "-c", program.format(limit), str(cache)]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT / "tools")
        assert len(list(cache.iterdir())) == left
    assert (environment / "torch.so").stat().st_size == 1000


def test_no_second_lock_is_written_for_releases_that_the_usual_one_has() -> None:
    program = """
from pathlib import Path
import ship_locks
usual = ship_locks.FOLDER / "verl/py311-driver580.txt"
for path, bound in ((usual, "==0.9.0"), (usual, "==0.9.1"), (usual.parent / "none.txt", "==0.9.0")):
    print(ship_locks.has_them(path, {"verl": bound}))
wanted = ship_locks.ShippedLock("verl/x.txt", "verl", "3.11", "driver580", "x86_64", {"verl": "==0.9.0"})
print(ship_locks.usual_name(wanted))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(
        command, check=True, timeout=60, cwd=ROOT / "tools", capture_output=True, text=True
    ).stdout.split()
    assert told == ["True", "False", "False", "verl/py311-driver580.txt"]


def test_what_compiles_on_installation_is_not_unpacked_and_the_header_says_how() -> None:
    program = """
from types import SimpleNamespace
import prove_locks, ship_locks
left = prove_locks.left_out(SimpleNamespace(build=("crcmod", "deepspeed", "flash-attn", "oss2")))
proof = {"date": "2026-11-29", "packages": 7, "libraries": 3, "left_out": left}
row = {"proven": "unpacked", "proof": proof, "target": "t", "platform": "linux-x86_64"}
print(ship_locks.in_words(row))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(
        command, check=True, timeout=60, cwd=ROOT / "tools", capture_output=True, text=True
    ).stdout
    assert "7 packages, all but crcmod, flash-attn, fetched with hashes" in told
    assert "; flash-attn is built on installation, which takes a compiler; crcmod is built on" in told
    assert "with a compiler or without" in told


def test_a_lock_without_kernels_is_installed_at_most_and_says_so() -> None:
    program = """
from types import SimpleNamespace
import prove_locks, ship_locks
for without in ((), ("flash-attn",)):
    summary = prove_locks._summary([], [], without)
    row = {"proven": "installed", "proof": summary, "target": "openrlhf", "platform": "linux-x86_64"}
    print(ship_locks.in_words(row))
print(prove_locks._result([SimpleNamespace(result="pass")], []))
"""
    command = [sys.executable, "-c", program]
    whole, hollow, result = subprocess.run(
        command, check=True, timeout=60, cwd=ROOT / "tools", capture_output=True, text=True
    ).stdout.splitlines()
    assert "kernels" not in whole
    assert "flash-attn was built without its kernels, which take nvcc, and imported with an empty" in hollow
    assert "once installed: envcheck selftest --target openrlhf --level 3" in hollow
    assert result == "installed"


def test_code_for_gpus_is_for_no_other_machine(tmp_path: Path) -> None:
    for name, machine in (("kernels/a.cubin", 190), ("arm/b.so", 183), ("both/c.so", 62), ("both/d.so", 183)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little"))
    (tmp_path / "both/notes.txt").write_text("text")
    program = "import sys; from pathlib import Path; import prove_locks; print(sorted((name, sorted(codes.items())) for name, codes in prove_locks.machines_of(Path(sys.argv[1])).items()))"
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=True,
        timeout=60,
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
    ).stdout
    assert told.strip() == "[('arm', [(183, 1)]), ('both', [(62, 1), (183, 1)])]"
