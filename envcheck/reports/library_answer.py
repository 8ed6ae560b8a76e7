"""What the code of published libraries says about the first cause of a failure: lines and JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from envcheck.core.elf import describe_symbol
from envcheck.core.facts import Inventory, package_key
from envcheck.knowledge.given import ClassWith, PassedKeyword, SetAttribute
from envcheck.knowledge.members import Membership
from envcheck.knowledge.raised import FoundRaise, RaisedRow
from envcheck.reports import code_conditions

_SHORT = 160  # characters shown of a list of parameters
_FEW = 3  # places shown
_LISTED = 6  # releases and classes shown


class LibraryAnswer(NamedTuple):
    """Answer that the code of published libraries gives about a cause.

    `raises` are the places that raise its message; `members` the releases that have the attribute, or the
    parameters by releases; `places` those that set the attribute; `derived` and `classes` the classes derived
    from the object's, or beside it, that have it; `passed` the packages that pass the keyword; `optional` the
    file that imports the name only under a condition; `defined` the modules that have an undefined name in
    some releases; `refused` the packages no release of which takes the keyword. `own` says that the user's
    own call may be at fault. `outdated` are the releases whose base class has the attribute that their own
    code asks for, while the object's class is another project's. `asked` says that the log shows who asks.
    `symbols` are the releases of torch that define a symbol which a compiled extension needs. `auto_classes`
    are the Auto classes that load a model of a configuration which another one, `refused_by`, does not.
    `unsure` says that only the end of the class's name points to the package. `by_position` says that a call
    had other positional arguments than the function takes: `members` are then the parameters in all releases,
    and `fitting` those of them that take as many. `undefined_in` is the package whose own code uses a name
    that it does not define, and `lacking` the one whose own code asks its own class, `lacks_in`, for what
    that does not have. `calling` is the package whose line calls a function with other arguments than it
    takes. `other_model` is the type of model whose code got the configuration of another. `composes` is the
    message that the failing line was to make. `handed` is what it means, and what to do, that transformers
    hands a keyword to a model's `forward`. `home` is the only package that has the class `home_class`, and
    `home_own` says that code of a project asks it. `late` says that the attribute is set in a method that
    may not have run yet.
    `repository_class` is a class of a model that no library has which was read, but the model's repository.
    """

    raises: tuple[FoundRaise, ...] = ()
    members: tuple[Membership, ...] = ()
    own: bool = False
    places: tuple[SetAttribute, ...] = ()
    derived: tuple[Membership, ...] = ()
    passed: tuple[PassedKeyword, ...] = ()
    classes: tuple[ClassWith, ...] = ()
    optional: tuple[SetAttribute, ...] = ()
    defined: tuple[Membership, ...] = ()
    refused: tuple[Membership, ...] = ()
    outdated: tuple[Membership, ...] = ()
    asked: bool = True
    symbols: tuple[Membership, ...] = ()
    auto_classes: tuple[Membership, ...] = ()
    refused_by: str = ""
    unsure: bool = False
    by_position: bool = False
    fitting: tuple[Membership, ...] = ()
    undefined_in: str = ""
    lacking: str = ""
    lacks_in: str = ""
    calling: str = ""
    other_model: str = ""
    composes: str = ""
    handed: tuple[str, str] = ("", "")
    home: str = ""
    home_class: str = ""
    repository_class: str = ""
    home_own: bool = False
    late: bool = False

    @property
    def having(self) -> tuple[Membership, ...]:
        """Return the releases that have what is missing, or take what was passed."""
        return self.fitting if self.by_position else self.members


def of_some_releases(places: Sequence[SetAttribute]) -> bool:
    """Return whether only later releases set an attribute, on any object of the class."""
    return all(place.own and place.since and not place.condition for place in places)


_INSTRUCTS = re.compile(
    r"(?i)\bplease\b|\bmake sure\b|\btry\b|\bconsider\b|\b(?:should|must|need to|has to|have to|can)\b"
    r"|(?:^|[.:;,!] )(?:set|use|install|upgrade|update|pass|check|ensure|run|add|remove|specify|provide)\b"
)
"""Words of a message that says itself what to do, or what it expects."""


def library_lines(library: LibraryAnswer, inventory: Inventory, message: str = "") -> Iterator[str]:
    """Yield where a library raises the message and under which condition, or which releases have what.

    A message that says what to do outweighs what its condition suggests.
    """
    for found in library.raises[:_FEW]:
        row = found.row
        place = f"{row.file} in {row.function}" if row.function else row.file
        others = " (the log's release has it in another file)" if found.moved else ""
        yield f"    library {row.package} {found.releases} raises it: {place}{others}"
        yield from _condition_lines(row, instructs=_INSTRUCTS.search(message) is not None)
        if found.gone:
            yield "            (later releases do not raise this text, which alone does not make them a fix)"
    for has in library.members[:_LISTED]:
        if has.has.startswith("("):
            yield f"    takes   {has.package} {has.releases}: {has.owner}{_shortened(has.has)}"
        else:
            yield f"    has it  {has.package} {has.releases}: {has.owner}.{has.has}"
    if any(is_stated(has, inventory) for has in library.having):
        yield f"    advice  {_ADVICE_ON_ANOTHER}"
    elif library.fitting:
        yield f"    advice  {_advice_on_fitting(library)}"
    elif library.members:
        if_its = f"if it is the function of {library.members[0].package}: " if library.own else ""
        yield f"    advice  {if_its}{_advice_on_members(library.members, asked=library.asked)}"
    yield from _notes_on_members(library.members[:_LISTED])
    yield from _given_lines(library)
    for package in dict.fromkeys(has.package for has in library.members):
        if version := inventory.known(package_key(package)):
            yield f"    judged  {package} {version}"


def _notes_on_members(members: Sequence[Membership]) -> Iterator[str]:
    """Yield what the releases that have an attribute do not say of the others."""
    if any(map(_has_gap, members)):
        yield "    note    the releases between these may set it in another function of the class"
    if members and members[0].derived:
        base = members[0].owner
        yield f"    note    a class derived from {base} may be written for another release of it"


def _has_gap(has: Membership) -> bool:
    """Return whether an attribute is not in some releases between those that have it.

    It mostly moved to a method that `__init__` calls, which the table does not read, and back.
    """
    return not has.has.startswith("(") and ", " in has.releases


def is_stated(has: Membership, inventory: Inventory) -> bool:
    """Return whether the release in an inventory is one of these, so that another one must have run."""
    version = inventory.known(package_key(has.package))
    return bool(version and has.includes(str(version)))


_ADVICE_ON_ANOTHER = (
    "the release of this environment has it, so it is not what ran: print the module's __file__ and "
    "__version__ in the run itself (another environment, a checkout, a class of your own of this name), and "
    "restart a notebook's kernel after an upgrade"
)


def _advice_on_members(members: Sequence[Membership], *, asked: bool) -> str:
    """Return what to do if an object lacks an attribute, or a call does not fit, in the installed release.

    Of a class that derives from the package's, an attribute may be missing in both directions: the package
    may be too old for the code that asks, or its own code may ask what the class does not set.
    """
    has = members[0].has
    package = members[0].package
    if members[0].derived and not asked and not has.startswith("("):
        return (
            f"if your own code asks for it, install a release of {package} that has it; if a file of "
            f"{package} asks, the class was written for an older one: install that, or a newer project"
        )
    if not has.startswith("("):
        return "install a release that has it, or the release of the calling package that this one fits"
    if has.endswith("=)") and "," not in has:
        return "install a release that takes it, or leave the argument out"
    return (
        "caller and function are of releases that do not fit: take those whose parameters agree, mostly the "
        "newest of both, or delete copies that an older release made (unsloth_compiled_cache)"
    )


def _advice_on_fitting(library: LibraryAnswer) -> str:
    """Return which releases take as many arguments as they got, or what else to do."""
    which = " or ".join(f"{has.package} {has.releases}" for has in library.fitting[:_FEW])
    others = "a release of the package that calls it which passes fewer"
    return f"install {which}, which takes as many, or {others}; delete copies that an older release made"


def _condition_lines(row: RaisedRow, *, instructs: bool) -> Iterator[str]:
    """Yield when a library raises a message, in words, and what to change so that it does not."""
    if not row.condition:
        return
    yield f"    when    {code_conditions.in_words(row.condition)}"
    package = code_conditions.package_asked_for(row.condition)
    settings = code_conditions.settings(row.condition, row.function)
    if package:
        yield f"    advice  install {package}, in a release that {row.package} accepts"
    elif settings and not instructs:
        change = "one of them" if settings[1:] else "it"
        yield f"    advice  this depends on {', '.join(settings)}: change {change}"


def _given_lines(library: LibraryAnswer) -> Iterator[str]:
    """Yield which places set or import what is missing, and who passes what is refused."""
    for has in library.outdated[:_FEW]:
        does = "sets" if "." in has.owner else "has"
        yield f"    asks    {has.package} itself, whose {has.owner} {does} {has.has}: {has.releases}"
    if library.outdated:
        package, method = library.outdated[0].package, library.outdated[0].owner.rpartition(".")
        called = (
            f"; in a class of your own, call self.{method[2]}() at the end of __init__" if method[0] else ""
        )
        yield (
            f"    advice  the object's class was written for another release of {package}, before its code "
            f"asked for this: install the release of {package} that the project names, or a newer project"
            f"{called}"
        )
    seen: dict[tuple[str, str], SetAttribute] = {}
    for place in library.places:
        seen.setdefault((place.function, place.condition), place)
    for place in list(seen.values())[:_FEW]:
        yield f"    set by  {place.package} {place.releases}: {place.file} in {place.function}"
        if place.condition:
            yield f"    when    {place.condition}"
    if library.late:
        place = library.places[0]
        older = f"if {place.package} is an older release here, upgrade it. Otherwise " * place.since
        yield f"    advice  {older}{_ON_LATE.format(place.function.rpartition('.')[2])}"
    elif of_some_releases(library.places) and library.places:
        yield f"    advice  install {library.places[0].package} in one of these releases"
    elif library.places:
        yield "    advice  only objects that went through there have it: go that way, or meet its condition"
    yield from _class_lines(library)
    yield from _fault_lines(library)
    for place in library.optional:
        yield f"    import  {place.package} {place.releases}: {place.file}, only {place.condition}"
        yield "    advice  install the package that the condition asks for, in a release that fits"
    yield from _keyword_lines(library)
    yield from _auto_class_lines(library)


def _fault_lines(library: LibraryAnswer) -> Iterator[str]:
    """Yield what it means that a library's own code fails on a name, a call or a configuration."""
    for package, means, advice in (
        (library.undefined_in, _OF_UNDEFINED, _ON_UNDEFINED),
        (library.lacking, _OF_LACKING, _ON_LACKING),
        (library.calling, _OF_CALLING, _ON_CALLING),
        (library.other_model, _OF_OTHER_MODEL, _ON_OTHER_MODEL),
        (library.composes, _OF_COMPOSING, _ON_COMPOSING),
        ("" if library.home_own else library.home, _OF_HOME, _ON_HOME),
        (library.home if library.home_own else "", _OF_HOME_OWN, _ON_HOME_OWN),
        (library.repository_class, _OF_REPOSITORY, _ON_REPOSITORY),
        (library.handed[0], "{0}", library.handed[1]),
    ):
        if package:
            owner = library.lacks_in or library.home_class
            yield f"    means   {means.format(package, owner)}"
            yield f"    advice  {advice.format(package, owner)}"


