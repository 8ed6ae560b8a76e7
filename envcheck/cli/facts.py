"""`envcheck facts`: print one inventory, or compare two."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandOption
from envcheck.core.errors import InputError
from envcheck.core.sanitize import sanitized
from envcheck.host import machine as host
from envcheck.host.environment import node_name, private_names

if TYPE_CHECKING:
    from envcheck.commands.examine import ExamineRequest

DiffOption = Annotated[
    tuple[str, str] | None,
    CommandOption(
        "--diff",
        metavar="A B",
        help="Compare two facts files: what differs, and what breaks in B. '-' is this machine.",
    ),
]
NameOption = Annotated[
    bool,
    CommandOption("--name", help="Print one line that includes this node's name: a record for `fleet`."),
]


def command(
    python: options.Python = None,
    static: options.Static = False,
    train: options.Train = None,
    diff: DiffOption = None,
    name: NameOption = False,
    as_json: options.Json = False,
    timeout: options.ProbeTimeout = 10.0,
    lang: options.Lang = None,
) -> int:
    """Print the inventory as JSON, which `doctor --facts` judges anywhere; or compare two inventories.

    Mistakes in a configuration given with --train are printed to stderr, one per line.

    Exit codes: 0 printed, 1 with --diff if B has an error that A does not have, 2 wrong usage or unreadable
    input, 3 could not examine the environment.
    """
    request = options.examine_request(python=python, static=static, train=train, timeout=timeout)
    if diff is not None:
        if name:
            raise InputError("--name", "contradicts --diff")
        return _compare(request, diff, lang, as_json=as_json)
    if name:
        from envcheck.commands import fleet

        output.print_data(json.dumps(fleet.node_facts(request, host.Host(), node_name())) + "\n")
        return 0
    from envcheck.commands import examine, user_settings

    language = user_settings.choose_language(lang, host.Host())
    inventory, diagnostics = examine.inventory_and_diagnostics(request, host.Host())
    output.print_data(output.json_text(sanitized(inventory, private_names())))
    for diagnostic in diagnostics:
        place = f"{diagnostic.places[0]}: " if diagnostic.places else ""
        advice = f" ({language.translate(diagnostic.advice)})" if diagnostic.advice else ""
        severity, text = language.word(diagnostic.severity.value), language.translate(diagnostic.text)
        output.print_message(f"{place}{severity}: {text}{advice} [{diagnostic.code}]")
    return 0


def _compare(request: ExamineRequest, files: tuple[str, str], lang: str | None, *, as_json: bool) -> int:
    """Print the difference of two inventories; return 1 if the second has an error that the first lacks."""
    from envcheck.commands import examine, user_settings
    from envcheck.policy import decision
    from envcheck.reports import diff

    language = user_settings.choose_language(lang, host.Host())
    first, second = (
        sanitized(report, private_names()) for report in examine.examine_two(request, files, host.Host())
    )
    difference = diff.compare(first, second)
    if as_json:
        output.print_data(output.json_text(diff.tree(difference, first, second)))
    else:
        output.print_data(diff.page(difference, first, second, language))
    only_new = second.judgement._replace(findings=difference.appear)
    return decision.decide(second._replace(judgement=only_new, nothing_to_judge=""), decision.Policy()).code
