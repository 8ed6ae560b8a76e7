"""What is said of a missing name: who asks for it, who lacks it, which releases have it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.facts import normalised
from envcheck.core.sanitize import hide_secrets
from envcheck.logs.diagnosis import Cause
from envcheck.logs.missing_names import PYTHON, MissingName
from envcheck.reports.explanation.known import title_of_rule
from envcheck.reports.explanation.model import Explanation, MissingAnswer
from envcheck.reports.explanation.wording import FEW, with_version


def missing_lines(explanation: Explanation) -> Iterator[str]:
    """Yield which releases have a missing name, who asks for it, and what to do; the headline names it."""
    answer = explanation.missing
    cause = explanation.diagnosis.cause
    for words in answer.calls[:FEW] if answer else ():
        yield f"    calls   {words}"
    if answer is None or cause is None or cause.match is not None:
        return
    for words in answer.ranges[:FEW]:
        yield f"    has it  {words}"
    for words in answer.elsewhere:
        yield f"    is in   {words}"
    for rule in answer.rules[:FEW]:
        yield f"    rule    {title_of_rule(rule, explanation)} [{rule.id}]"
    yield from (f"    advice  {advice}" for advice in _advice(answer, cause, explanation))


def _advice(answer: MissingAnswer, cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield what to do about a missing name, by what is missing."""
    missing = answer.missing
    if missing.kind == "argument":
        if missing.handed and explanation.library is None:
            yield (
                f"{missing.name} comes from what {missing.handed} holds, such as a configuration file, saved "
                "arguments or a class of arguments of your own, which may be of another release: remove it "
                "there, or install the release of the code that knows it"
            )
    elif missing.built and not missing.installed:
        yield _on_build(missing)
    elif missing.installed:
        yield from _advice_on_part(answer, cause)
    else:
        yield from _advice_on_absent(answer, cause)


def _advice_on_absent(answer: MissingAnswer, cause: Cause) -> Iterator[str]:
    """Yield what to do about a module of which nothing is installed."""
    missing = answer.missing
    root = missing.module.partition(".")[0]
    if answer.is_of_another_python:
        yield (
            "print sys.executable in the run: it is the Python of another environment, or the script starts "
            "one; install it there with that Python's -m pip, or start the program with this one"
        )
    elif answer.of_repository:
        yield _ON_REPOSITORY.format(missing.asks, root)
    elif missing.of_command or missing.unpickled:
        yield _ON_COMMAND if missing.of_command else _ON_UNPICKLED
    elif cause.event.form is not None and cause.event.form.advice:
        return  # which the answer tells: this package is not to be had by its name
    elif missing.kind == "module" and not answer.is_known and not missing.asks:
        yield _ON_UNKNOWN_MODULE.format(root)
    elif missing.kind == "module" and answer.is_known:
        windows = bool(cause.place and _DRIVE.match(cause.place.file))
        yield f"install {missing.lacks} into the environment that runs, with its own python -m pip" + (
            "; if pip finds none for Windows, its wheels are for Linux (triton's are: WSL, or triton-windows)"
            * windows
        )


def _advice_on_part(answer: MissingAnswer, cause: Cause) -> Iterator[str]:
    """Yield what to do about a name or a module that an installed package lacks."""
    missing = answer.missing
    if missing.tree:
        yield _ON_TREE
        return
    means = cause.event.form and cause.event.form.means
    certain = answer.has_it or answer.in_every_release or answer.in_no_release
    differ = answer.ranges and not (certain or _of_itself(missing))
    if answer.own_file or not (missing.half or differ or means):
        yield _advice_on_module(answer)
    elif cause.kind == "version" and answer.ranges and not (missing.half or means):
        fitting = f"{missing.asks} in one that fits" if missing.asks else "code that was written for"
        there = ", or import it from where it is" if answer.elsewhere else ""
        release = f"install {missing.lacks} in a release that has it"
        yield f"{release}, or {fitting} the installed one{there}"
        if missing.lazily and not missing.asks and _quotes_import_of(missing.module, cause):
            yield (
                f"if no other package asks for it but {missing.lacks} itself, files of two releases are mixed"
                f": pip install --force-reinstall --no-deps {missing.lacks}, and restart a notebook's kernel"
            )