_OF_UNDEFINED = (
    "{0}'s own code uses a name that is not defined there: a fault of this release, or an import in that "
    "file that failed before and was passed over"
)
_ON_UNDEFINED = (
    "Upgrade {0}, or go back to the release before. If the name is that of a compiled part (ops, _C, cuda), "
    "import that part alone: the error shows why it was not loaded, mostly that it was built for another "
    "torch, or, in a checkout, not at all"
)
_OF_LACKING = (
    "{0}'s own code asks its class {1} for this, and nothing set it on the way that ran: a fault of this "
    "release, a mode that the line was not made for, or files of two releases in one folder"
)
_ON_LACKING = (
    "Upgrade {0}, or go back to the release before; or leave out the option that leads to the line that "
    "failed. A class of your own that derives from {1} has to call its __init__"
)
_OF_CALLING = (
    "a line of {0} calls a function with other arguments than what ran takes: it was written for another "
    "release of the called package, or that function was replaced by a patch"
)
_ON_CALLING = (
    "Upgrade {0}, or take the release of the called package that {0} names in its requirements; without "
    "patches of other packages if some replace the function"
)
_OF_COMPOSING = "the line that failed was writing another message: {0}"
_ON_COMPOSING = (
    "What that message reports is the cause: mend it first. That its text could not be made is a fault of "
    "the code, which a newer release may have mended"
)
_OF_HOME = (
    "{1} is a class of {0}: the caller was mostly written for another release of {0}, or a class of your own "
    "or of a patch stands in its place"
)
_ON_HOME = (
    "Compare the installed {0} (pip show {0}) with what the calling package requires, and take the release "
    "of {0} that it was made for, or a newer one of the caller"
)
_OF_HOME_OWN = (
    "{1} is a class of {0}, and the line of the project expects another one: a class of its own, or {0}'s of "
    "another release"
)
_ON_HOME_OWN = (
    "Look where the object is made: if a class of {0} that wraps or joins others stands there, ask the "
    "object inside it, or give the wrapper what the line asks for; or switch off the option that leads to "
    "this line. If the project names a release of {0}, install that"
)
_ON_LATE = (
    "the object has it only once {0}() has run, of which the log shows no frame: let that run first, or "
    "leave out what asks before, such as an evaluation before the training (eval_on_start)"
)
_OF_REPOSITORY = (
    "{0} is no class of transformers: the model's repository brings it (trust_remote_code), or a project "
    "does, or it is yours"
)
_ON_REPOSITORY = (
    "Fetch the newest Python files of the model's repository from the Hub (modeling_*.py, tokenization_*.py, "
    "configuration_*.py; no revision that is pinned): the caller was mostly written for them, and files that "
    "lie beside the weights may be older. If they are the newest, the caller needs a newer release, or an "
    "older transformers"
)
_OF_OTHER_MODEL = "the code of the model type {0} was given the configuration of another type"
_ON_OTHER_MODEL = (
    "Load the checkpoint with the class that its config.json names (architectures), or with an Auto class; "
    "or give this class a checkpoint of {0}. A configuration of your own that stands for it needs this "
    "attribute as well"
)


