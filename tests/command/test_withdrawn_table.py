"""`tools/refresh_withdrawn.py` reads which releases were yanked, and why, from the pages of an index."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from refresh_withdrawn import packages_to_read, refreshed_table, withdrawn

from envcheck.resolver_backends.index.pages import ListedFile


def _file(name: str, *, yanked: bool = False, reason: str = "") -> ListedFile:
    return ListedFile(name, "", "", f"https://example.org/{name}", yanked, reason=reason)


def test_a_release_counts_if_all_its_files_are_yanked() -> None:
    files = [
        _file("demo-1.0.0-py3-none-any.whl", yanked=True),
        _file("demo-1.0.0.tar.gz", yanked=True, reason="broken\nsetup"),
        _file("demo-1.1.0-py3-none-any.whl", yanked=True, reason="one file of two"),
        _file("demo-1.1.0.tar.gz"),
        _file("demo-2.0.0rc1.tar.gz", yanked=True),
        _file("demo-2.0.0.tar.gz", yanked=True),
    ]
    assert [*withdrawn("demo", files)] == [
        {"package": "demo", "version": "1.0.0", "reason": "broken setup"},
        {"package": "demo", "version": "2.0.0"},
    ]


def test_packages_that_were_not_read_keep_their_rows() -> None:
    before = '# Head.\n\nwithdrawn = [\n  { package = "a", version = "1" },\n  { package = "b", version = "2" },\n]\n'
    after = refreshed_table(before, {"a": [], "c": [{"package": "c", "version": "3", "reason": "x"}]})
    assert after == (
        '# Head.\n\nwithdrawn = [\n  { package = "b", version = "2" },\n'
        '  { package = "c", version = "3", reason = "x" },\n]\n'
    )


def test_the_atlas_and_the_table_name_the_packages_to_read(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("# one: what each release requires\n1.0 2024-01-02 yanked\n")
    (tmp_path / "two.txt").write_text("# two: what each release requires\n1.0 2024-01-02\n")
    assert packages_to_read(tmp_path, 'withdrawn = [{ package = "three", version = "1" }]') == [
        "one",
        "three",
    ]