def _quotes_import_of(module: str, cause: Cause) -> bool:
    """Return whether the message quotes the failed import of a part of the package that lacks the name."""
    package = module.partition(".")[0]
    return any(f"Failed to import {package}." in raised.message for raised in cause.event.exceptions)


_ON_TREE = (
    "Python looks into the folder of the script, or the current one, first: a source tree there hides the "
    "installed package and lacks its compiled modules. Start from another folder; or install the tree itself "
    "(pip install -e .), which builds them. If it is your own folder of that name, rename it; if it is the "
    "tree that you mean, an import above failed or goes in a circle"
)

_ON_UNKNOWN_MODULE = (
    "if {0} is a folder or a file of the project, start the command in the folder that holds it, or name "
    "that folder in PYTHONPATH (PYTHONPATH=. python …); otherwise install what the project's instructions "
    "name for it: a package of that name on the index may be another one"
)

_ON_REPOSITORY = (
    "A package named {1} on the index is another one. Take another release of {0}, whose code may not import "
    "it, or install {0} from a clone of its repository (python -m pip install -e .) and start there"
)

_ON_COMMAND = (
    "The installation is broken: the package was removed, its folder was moved after an installation with "
    "-e, or the command belongs to another Python (its first line names it). Install it again with the "
    "Python of this environment (in a checkout: python -m pip install -e ., or uv sync)"
)

_ON_UNPICKLED = (
    "it was sent by another process, or lies in a file that is loaded. Processes that are spawned, as on "
    "Windows and macOS, do not find a module that was generated, or whose folder was added to sys.path "
    "later: work without them (num_proc=None, dataset_num_proc=None, dataloader_num_workers=0), or put that "
    "folder on PYTHONPATH; for a file, run where the code that wrote it can be imported"
)


def _on_build(missing: MissingName) -> str:
    """Return what to do about a module that the code of a package's build lacks."""
    return (
        f"install {missing.lacks} into the environment first (python -m pip install {missing.lacks}, or uv "
        "pip install), then the package with --no-build-isolation, which builds with what is installed: in a "
        "build environment of its own, only what the package declares is there"
    )


_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
"""The start of a path on Windows."""


def _advice_on_module(answer: MissingAnswer) -> str:
    """Return what to do about a part of a package that no known release is known to have."""
    missing = answer.missing
    if answer.not_imported:
        another = f"; that is the task of {missing.asks}: take another release of it" * bool(missing.asks)
        return f"the line `import {missing.module}.{missing.name}` has to run before{another}"
    if answer.in_no_release:
        return _advice_on_no_release(answer)
    if answer.in_some_cases:
        return (
            f"{missing.module} offers it only in some cases, mostly only if an optional package can be "
            "imported: its file names the package; import that in Python to see why it is not used, and "
            "install or repair it"
        )
    return _advice_on_installation(answer)


def _advice_on_installation(answer: MissingAnswer) -> str:
    """Return what to do if the release, the installation or what is imported may be another one."""
    missing = answer.missing
    root = missing.module.partition(".")[0]
    if missing.folder or answer.in_every_release or answer.own_file:
        since = answer.read_since
        older = f"if {missing.lacks} is older than {since} here, upgrade it. Otherwise " if since else ""
        return older + _advice_on_what_is_imported(answer, root)
    if missing.own and _of_itself(missing):
        return (
            f"this checkout of {missing.lacks} lacks a file of its own: pull it, check out a release, or "
            "reset what was changed there"
        )
    if _of_itself(missing) and not answer.is_known:
        return (
            f"try another release of {missing.lacks}: this one may have been published without the file. If "
            f"that does not help, look for a folder {root} beside the script or in the working directory "
            f"that hides the package, or uninstall {missing.lacks} until pip finds none, and install it again"
        )
    if answer.has_it or _of_itself(missing):
        return (
            "restart the notebook's kernel or the process after an upgrade, and look for a folder "
            f"{root} beside the script or in the working directory that hides the package; if that does not "
            f"help, files of two releases lie in one folder: uninstall {missing.lacks} until pip finds none, "
            "and install it again"
        )
    if missing.lacks == PYTHON:
        return (
            f"if a file of yours is named {root}.py, rename it; otherwise see in Python's documentation "
            f"which releases have it, or take a release of {missing.asks or 'the code'} for this Python"
        )
    return _advice_on_another_release(answer, root)


