"""Judge the environments of issue threads by the versions that the threads state.

`python benchmarks/threads.py [-v]` reads threads.tsv. It has a row for each environment: repository and
number of its thread, whether training failed or worked (possibly after the fix), the packages or parts that
the failure concerns, and the facts that the thread states. Versions that a thread does not state are left
out; if the failure depends on one, the version of the thread's date is used. Only failures that versions,
machine and settings decide are listed. For each sample it prints how many failures have an error or a
warning, and how many working environments have an error. `-v` lists the wrong answers. Findings about
something else count too, so read them.

Sample 1 was drawn on 2026-11-23, and the causes of its misses were fixed. Sample 2 was drawn, written down
and judged once after that, so its first figure is an estimate for threads that were not read before.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck import probes
from envcheck.commands.examine import knowledge, report_on, vocabulary
from envcheck.core.facts_file import load
from envcheck.core.findings import Report, Verdict
from envcheck.core.rules import Severity

TABLE = Path(__file__).with_name("threads.tsv")


def judged(facts: str) -> Report:
    """Return the report on facts such as `pkg.torch=2.6.0; gpu.name=Tesla T4`."""
    tree: dict[str, Any] = {}
    for part in facts.split("; "):
        key, _, text = part.partition("=")
        family, _, name = key.partition(".")
        value: str | int | bool = text
        if text in ("true", "false"):
            value = text == "true"
        elif text.isdecimal():
            value = int(text)
        if family == "gpu":
            tree["gpu"] = [{name: value}]
        else:
            tree.setdefault(family, {})[name] = value
    keys = vocabulary(probes.every_probe())
    return report_on("threads.tsv", load(tree, "threads.tsv", keys), knowledge(), None)


def is_told(outcome: str, report: Report) -> bool:
    """Return whether a report accuses its environment: errors always count, warnings only for failures."""
    telling = {Severity.ERROR, Severity.WARNING} if outcome == "fails" else {Severity.ERROR}
    return any(
        each.verdict is Verdict.BROKEN and each.severity in telling for each in report.judgement.findings
    )


def main() -> int:
    """Judge all rows and print the figures."""
    counts: Counter[tuple[str, str]] = Counter()
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            told = is_told(row["outcome"], judged(row["facts"]))
            counts[row["sample"], row["outcome"]] += 1
            counts[row["sample"], f"{row['outcome']}: told"] += told
            if "-v" in sys.argv and told != (row["outcome"] == "fails"):
                print(f"{row['thread']} {row['outcome']}: {row['facts']}")
    for sample in sorted({key[0] for key in counts}):
        of = {name: counts[sample, name] for name in ("fails", "fails: told", "works", "works: told")}
        print(
            f"sample {sample}: {of['fails: told']} of {of['fails']} failures told, "
            f"{of['works: told']} of {of['works']} working environments accused"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
