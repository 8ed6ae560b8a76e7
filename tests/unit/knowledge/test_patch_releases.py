"""Hold `benchmarks/patches.tsv` to the rules that it names and to the totals of `benchmarks/patches.md`."""

from __future__ import annotations

import csv
import tomllib

from envcheck.host.package_files import source_texts
from tests.support.paths import ROOT

TABLE, PAGE = ROOT / "benchmarks" / "patches.tsv", ROOT / "benchmarks" / "patches.md"
NOTHING = "nothing in the code of a common training"


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_rule_of_the_table_exists() -> None:
    texts = source_texts("compat", ".toml")
    rules = {
        rule["id"]
        for name, text in texts.items()
        if name.startswith("rules/")
        for rule in tomllib.loads(text)["rule"]
        if "withdrawn" not in rule
    }
    named = [
        row["rule or reason"].split(",")[0].split()[0] for row in rows() if row["told"] in ("told", "new")
    ]
    assert [name for name in named if name not in rules and not name.startswith("atlas:")] == []


def test_the_page_states_the_totals_of_the_table() -> None:
    releases = {(row["package"], row["release"]) for row in rows()}
    unread = {(row["package"], row["release"]) for row in rows() if row["read"] == "not read"}
    faults = [row["told"] for row in rows() if row["mended"] != NOTHING]
    counts = [
        len(releases),
        len(unread),
        *(faults.count(word) for word in ("told", "new", "not told", "not ours")),
    ]
    assert f"| all | {' | '.join(map(str, counts))} |" in PAGE.read_text(encoding="utf-8")
