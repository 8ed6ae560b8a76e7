"""envcheck from Python: `envcheck.doctor()` gives a report, prints nothing and never ends the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

from envcheck.commands import examine
from envcheck.core.findings import Diagnostic, Finding
from envcheck.core.findings import Report as Judged
from envcheck.core.rules import Severity
from envcheck.core.sanitize import presented
from envcheck.host import machine as host
from envcheck.policy import decision
from envcheck.reports import render

Path = str | os.PathLike[str]


class Report:
    """What was found. It is cleaned and holds nothing private: safe to print, to save and to send."""

    def __init__(self, judged: Judged) -> None:
        """Take what the judge said."""
        self._judged = judged

    @cached_property
    def _private(self) -> Any:
        return host.private()

    @cached_property
    def _shown(self) -> Judged:
        return presented(self._judged, self._private)

    @property
    def exit_code(self) -> int:
        """What the command would exit with: 0, 1 findings, 2 an unreadable file, 3 nothing to judge."""
        policy = decision.Policy(self._judged.fail_on)
        return decision.decide(self._judged, policy).code

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Rules that are broken, worst first, then those that could not be decided."""
        return self._shown.judgement.findings

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """What is wrong with the training configurations themselves."""
        return self._shown.diagnostics

    def to_json(self) -> str:
        """The JSON report, as envcheck/schemas/report.json describes it."""
        return self.render("json")

    def to_dict(self) -> dict[str, Any]:
        """The same, parsed."""
        tree: dict[str, Any] = json.loads(self.to_json())
        return tree

    def render(self, form: str = "text") -> str:
        """The report in a format: text, json, markdown, html, sarif, junit, github.

        Raises:
            InputError: there is no such format.
        """
        return render.rendered(form, self._judged, self._private)

    def __str__(self) -> str:
        """The text report."""
        return self.render("text")

    def __repr__(self) -> str:
        """What it is about and what came out, in a line."""
        from envcheck.reports.details import count_text

        return f"<envcheck.Report of {self._shown.subject!r}: {count_text(self._shown)}>"

    def _repr_html_(self) -> str:
        """The page in a frame of its own: a notebook's styles and scripts, and ours, keep apart."""
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

    Each argument is the option of the same name; `train` and `matrix` take several, `timeout` is in
    seconds for each probe. Without `python`: VIRTUAL_ENV, CONDA_PREFIX, ./.venv, else this interpreter.

    Raises:
        envcheck.core.errors.InputError: a file or an argument is wrong.
        envcheck.core.errors.ExamineError: the environment could not be examined.
    """
    level = Severity(fail_on)
    question = examine.ExamineRequest(
        python=None if python is None else os.fspath(python),
        static=static,
        facts=None if facts is None else os.fspath(facts),
        target=target,
        train=_several(train),
        driver=driver,
        gpus=tuple(gpus),
        deadline_s=timeout,
        overlays=_several(matrix),
    )
    judged = examine.examine(question, host.Host(), level if fix else None)
    return Report(judged._replace(fail_on=level))


def _several(paths: Path | Iterable[Path]) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(each) for each in paths)