def _advice_on_no_release(answer: MissingAnswer) -> str:
    """Return what to do about a name that no release has."""
    missing = answer.missing
    root = missing.module.partition(".")[0]
    if answer.elsewhere:
        asker = f": take another release of {missing.asks}" * bool(missing.asks)
        return f"import it from where it is{asker}"
    if answer.spelt:
        return f"{missing.module} spells it {answer.spelt}: correct the name, or the file that holds it"
    fork = f"a fork or an unreleased version of {missing.lacks}"
    if answer.read_since:
        fork = f"{missing.lacks} before {answer.read_since}, {fork}"
    hidden = f", or a file or folder of yours named {root} hides the package" * missing.of_any_module
    if missing.asks and not _of_itself(missing):
        return (
            f"{missing.asks} needs {fork}, which its installation instructions name, or another release of "
            f"{missing.asks} is right{hidden}"
        )
    return f"the code was written for {fork} (see its instructions), or the name is misspelt{hidden}"


def _advice_on_another_release(answer: MissingAnswer, root: str) -> str:
    """Return what to do if another release of the package may have the name, of which no release is known."""
    missing = answer.missing
    inside = "." in missing.module
    if inside and answer.is_known and _is_of_package(root, missing.lacks):
        return (  # no file of the user's has a path inside the package
            f"install {missing.lacks} in the release that the code was written for: a newer one if the name "
            "is new, an older one if it was removed; or upgrade what asks for it"
        )
    which = f'see which file is imported: python -c "import {root}; print({root}.__file__)". If it is a '
    if inside and not answer.is_known and missing.of_package_file:
        where = f"{missing.module} (its __init__.py)"
        return (
            f"look into {where} for the line that imports {missing.name}. If it stands below a `try`, an "
            "error of that import was passed over, and is the cause: run that import alone in Python to see "
            "it (mostly a compiled package, such as flash-attn, that was built for another torch). If the "
            f"line is not there, {root} is of another release or checkout than what asks for the name"
        )
    if inside and not answer.is_known:
        return (
            f"{which}folder of the project, its checkout lacks the file: pull it; if it is another "
            "package's, uninstall that; otherwise install the package in the release that the code was "
            "written for"
        )
    package = missing.lacks if answer.is_known else "the package"
    return (
        f"{which}file of yours, or another package's, rename or uninstall that; otherwise install {package} "
        "in the release that the code was written for, which need not be the newest"
    )


def _advice_on_what_is_imported(answer: MissingAnswer, root: str) -> str:
    """Return what to do if the package that is imported is not the whole package."""
    lacks = answer.missing.lacks
    if answer.missing.folder and "." in answer.missing.module:
        module = answer.missing.module
        package = lacks if answer.is_known else "the package"
        return (
            f'see which folder it is: python -c "import {module} as m; print(list(m.__path__))". '
            "If it is one of a checkout or of yours, that hides the package: rename it, or start elsewhere. "
            f"If it is in site-packages, files of {package} are mostly missing there: uninstall it until pip "
            "finds none, delete what is left of its folder, and install it again"
        )
    if answer.missing.folder:
        return (
            f"rename a folder {root} beside the script, in the working directory or on PYTHONPATH; if there "
            f"is none, an uninstalled {lacks} left its folder: delete that, and install it again"
        )
    if answer.own_file:
        hides = f" (it hides the package {lacks}: rename it)" if answer.is_known else ""
        return f"look there for the name, or for an import above it that failed{hides}"
    missing = answer.missing
    of_import = missing.kind == "name" and not missing.attribute
    named = f"from {missing.module} import {missing.name}" if of_import else f"import {root}"
    return (
        f'run python -c "{named}" alone in this environment: another error that it shows is the cause. If '
        "it shows none, two threads or processes import it at once, or it is in a circle of imports; "
        f"otherwise uninstall {lacks} until pip finds none, and install it again"
    )


