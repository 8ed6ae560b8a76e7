"""`envcheck matrix`: show, check, publish or extend the knowledge in compat/."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandArgument, CommandOption
from envcheck.core.errors import InputError
from envcheck.core.i18n import counted
from envcheck.host import machine as host


class MatrixAction(Enum):
    """What to do with the knowledge."""

    SHOW = "show"
    LINT = "lint"
    HTML = "html"
    MEASURE = "measure"
    HARVEST = "harvest"
    REFRESH = "refresh"
    PROVE = "prove"


ActionArgument = Annotated[
    MatrixAction,
    CommandArgument(
        help="show what is known; lint: check it for mistakes; html: write a page with everything; "
        "measure: install combinations in separate environments, train a target in each and print cells; "
        "harvest: fetch the Python files and metadata of published releases into a folder; "
        "refresh: harvest what is new, write compat/atlas and describe what changed; "
        "prove: open the releases around the version bounds of rules and record what is found."
    ),
]
SubjectsArgument = Annotated[
    list[str] | None,
    CommandArgument(
        metavar="[WHAT]...",
        help="show: PACKAGE, PACKAGE==V, or two packages: which of their releases fit. "
        "lint: a folder laid out like compat/, or a checkout. "
        "harvest, refresh: packages (default: all of compat/atlas/packages.toml). "
        "prove: rules, or files of rules such as deepspeed (default: those without a current record).",
    ),
]
StoreOption = Annotated[
    str | None,
    CommandOption(
        "--store",
        metavar="FOLDER",
        help="harvest, refresh: folder of the fetched files; 5 GB for all. "
        "prove: such a folder, read instead of the package index where it has a release.",
    ),
]
OutputOption = Annotated[
    str | None,
    CommandOption(
        "-o",
        "--output",
        metavar="PATH",
        help="html: file that ends in .html, or folder for index.html (default: site); '-' prints the page. "
        "measure: file to append cells to (default: print). "
        "harvest: folder laid out like compat/atlas to write to (default: fetch only); refresh: the same "
        "(default: compat/atlas). "
        "prove: folder laid out like compat/ (default: compat).",
    ),
]
OnlineOption = Annotated[
    bool,
    CommandOption(
        "--online", help="lint: ask your package index for releases that compat/ does not cover yet."
    ),
]
TodayOption = Annotated[
    str | None,
    CommandOption(
        "--today", metavar="DATE", help="lint: day on which the age of sources is judged. Default: today."
    ),
]
WithOption = Annotated[
    list[str] | None,
    CommandOption(
        "--with",
        metavar="NAME==V",
        help="measure: release to install. Repeatable; a package named twice is measured in both releases.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    CommandOption(
        "--set", metavar="FACT=VALUE", help="measure: training fact in addition to the target's. Repeatable."
    ),
]
DeviceOption = Annotated[
    options.Device | None, CommandOption("--device", help="measure: where to run the self-tests.")
]
RanksOption = Annotated[
    int | None,
    CommandOption("--ranks", metavar="N", min=1, max=1024, help="measure: processes of one self-test."),
]
OnlyOption = Annotated[
    list[str] | None,
    CommandOption("--only", metavar="NAME", help="measure: run only this self-test. Repeatable."),
]
FolderOption = Annotated[
    str | None,
    CommandOption(
        "--in", metavar="FOLDER", help="measure, prove: folder that keeps the environments for the next run."
    ),
]
PythonOption = Annotated[
    str | None,
    CommandOption(
        "--python",
        metavar="PATH",
        help="measure: interpreter to create environments for. prove: interpreter with torch for programs.",
    ),
]
OlderOption = Annotated[
    bool,
    CommandOption(
        "--older",
        help="prove: where a bound has no lower end, also open releases that are older than the tables, "
        "newest first, until one contradicts the rule.",
    ),
]
SweepOption = Annotated[
    bool,
    CommandOption(
        "--sweep",
        help="prove: compare the rules with every release in --store, not only with those next to a bound; "
        "records nothing.",
    ),
]
SiblingsOption = Annotated[
    bool,
    CommandOption(
        "--siblings",
        help="prove: search the releases in --store for the lines of the rules in files for other model "
        "types, adapters, methods, …, and show the conditions around each line; records nothing.",
    ),
]


def command(
    action: ActionArgument,
    subjects: SubjectsArgument = None,
    path: OutputOption = None,
    online: OnlineOption = False,
    today: TodayOption = None,
    target: options.Target = None,
    releases: WithOption = None,
    train_facts: SetOption = None,
    device: DeviceOption = None,
    ranks: RanksOption = None,
    only: OnlyOption = None,
    folder: FolderOption = None,
    python: PythonOption = None,
    store: StoreOption = None,
    older: OlderOption = False,
    sweep: SweepOption = False,
    siblings: SiblingsOption = False,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
) -> int:
    """Show the knowledge, lint it, write it as a page, measure, fetch published releases, or prove rules.

    Exit codes: 0 done, 1 lint found errors or a proof contradicts its rule, 2 wrong usage, 3 the package
    index or a release cannot be read, or a combination could not be decided.
    """
    overlay_files = tuple(overlays or ())
    if action in (MatrixAction.HARVEST, MatrixAction.REFRESH):
        text, code = _harvest(action, tuple(subjects or ()), path, store)
        output.print_data(text)
        return code
    if action is MatrixAction.PROVE:
        text, code = _prove(
            tuple(subjects or ()),
            path=path,
            store=store,
            python=python,
            folder=folder,
            older=older,
            sweep=sweep,
            siblings=siblings,
        )
        output.print_data(text)
        return code
    subject, partner = _subjects(subjects or (), action)
    if action is MatrixAction.MEASURE:
        from envcheck.commands import measure, selftest

        run = measure.MeasureOptions(
            target=target or "",
            given=tuple(releases or ()),
            wanted=selftest.SelftestOptions(
                level=2,
                device=device.value if device else None,
                ranks=ranks,
                only=tuple(only or ()),
                patience=measure.PATIENCE,
            ),
            folder=Path(folder) if folder else None,
            output=Path(path) if path else None,
            python=python,
            overlays=overlay_files,
            train=tuple(train_facts or ()),
        )
        text, code = measure.measure(run, host.Host(), output.print_message)
    else:
        from envcheck.commands import matrix

        if action is MatrixAction.SHOW:
            output.print_data(matrix.show(subject, partner, overlay_files, lang))
            return 0
        if action is MatrixAction.LINT:
            text, code = matrix.lint(subject, host.Host(), today, overlay_files, online=online)
        else:
            text, code = matrix.html(path or "site", overlay_files), 0
    output.print_data(output.in_language(text, lang))
    return code


def _harvest(
    action: MatrixAction, packages: tuple[str, ...], path: str | None, store: str | None
) -> tuple[str, int]:
    from envcheck.commands import harvest
    from envcheck.commands.harvest.refresh import refresh

    options_of_harvest = harvest.HarvestOptions(
        folder=_store(store), packages=packages, output=Path(path) if path and path != "-" else None
    )
    run = refresh if action is MatrixAction.REFRESH else harvest.harvest
    return run(options_of_harvest, host.Host(), output.print_message)


def _subjects(subjects: Sequence[str], action: MatrixAction) -> tuple[str | None, str | None]:
    """Return the subject of an action, and the second package of `show`. Raises InputError."""
    limit = 2 if action is MatrixAction.SHOW else 1
    if len(subjects) > limit:
        raise InputError(
            subjects[limit], f"expected at most {counted(limit, 'subject')}, found {len(subjects)}"
        )
    return (*subjects, None, None)[0], (*subjects, None, None)[1]


def _store(store: str | None) -> Path:
    """Return the folder of the fetched files. Raises InputError."""
    if not store:
        raise InputError("--store", "expected a folder for the fetched files")
    return Path(store)


def _prove(
    rules: tuple[str, ...],
    *,
    path: str | None,
    store: str | None,
    python: str | None,
    folder: str | None,
    older: bool,
    sweep: bool,
    siblings: bool,
) -> tuple[str, int]:
    """Prove rules; return the summary and the exit code."""
    from envcheck.commands import prove

    proof = prove.ProveOptions(
        rules=rules,
        folder=Path(path or "compat"),
        store=Path(store) if store else None,
        python=python or "",
        scratch=Path(folder) if folder else None,
        older=older,
        sweep=sweep,
        siblings=siblings,
    )
    return prove.prove(proof, host.Host(), output.print_message)