def _auto_class_lines(library: LibraryAnswer) -> Iterator[str]:
    """Yield which Auto classes load the model."""
    if not library.auto_classes:
        return
    for has in library.auto_classes[:_LISTED]:
        yield f"    loads   {has.package} {has.releases}: {has.owner}"
    other = next((has for has in library.auto_classes if has.owner == library.refused_by), None)
    if other is not None:
        yield (
            f"    advice  install a release of {other.package} in which {other.owner} loads it, or take "
            "another of these classes"
        )
    else:
        yield "    advice  load the model with the class that fits its task"


def _keyword_lines(library: LibraryAnswer) -> Iterator[str]:
    """Yield which releases have an undefined name, and who passes or refuses a keyword."""
    for has in library.defined[:_FEW]:
        yield f"    has it  {has.package} {has.releases}: {has.owner}"
    if library.defined:
        yield f"    advice  {_advice_on_copies(library.defined[0].package)}"
    for has in library.symbols:
        yield f"    has it  {has.package} {has.releases} (wheels): {describe_symbol(has.owner)}"
    for has in library.refused[:_FEW]:
        yield f"    takes   none of {has.package} {has.releases}: {has.owner}{has.has}"
    if library.refused:
        yield "    advice  the code was written for a fork of the package, or the name is misspelt"
    for each in library.passed[:_FEW]:
        yield f"    passes  {each.package} {each.releases}"
    if library.passed:
        yield "    advice  take a release that does not pass it, or one of the called code that takes it"