def _is_of_package(root: str, package: str) -> bool:
    """Return whether a module's root has the name of a package, or of the one that it extends."""
    return package == normalised(root) or package.startswith(f"{normalised(root)}-")


def _of_itself(missing: MissingName) -> bool:
    """Return whether a package asks itself for what it lacks: files of two of its releases are in use."""
    return bool(missing.asks) and missing.asks == missing.lacks and missing.kind in ("name", "module")


def missing_sentence(answer: MissingAnswer, explanation: Explanation) -> str:
    """Return which package lacks a missing name and, if the log says so, which one asks for it.

    That releases differ is said of an argument only if they are known to.
    """
    missing = answer.missing
    report = explanation.report
    cause = explanation.diagnosis.cause
    handed = explanation.library is not None and bool(explanation.library.handed[0])
    differs = cause is not None and cause.kind == "version" and not handed
    if missing.half:
        return _half_imported(missing)
    asker = hide_secrets(missing.asker) if missing.own else ""
    asks = with_version(missing.asks, report) if missing.asks else asker
    if missing.kind == "argument" and answer.takes:
        release = with_version(answer.takes, report)
        what = f"{missing.name} in {missing.module}()"
        return f"{release} takes {what}: another release of it, or another class of this name, is what ran"
    if missing.kind == "argument":
        here = " in this release" if differs else ""
        if not asks:
            return f"{missing.module}() does not take the argument {missing.name}{here}"
        passes = f"hands {missing.name} on (in **{missing.handed})" if missing.handed else ""
        passes = passes or f"passes {missing.name}"
        return f"{asks} {passes} to {missing.module}(), which does not take it{here}"
    if missing.kind == "module" and not missing.installed:
        return _not_installed(answer, asks)
    return _lacking_sentence(answer, asks, explanation)


def _half_imported(missing: MissingName) -> str:
    """Return what is said of a package that was still being imported, and from where, if that tells why."""
    if missing.tree:
        return (
            f"{missing.module} is imported from the folder {hide_secrets(missing.tree)}, not as an installed "
            f"package, and has no {missing.name} there"
        )
    library, own = (
        "an import of it failed before, or goes in a circle",
        "a circular import, or a file of yours with its name",
    )
    return f"{missing.module} was still being imported: {library if missing.asks else own}"


def _lacking_sentence(answer: MissingAnswer, asks: str, explanation: Explanation) -> str:
    """Return which package that is installed lacks a name or a module, and which one asks for it."""
    missing = answer.missing
    report = explanation.report
    cause = explanation.diagnosis.cause
    lacks = with_version(missing.lacks, report)
    if said := _not_the_package(answer, asks, lacks):
        return said
    what = (
        f"the module {missing.module}" if missing.kind == "module" else f"{missing.name} of {missing.module}"
    )
    root = missing.module.partition(".")[0]
    named = lacks != missing.lacks  # with its version
    release = lacks if named else f"this release of {lacks}"
    if missing.lacks == PYTHON and cause is not None and cause.kind == "version":
        version = report.inventory.known("python.version")
        release = f"Python {version}" if version else "this release of Python"
    elif cause is not None and cause.kind == "unknown" and missing.of_any_module:
        release = f"the {root} that is imported"
        what = missing.name
    elif not answer.ranges and not answer.is_known and (root != root.lower() or "." in missing.module):
        # no usual name of a package, or a path inside something that may be a folder of the project
        release = f"the file or package that is imported as {root}"
    elif not _is_of_package(root, missing.lacks) and (
        not answer.ranges or not (asks or missing.file or named)
    ):
        release = f"this release of {lacks}, or another package that is imported as {root},"
    if _of_itself(missing):
        release = f"the {root} that is imported"
    if not asks:
        return f"{release} does not have {what}"
    return f"{asks} asks for {what}, which {release} does not have"


