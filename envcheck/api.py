"""The Python API: `envcheck.doctor()` returns a `Report`; it prints nothing and never ends the process.

It may import any package except `cli`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

from envcheck.commands import examine
from envcheck.core.findings import Diagnostic, Finding
from envcheck.core.findings import Report as JudgedReport
from envcheck.core.rules import Severity
from envcheck.core.sanitize import Private, sanitized
from envcheck.host.environment import private_names
from envcheck.host.machine import Host
from envcheck.policy import decision
from envcheck.reports import render

Path = str | os.PathLike[str]


class Report:
    """Result of `doctor`. Its texts are cleaned and redacted: safe to print, to save and to send."""

    def __init__(self, judged: JudgedReport) -> None:
        """Store the judged report, which is cleaned and redacted when it is first read."""
        self._judged = judged

    @cached_property
    def _private(self) -> Private:
        return private_names()

    @cached_property
    def _presented(self) -> JudgedReport:
        return sanitized(self._judged, self._private)

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 passed, 1 findings, 2 an unreadable file, 3 nothing to judge."""
        policy = decision.Policy(self._judged.fail_on)
        return decision.decide(self._judged, policy).code

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the broken rules, worst first, then the undecided ones."""
        return self._presented.judgement.findings

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """Return the mistakes in the training configurations themselves, as diagnostics."""
        return self._presented.diagnostics

    def to_json(self) -> str:
        """Return the JSON report, which envcheck/schemas/report.json describes."""
        return self.render("json")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON report as a dictionary."""
        tree: dict[str, Any] = json.loads(self.to_json())
        return tree

    def render(self, form: str = "text") -> str:
        """Return the report in a format: text, json, markdown, html, sarif, junit or github.

        Raises:
            InputError: there is no such format.
        """
        return render.rendered(form, self._judged, self._private)

    def __str__(self) -> str:
        """Return the text report."""
        return self.render("text")

    def __repr__(self) -> str:
        """Return what was judged and the number of findings, on one line."""
        from envcheck.reports.details import count_text

        return f"<envcheck.Report of {self._presented.subject!r}: {count_text(self._presented)}>"

    def _repr_html_(self) -> str:
        """Return the HTML page inside a frame, so that its style and script cannot affect the notebook's."""
        page = self.render("html").replace("&", "&amp;").replace('"', "&quot;")
        frame = 'sandbox="allow-popups" width="100%" height="640" style="border: 0" title="envcheck"'
        return f'<iframe {frame} srcdoc="{page}"></iframe>'


def doctor(
    python: Path | None = None,
    *,
    target: str | None = None,
    train: Path | Iterable[Path] = (),
    facts: Path | None = None,
    static: bool = False,
    driver: str | None = None,
    gpus: Iterable[str] = (),
    matrix: Path | Iterable[Path] = (),
    fix: bool = False,
    fail_on: Literal["error", "warning", "note"] = "error",
    timeout: float = 10.0,
) -> Report:
    """Judge a machine, an environment and a training configuration, as `envcheck doctor` does.

    Each argument corresponds to the option of the same name. `train` and `matrix` take one path or several;
    `timeout` is the deadline of each probe in seconds. Without `python`, the environment is VIRTUAL_ENV,
    CONDA_PREFIX, ./.venv or this interpreter, whichever is found first.

    Raises:
        envcheck.core.errors.InputError: a file or an argument is wrong.
        envcheck.core.errors.ExamineError: the environment could not be examined.
    """
    severity = Severity(fail_on)
    request = examine.ExamineRequest(
        python=None if python is None else os.fspath(python),
        static=static,
        facts=None if facts is None else os.fspath(facts),
        target=target,
        train=_path_tuple(train),
        driver=driver,
        gpus=tuple(gpus),
        deadline_s=timeout,
        overlays=_path_tuple(matrix),
    )
    report = examine.examine(request, Host(), severity if fix else None)
    return Report(report._replace(fail_on=severity))


def _path_tuple(paths: Path | Iterable[Path]) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(path) for path in paths)
