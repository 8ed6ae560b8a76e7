"""Records in compat/proofs/: what was found when the bounds of a rule were proven."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Tri
from envcheck.core.parsing import parse_toml
from envcheck.core.rules import Rule
from envcheck.knowledge.proofs.declaration import Proof

FOLDER = "proofs/"
"""The folder of compat/ that holds the records: one file for each file of rules."""


RUN = " run"
"""Ends the side of a fix with which a program was run."""

OTHERWISE = "fails otherwise: "
NOT_BUILT = "not built: "
NOT_DONE = "not done within "
"""Begin what is seen of a program that neither passed nor failed as stated: it shows nothing of a bound."""


class SeenRelease(NamedTuple):
    """What was found in one release.

    Attributes:
        package: the package that was opened or run.
        version: its release.
        side: `inside` the bounds of the rule, `outside` them, or `fix N`: advised by the Nth fix; `fix N run`
            if a program was run with all that the fix advises.
        agrees: whether what was found is what the rule states.
        seen: the line, name, bound or message that shows it.

    """

    package: str
    version: str
    side: str
    agrees: bool
    seen: str

    @property
    def shows(self) -> bool:
        """Return whether this tells on which side of a bound the release is."""
        return not self.seen.startswith((OTHERWISE, NOT_BUILT, NOT_DONE))

    @property
    def name(self) -> str:
        """Return the release as records and messages spell it."""
        return f"{self.package} {self.version}"


class ProofRecord(NamedTuple):
    """All that was found for one rule, on which day (ISO), and the digest of what was looked for."""

    rule: str
    date: str
    digest: str
    opened: tuple[SeenRelease, ...]


def proof_digest(row: Mapping[str, Any]) -> str:
    """Return the digest of a rule's clauses, fixes and proof, as written; editing them changes it."""
    content = {key: row.get(key) for key in ("when", "require", "proof")}
    content["fix"] = [fix.get("set") for fix in row.get("fix", []) if isinstance(fix, Mapping)]
    if isinstance(content["proof"], Mapping):  # notes on workarounds do not affect the proof
        content["proof"] = {key: value for key, value in content["proof"].items() if key != "around"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def excused(proof: Proof, seen: SeenRelease) -> bool:
    """Return whether the proof lists this release as an exception, for which the checks do not decide."""
    return any(_names(text, seen) for text in proof.exceptions)


def _names(text: str, seen: SeenRelease) -> bool:
    """Return whether `peft 0.9.0` or `peft <0.9` names a release."""
    package, _, wanted = text.partition(" ")
    if package != seen.package:
        return False
    if wanted[:1].isdigit():
        return versions.compare(seen.version, "==", wanted) is Tri.YES
    return versions.satisfies(seen.version, wanted, unknown=Tri.NO) is Tri.YES


def contradictions(rule: Rule, proof: Proof, opened: Iterable[SeenRelease]) -> list[SeenRelease]:
    """Return the findings against the rule: against its bounds, and on fixes that help in no package."""
    rows = [seen for seen in opened if not excused(proof, seen)]
    found = [seen for seen in rows if not (seen.agrees or _is_opened_fix(seen))]
    for number in range(1, len(rule.fixes) + 1):
        advised = [seen for seen in rows if seen.side == f"fix {number}"]
        packages = {seen.package for seen in advised}
        helpful = {package for package in packages if all(s.agrees for s in advised if s.package == package)}
        # A fix that changes several packages helps if its release of one of them no longer breaks the rule.
        if packages and not helpful:
            found += [seen for seen in advised if not seen.agrees]
    return found


def _is_opened_fix(seen: SeenRelease) -> bool:
    """Return whether a fix was only opened; if it was run, all that it advises was there."""
    return seen.side.startswith("fix") and not seen.side.endswith(RUN)


# --- the files of compat/proofs/ ----------------------------------------------------------------------


def read_records(texts: Mapping[str, str]) -> dict[str, ProofRecord]:
    """Return the records in the texts of compat/, by rule.

    Raises:
        ValueError: a file is not TOML, or a row is not a record; names the file.
    """
    found = {}
    for file in sorted(name for name in texts if name.startswith(FOLDER) and name.endswith(".toml")):
        try:
            rows = parse_toml(texts[file], file).get("proof", [])
            records = [_record(row) for row in rows]
        except (InputError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: expected records as `matrix prove` writes them; {error}") from None
        found.update({record.rule: record for record in records})
    return found


def _record(row: Mapping[str, Any]) -> ProofRecord:
    opened = []
    for seen in row["opened"]:
        package, _, version = str(seen["release"]).partition(" ")
        opened.append(
            SeenRelease(package, version, str(seen["side"]), bool(seen["agrees"]), str(seen["seen"]))
        )
    return ProofRecord(str(row["rule"]), str(row["date"]), str(row["digest"]), tuple(opened))


_HEAD = (
    "# Written by `envcheck matrix prove`: what was found in the releases around the bounds of each rule.\n"
)


def render_records(records: Sequence[ProofRecord]) -> str:
    """Return the text of a file of records."""
    return _HEAD + "".join(map(_render_record, records))


def _render_record(record: ProofRecord) -> str:
    lines = [
        f"  {{ release = {_quoted(seen.name)}, side = {_quoted(seen.side)}, "
        f"agrees = {str(seen.agrees).lower()}, seen = {_quoted(seen.seen)} }},\n"
        for seen in record.opened
    ]
    head = f"rule = {_quoted(record.rule)}\ndate = {record.date}\ndigest = {_quoted(record.digest)}\n"
    return f"\n[[proof]]\n{head}opened = [\n{''.join(lines)}]\n"


def _quoted(text: str) -> str:
    return json.dumps("".join(each for each in text if each.isprintable()), ensure_ascii=False)