def _not_the_package(answer: MissingAnswer, asks: str, lacks: str) -> str:
    """Return what is said of a name that no release explains; empty if a release may."""
    missing = answer.missing
    if missing.folder and "." in missing.module:
        asked = f"{asks} asks for {missing.name}: " * bool(asks)
        return f"{asked}the {missing.module} that is imported has no file, as a folder without __init__.py"
    if missing.folder:
        hidden = f"the {missing.module} that is imported is a folder without __init__.py"
        return f"{hidden}, not the package, and has no {missing.name}"
    if answer.own_file:
        file = hide_secrets(missing.file)
        return f"{asks or 'the code'} asks for {missing.name}, which the imported {file} does not have"
    if answer.in_every_release or answer.in_no_release:
        return _in_every_or_no_release(answer, asks)
    if answer.has_it:
        return f"{lacks} has {missing.name} of {missing.module}: another release of it is imported"
    return ""


def _in_every_or_no_release(answer: MissingAnswer, asks: str) -> str:
    """Return what is said of a name that every release has, or none."""
    missing = answer.missing
    of = "" if missing.kind == "module" else f" of {missing.module}"
    what = f"the module {missing.module}" if missing.kind == "module" else f"{missing.name}{of}"
    wanted = f"{asks} asks for {what}, which" if asks else ""
    first, last = answer.published.ends
    if answer.in_no_release:
        none = f"no release of {missing.lacks} ({first} to {last}) has"
        if answer.read_since:
            none = f"no release of {missing.lacks} from {first} on has"
        return f"{wanted} {none}" if asks else f"{none} {what}"
    module = "the module" if missing.kind != "module" else ""
    among = f" that has {module}" if module and answer.published.spans != (answer.published.ends,) else ""
    since = f" from {answer.read_since} on" if answer.read_since else ""
    every = f"every release of {missing.lacks}{since}{' that it accepts' if answer.always else among}"
    if answer.not_imported:
        has = f"{missing.module}.{missing.name} is a module of {every}"
        return f"{has}, which was not imported before {asks or 'the code'} read it"
    why = "another module was imported in its place, it was imported in part only, or its files are damaged"
    if answer.published.is_module and missing.attribute:
        why = f"nothing imported it before, {why}"
    if answer.read_since:
        why = why.replace(", or its files", ", its files") + f", or one older than {answer.read_since} runs"
    return f"{wanted} {every} has: {why}" if asks else f"{every} has {what}: {why}"


def _not_installed(answer: MissingAnswer, asks: str) -> str:
    missing = answer.missing
    if said := _why_not_there(answer, asks):
        return said
    guessed = not answer.is_known and missing.lacks == normalised(missing.module)
    package = "" if guessed or missing.lacks == missing.module else f", of the package {missing.lacks}"
    unknown = "" if answer.is_known or missing.asks else ", if it is not a file of yours"
    named = f"{missing.module}{package}{unknown}"
    if asks:
        return f"{asks} imports {named}, which is not installed"
    return f"{named}, is not installed" if "," in named else f"{named} is not installed"


def _why_not_there(answer: MissingAnswer, asks: str) -> str:
    """Return what is said of a module that cannot be imported, if more is known than that it is not there."""
    missing = answer.missing
    module = missing.module
    if missing.of_command:
        return f"the command {missing.of_command} is there, and the Python that runs it finds no {module}"
    if answer.of_repository:
        return f"{asks} imports {module}, a folder of its repository that this installation does not have"
    if missing.unpickled:
        return f"an object of the module {module} is read, and this process cannot import that"
    if missing.built and asks in ("", missing.lacks):
        return f"the build of a package imports {module}, which is not there where it is built"
    has = f"{missing.lacks} {answer.listed} is installed" if answer.listed else ""
    has = has or f"{module} wrote lines of this log" * answer.wrote_lines
    return f"{has}, and the Python that ran finds no {module}" if has else ""