def _advice_on_copies(package: str) -> str:
    """Return what to do if code uses a name of a package that it neither defines nor imports."""
    return (
        f"code that was copied from {package}, or written for another release of it, uses the name. Upgrade "
        "the package whose code it is (unsloth copies code: upgrade unsloth and unsloth_zoo, and delete "
        f"unsloth_compiled_cache), or take another release of {package}; in your own script, import the name"
    )


def _class_lines(library: LibraryAnswer) -> Iterator[str]:
    """Yield the classes related to that of the object which have the attribute."""
    for has in library.derived[:_LISTED]:
        yield f"    has it  {has.package} {has.releases}: {has.owner}.{has.has}"
    for one in library.classes[: _LISTED - len(library.derived)]:
        yield f"    has it  {one.package} {one.releases}: {one.name}"
    if (library.derived or library.classes) and not library.members:
        yield "    advice  one of these classes is expected, and an object of another was made or put there"


def _shortened(parameters: str) -> str:
    return parameters if len(parameters) <= _SHORT else f"{parameters[: _SHORT - 2]}…)"


def library_tree(library: LibraryAnswer) -> dict[str, Any]:
    """Return the answer as a part of the JSON report."""
    return {
        "raises": [
            {
                "package": found.row.package,
                "releases": found.releases,
                "file": found.row.file,
                "function": found.row.function or None,
                "condition": found.row.condition or None,
            }
            for found in library.raises
        ],
        "members": [
            {"package": has.package, "releases": has.releases, "owner": has.owner, "has": has.has}
            for has in (*library.members, *library.derived)
        ],
        "places": [place._asdict() for place in library.places],
        "passes": [each._asdict() for each in library.passed],
        "classes": [one._asdict() for one in library.classes],
        "optional": [place._asdict() for place in library.optional],
        "refused": [
            {"package": has.package, "releases": has.releases, "owner": has.owner, "has": has.has}
            for has in library.refused
        ],
        "defined": [
            {"package": has.package, "releases": has.releases, "path": has.owner} for has in library.defined
        ],
        "symbols": [
            {"package": has.package, "releases": has.releases, "symbol": has.owner} for has in library.symbols
        ],
        "auto_classes": [
            {"package": has.package, "releases": has.releases, "auto_class": has.owner}
            for has in library.auto_classes
        ],
    }
