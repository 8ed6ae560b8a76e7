"""`envcheck target`: show the training recipes."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import completion, options, output
from envcheck.cli.declaration import CommandArgument
from envcheck.host import machine as host

NameArgument = Annotated[
    str | None, CommandArgument(metavar="[NAME]", autocompletion=completion.targets, help="Recipe to show.")
]


def command(name: NameArgument = None, overlays: options.Matrix = None, lang: options.Lang = None) -> int:
    """List the training recipes, or show what one of them requires and implies.

    Exit codes: 0 printed, 2 wrong usage or no such recipe.
    """
    from envcheck.commands import loading, user_settings
    from envcheck.knowledge import rule_pages

    language = user_settings.choose_language(lang, host.Host())
    output.print_data(rule_pages.target_page(name, loading.knowledge(overlays or ()), language))
    return 0
