"""`envcheck rule`: show the known failures."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import completion, options, output
from envcheck.cli.declaration import CommandArgument, CommandOption
from envcheck.host import machine as host

IdArgument = Annotated[
    str | None, CommandArgument(metavar="[ID]", autocompletion=completion.rules, help="Rule to show.")
]
ListOption = Annotated[bool, CommandOption("--list", help="List all rules.")]


def command(
    rule_id: IdArgument = None,
    list_all: ListOption = False,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
) -> int:
    """Show a known failure: when it occurs, the evidence for it, and the ways to avoid it.

    Exit codes: 0 printed, 2 wrong usage or no such rule.
    """
    from envcheck.commands import loading, user_settings
    from envcheck.knowledge import rule_pages

    language = user_settings.choose_language(lang, host.Host())
    matrix = loading.knowledge(overlays or ())
    output.print_data(rule_pages.rule_page(None if list_all else rule_id, matrix, language))
    return 0
