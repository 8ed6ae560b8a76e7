"""Look up what the code of published libraries says about the first cause of a failed run.

`answer` reads the folders of compat/ that `tools/refresh_messages.py` writes: which library raises a message
and when, which releases have an attribute or take a parameter, which place sets an attribute, and which
releases pass a keyword.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from envcheck.core.facts import Inventory, package_key
from envcheck.host.package_files import source_texts, text_of
from envcheck.knowledge import given, members, raised
from envcheck.knowledge.auto_classes import classes_that_load
from envcheck.knowledge.given import ClassWith, SetAttribute
from envcheck.knowledge.members import Membership
from envcheck.knowledge.names import modules_that_define, modules_with
from envcheck.knowledge.torch_symbols import releases_that_define
from envcheck.logs import library_questions, missing_names
from envcheck.logs.diagnosis import Cause
from envcheck.logs.events import Event
from envcheck.logs.library_questions import (
    MissingAttribute,
    RefusedCall,
    RefusedConfiguration,
    UndefinedName,
)
from envcheck.logs.own_code import own_code
from envcheck.reports.library_answer import LibraryAnswer, is_stated, of_some_releases

_NOTHING_KNOWN = Inventory()

_CALLERS = frozenset({"transformers", "trl", "peft", "accelerate", "deepspeed"})
"""Packages that call models and trainers in most trainings, asked if no traceback shows the caller."""


def answer(
    cause: Cause,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    log_text: str = "",
    inventory: Inventory = _NOTHING_KNOWN,
) -> LibraryAnswer | None:
    """Return what the code of published libraries says about a cause, as `_of_published_code`.

    If it says nothing, return the message that the failing line was about to write, or the package whose
    class it is.
    """
    found = _of_published_code(cause, tables, log_text, inventory)
    if found is not None or cause.match is not None or _means(cause):
        return found
    if message := library_questions.composed_message(cause.event):
        return LibraryAnswer(composes=message)
    distributions = missing_names.distributions_by_module(tables)
    named = missing_names.packages_named(f"{cause.event.text}\n{log_text}", distributions)
    endings = tuple(row["ending"] for row in tables.get("class_family", ()))
    servers = {row["package"] for row in tables.get("model_server", ())}
    unnamed = servers - named - missing_names.packages_in(cause.event, distributions)
    return _of_home(cause.event, endings, unnamed)


def _of_home(event: Event, endings: tuple[str, ...], servers: AbstractSet[str]) -> LibraryAnswer | None:
    """Return the only package that has the class which an exception says lacks or refuses something.

    The name has to be one of several words, so that hardly anybody gives it to a class of their own. A class
    that ends like one of a model and that only `servers` have, of which the log shows nothing, is one of the
    code that a model's repository brings.
    """
    attribute = library_questions.missing_attribute(event)
    call = library_questions.refused_call(event)
    owner = attribute.owner if attribute else call.function.rpartition(".")[0] if call else ""
    if not _OF_SEVERAL_WORDS.match(owner):
        return None
    homes = {package for package, text in texts_in("names").items() if any(modules_with(text, owner))}
    homes |= {package for package, text in texts_in("members").items() if f"\n[{owner}" in text}
    if owner.endswith(endings) and homes and homes <= servers:
        return LibraryAnswer(repository_class=owner)
    place = attribute.place if attribute else call.place if call else None
    own = own_code(place)
    return LibraryAnswer(home=homes.pop(), home_class=owner, home_own=own) if len(homes) == 1 else None


def _on_call_or_caller(
    call: RefusedCall,
    cause: Cause,
    distributions: Mapping[str, str],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
) -> LibraryAnswer | None:
    """Return what is known of a function's parameters, or else of the library that calls it."""
    found = _on_call(call, missing_names.packages_in(cause.event, distributions))
    caller = missing_names.package_of(call.place, distributions)
    if found is None or not (found.members or found.refused):
        found = _handed_to_forward(call, tables) or found
    if found is None and _is_called_by_library(call, caller):
        found = LibraryAnswer(calling=caller)
    return found


def _handed_to_forward(
    call: RefusedCall, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> LibraryAnswer | None:
    """Return what it means that a model's own `forward` refuses a keyword that transformers hands it."""
    owner, _, method = call.function.rpartition(".")
    if method != "forward" or not owner:
        return None
    rows = (row for row in tables.get("handed_to_forward", ()) if row["keyword"] == call.keyword)
    return next((LibraryAnswer(handed=(row["means"], row["advice"])) for row in rows), None)


_OF_SEVERAL_WORDS = re.compile(r"[A-Z]+[a-z\d]+[A-Z]\w{3,}")


def _of_published_code(
    cause: Cause,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    log_text: str,
    inventory: Inventory,
) -> LibraryAnswer | None:
    """Return what the code of published libraries says about a cause.

    `log_text` is what the log says elsewhere: of several libraries that raise a message, those whose files it
    names are meant. `inventory` is the judged environment.

    If a signature matched it, only an undefined symbol or a refused configuration can say more, the releases
    that have an undefined name, or the parameters of a function if its text has several causes.
    """
    symbol = library_questions.undefined_symbol(cause.event)
    configuration = library_questions.refused_configuration(cause.event)
    if symbol or configuration is not None:
        return _on_symbol(symbol) if configuration is None else _on_configuration(configuration)
    distributions = missing_names.distributions_by_module(tables)
    if cause.match is not None:
        return _beside_signature(cause, distributions)
    named = missing_names.packages_named(f"{cause.event.text}\n{log_text}", distributions)
    named |= missing_names.packages_in(cause.event, distributions)
    if attribute := library_questions.missing_attribute(cause.event):
        asks = missing_names.package_of(attribute.place, distributions)
        families = {row["ending"]: row for row in tables.get("class_family", ())}
        found = _on_attribute(attribute, asks, named, families, inventory)
        if found is not None and _is_set_late(found, cause.event):
            found = found._replace(late=True)
        common = tuple(ending for ending, row in families.items() if row.get("common"))
        if found is not None and attribute.owner.endswith(common):
            found = found._replace(unsure=_is_known_by_its_ending(attribute, found.members, named | {asks}))
        if found is None and (model := _other_model(attribute)):
            found = LibraryAnswer(other_model=model)
        if (
            found is None
            and asks
            and attribute.owner
            and has_class(asks, attribute.owner)
            and not _means(cause)
        ):
            found = LibraryAnswer(lacking=asks, lacks_in=attribute.owner)
        sure = found is not None and found.members and not found.unsure
        return found if found is None or sure or not _means(cause) else None
    if name := library_questions.undefined_name(cause.event):
        found = _on_name(name, distributions)
        return None if found is not None and found.undefined_in and _means(cause) else found
    if call := library_questions.refused_call(cause.event):
        found = _on_call_or_caller(call, cause, distributions, tables)
        return found if found is None or found.members or not _means(cause) else None
    return _on_messages(cause, distributions, named)


def _beside_signature(cause: Cause, distributions: Mapping[str, str]) -> LibraryAnswer | None:
    """Return what says more than the signature that matched: parameters, or releases with a copied name."""
    if cause.match is not None and cause.match.signature.ambiguous:
        refused = library_questions.refused_call(cause.event)
        return _on_call(refused, missing_names.packages_in(cause.event, distributions)) if refused else None
    name = library_questions.undefined_name(cause.event)
    found = _on_name(name, distributions) if name is not None else None
    return found if found is not None and found.defined else None


_MAKERS = frozenset({"__init__", "__post_init__", "__new__", "setup", "from_pretrained"})
"""Functions that have run before anybody gets the object."""


def _is_set_late(found: LibraryAnswer, event: Event) -> bool:
    """Return whether a method sets an attribute while it runs, and the log shows no frame of it.

    Then the attribute may be missing because that method had not run yet, whatever the release. A log without
    any frame does not say so.
    """
    if not any(raised.place for raised in event.exceptions):
        return False
    methods = {place.function.rpartition(".")[2] for place in found.places if place.own}
    if not methods or len(methods) < len({place.function for place in found.places}) or methods & _MAKERS:
        return False
    return not any(re.search(rf"\bin {re.escape(name)}$", event.text, re.MULTILINE) for name in methods)


_OF_MODEL = re.compile(r"/transformers/models/(?P<type>\w+)/modeling_\w+\.py$")


def _other_model(missing: MissingAttribute) -> str:
    """Return the type of model whose code reads an attribute of another type's configuration; empty if none.

    The class of the configuration has to be one of transformers, in the folder of another type.
    """
    found = _OF_MODEL.search(f"/{missing.place.file}".replace("\\", "/")) if missing.place else None
    if found is None or not missing.owner.endswith("Config"):
        return ""
    modules = [module for module, _ in modules_with(text_of("names", "transformers"), missing.owner)]
    homes = {each.split(".")[2] for each in modules if each.startswith("transformers.models.")} - {"auto"}
    return found["type"] if homes and found["type"] not in homes else ""


def _means(cause: Cause) -> bool:
    """Return whether the message says why itself, which outweighs where its words stand in a library."""
    return cause.event.form is not None and bool(cause.event.form.means)


def replaced_method(cause: Cause) -> tuple[Membership, ...]:
    """Return the library classes that have a method of the name of the user's function that raised.

    Such a function mostly stands in the place of the library's, which calls it and passes it what the
    release at hand passes. So a failure in it may be one of releases, not of the user's code.
    """
    place = cause.place
    if place is None or cause.kind != "code" or not own_code(place) or not _is_telling(place.name):
        return ()
    return members.classes_with_method(texts_in("members"), place.name)


def stated_package_that_takes(event: Event, inventory: Inventory) -> str:
    """Return the package whose release in the inventory takes the keyword that an exception says is refused.

    Then another release of it, or another class of that name, is what ran. Empty if there is no such package.
    """
    call = library_questions.refused_call(event)
    if call is None or not call.keyword:
        return ""
    found = members.releases_with_parameter(texts_in("members"), call.function, call.keyword)
    stated = (has for has in found if not has.derived and is_stated(has, inventory))
    return next((has.package for has in stated), "")


def with_kind(cause: Cause, library: LibraryAnswer) -> Cause:
    """Return the cause; its kind says that a library's check or a difference between releases explains it."""
    of_releases = library.passed or library.defined or library.outdated or library.symbols
    if library.members or of_releases or library.handed[0]:
        return cause if library.own or library.unsure else cause._replace(kind="version")
    faulty = library.composes or library.undefined_in or library.lacking or library.calling
    if faulty or library.home or library.repository_class:
        told = cause.kind != "unknown" and not (library.composes and cause.kind == "code")
        return cause if told else cause._replace(kind="check" if library.composes else "open")
    if library.optional:
        return cause._replace(kind="missing")
    if library.places:
        later = of_some_releases(library.places)
        return cause._replace(kind=("open" if library.late else "version") if later else "unset")
    if library.refused or library.derived or library.classes or library.other_model:
        return cause._replace(kind="setting")
    alone = len(cause.event.exceptions) == 1  # else the one before it says why
    by_place = cause.kind == "code" and cause.event.form is None  # which the text of a library outweighs
    told = cause.kind == "unknown" or by_place
    is_check = told and library.raises and (alone or library.raises[0].row.is_check)
    return cause._replace(kind="check") if is_check else cause


def _on_configuration(refused: RefusedConfiguration) -> LibraryAnswer | None:
    """Return which Auto classes load a model of a configuration, and in which releases."""
    found = classes_that_load(text_of("auto_classes", "transformers"), refused.configuration)
    return LibraryAnswer(auto_classes=found, refused_by=refused.auto_class) if found else None


def _on_symbol(symbol: str) -> LibraryAnswer | None:
    """Return which releases of torch define a symbol that an extension needs."""
    found = releases_that_define(text_of("symbols", "torch"), symbol)
    return LibraryAnswer(symbols=(found,)) if found is not None else None


def _on_name(undefined: UndefinedName, distributions: Mapping[str, str]) -> LibraryAnswer | None:
    """Return the file that imports a name only under a condition, or the package that only since then has it.

    The user's own undefined name is the user's, whatever packages have.
    """
    name, place = undefined
    package = missing_names.package_of(place, distributions)
    if package and place is not None:
        found = given.optional_name(text_of("given", package), place.file, name)
        if found:
            return LibraryAnswer(optional=(found._replace(package=package),))
    of_library = not own_code(place) and package not in ("", missing_names.MODELS_OWN)
    faulty = LibraryAnswer(undefined_in=package) if of_library else None
    if own_code(place) or not _is_telling(name):
        return faulty
    defined = [
        Membership(package, path, releases, "")
        for package, text in texts_in("names").items()
        if package != missing_names.PYTHON
        for path, releases in modules_that_define(text, name)
    ]
    return LibraryAnswer(defined=tuple(defined)) if len({each.package for each in defined}) == 1 else faulty


_PLAIN_WORD = re.compile(r"[A-Z][a-z]+$")
"""Name of a class, such as `Trainer` or `Config`, that a project gives to a class of its own, too."""


def _packages_meant(missing: MissingAttribute, asks: str, named: frozenset[str]) -> frozenset[str] | None:
    """Return the packages whose class may be meant; None if the log shows nothing that excludes one.

    A class of the package whose code asks for the attribute is that package's own, or of one that the log
    names. A name that is a plain word may be that of a class of the user's if the user's code asks.
    """
    if asks:
        own = any(_has_class(text_of(folder, asks), missing) for folder in ("members", "given"))
        return named | {asks} if own else None
    plain = missing.place is not None and _PLAIN_WORD.match(missing.owner)
    return named if plain else None


def has_class(package: str, name: str) -> bool:
    """Return whether a package has a class of this name in some release."""
    return any(
        _has_class(text_of(folder, package), MissingAttribute(name, "")) for folder in ("members", "given")
    )


def _has_class(text: str, missing: MissingAttribute) -> bool:
    """Return whether a package's text names the class of the object among its own."""
    named = rf"(?:^[\[(]| |<class ){re.escape(missing.owner)}[\] .]"
    return bool(missing.owner) and re.search(named, text, re.MULTILINE) is not None


def _on_attribute(
    missing: MissingAttribute,
    asks: str,
    named: frozenset[str],
    families: Mapping[str, Mapping[str, Any]],
    inventory: Inventory,
) -> LibraryAnswer | None:
    """Return which releases and which other classes have an attribute, and which places set it."""
    texts, given_texts = texts_in("members"), texts_in("given")
    meant = _packages_meant(missing, asks, named)
    found = _releases_with(missing, texts, meant, families)
    if meant is not None:
        texts = {package: text for package, text in texts.items() if package in meant}
        given_texts = {package: text for package, text in given_texts.items() if package in meant}
    # A release has what its own code asks for, unless a class of another project took its base's place.
    outdated = tuple(
        has
        for has in found
        if has.package == asks and has.derived and not _is_defined(texts_in("members"), missing)
    )
    found = tuple(has for has in found if has.package != asks)
    outdated = outdated or (() if found else _set_by_the_base(missing, asks))
    found = () if outdated else _without_frameworks(found, named)
    classes = members.related_classes(texts, missing.owner) if missing.owner else ()
    found = tuple(
        has
        for has in found
        if not is_stated(has, inventory)
        or not given.sets_only_in_some_cases(
            text_of("given", has.package),
            classes,
            missing.name,
            str(inventory.known(package_key(has.package))),
        )
    )
    # A place whose condition reads the attribute sets it anew, so another one had set it before; one that
    # asks whether the object has something replaces what the class has.
    places = tuple(
        place
        for place in given.places_that_set(given_texts, classes, missing.name)
        if not re.search(rf"\b{re.escape(missing.name)}\b|\bhasattr\(", place.condition)
        and not _is_where_it_fails(place, missing)
    )
    beside = given.classes_with(given_texts, missing.owner, missing.name) if missing.owner else ()
    derived = members.derived_classes_with(texts, missing.owner, missing.name) if missing.owner else ()
    known = {has.owner for has in derived}
    beside = tuple(each for each in beside if each.name not in known)
    derived, beside = _named_by_file(derived, beside, missing)
    if derived or beside:  # then an object of one of these classes is meant, not one that was changed later
        places = tuple(place for place in places if place.own)
    all_texts = (*texts.items(), *given_texts.items())
    defining = frozenset(package for package, text in all_texts if _has_class(text, missing))
    places = _without_later_ones(_by_those_who_ask(places, missing.name, asks, defining))
    if found:  # then another release is meant, not a place from which a package sets it in some cases
        places = ()
    if not (found or places or derived or beside or outdated):
        return None
    return LibraryAnswer(
        members=_libraries_first(found),
        places=() if outdated else places,
        derived=derived,
        classes=beside,
        outdated=outdated,
        asked=missing.place is not None,
    )


_OF_FILE = re.compile(r"(?:^|/)([a-z\d]{2,})_(?:trainer|config|args|arguments)\.py$")
"""A file whose name begins with that of the method it is about: `dpo_trainer.py`."""


def _named_by_file(
    derived: tuple[Membership, ...], beside: tuple[ClassWith, ...], missing: MissingAttribute
) -> tuple[tuple[Membership, ...], tuple[ClassWith, ...]]:
    """Return the classes of the method that the failing file is about, if there are any: `DPOConfig`."""
    found = _OF_FILE.search(missing.place.file.replace("\\", "/")) if missing.place is not None else None
    if found is None:
        return derived, beside
    ours = tuple(has for has in derived if has.owner.lower().startswith(found[1]))
    classes = tuple(one for one in beside if one.name.rpartition(".")[2].lower().startswith(found[1]))
    return (ours, classes) if ours or classes else (derived, beside)


def _is_known_by_its_ending(
    missing: MissingAttribute, found: Sequence[Membership], named: frozenset[str]
) -> bool:
    """Return whether nothing but the end of a class's name says that it derives from a package's class.

    Many projects call a class of their own something with Config at its end.
    """
    if not found or not found[0].derived or found[0].package in named:
        return False
    return not any(modules_with(text_of("names", found[0].package), missing.owner))


def _set_by_the_base(missing: MissingAttribute, asks: str) -> tuple[Membership, ...]:
    """Return the releases in which a method of the base class sets what another one asks of `self`.

    The object's class, which is not of the package, was written for releases in which nobody had to call it.
    """
    if not (asks and missing.of_self and missing.place) or _is_defined(texts_in("members"), missing):
        return ()
    places = given.methods_that_set(
        text_of("given", asks), missing.place.file.replace("\\", "/"), missing.name
    )
    return tuple(
        Membership(asks, place.function, place.releases, missing.name, derived=True)
        for place in places
        if place.since
    )[:1]


def _is_defined(texts: Mapping[str, str], missing: MissingAttribute) -> bool:
    """Return whether a package has the class of the object, by its name."""
    return any(_has_class(text, missing) for text in texts.values())


def _releases_with(
    missing: MissingAttribute,
    texts: Mapping[str, str],
    meant: frozenset[str] | None,
    families: Mapping[str, Mapping[str, Any]],
) -> tuple[Membership, ...]:
    """Return which releases of the packages that are meant have an attribute of a class, or of its bases.

    Of a class that no package has, some families count only for what their base has lost since.
    """
    if not missing.owner:
        return ()
    bases = {ending: row["base"] for ending, row in families.items()}
    found = members.releases_with_attribute(texts, missing.owner, missing.name, among=meant, families=bases)
    lost = tuple(ending for ending, row in families.items() if row.get("lost"))
    if not missing.owner.endswith(lost) or _is_defined(texts, missing):
        return found
    return tuple(has for has in found if all(span[1] != has.ends[1] for span in has.spans))


def _without_frameworks(found: tuple[Membership, ...], named: frozenset[str]) -> tuple[Membership, ...]:
    """Return the rows; if libraries have some, without those of frameworks that the log does not name."""
    of_libraries = tuple(has for has in found if has.package in members.LIBRARIES or has.package in named)
    return of_libraries or found


def _is_where_it_fails(place: SetAttribute, missing: MissingAttribute) -> bool:
    """Return whether an attribute is set in the very function that looks for it in vain."""
    frame = missing.place
    return (
        frame is not None
        and place.function.rpartition(".")[2] == frame.name
        and frame.file.replace("\\", "/").endswith(place.file)
    )


def _without_later_ones(places: tuple[SetAttribute, ...]) -> tuple[SetAttribute, ...]:
    """Return the places without those that set anew, under a condition, what another sets from outside.

    An object whose attribute is set from outside gets it in the place that has no condition.
    """
    first = {(place.package, place.own) for place in places if not place.condition and not place.own}
    return tuple(place for place in places if not place.condition or (place.package, place.own) not in first)


def _builds_on(packages: frozenset[str], base: str) -> bool:
    """Return whether the newest release of each of these packages requires a package; False for none."""
    from envcheck.commands.atlas_tables import release_table

    table = release_table() if packages else None
    read = {each: table.versions(each) for each in packages} if table else {}
    newest = [table.row(each, releases[-1]) for each, releases in read.items() if table and releases]
    return bool(newest) and all(
        row is not None and any(re.match(rf"{re.escape(base)}\b(?!-)", text) for text in row.requires)
        for row in newest
    )


_TELLING = 8
"""Letters of a name, with an underscore in it, that only one package uses."""


def _by_those_who_ask(
    places: Sequence[SetAttribute], name: str, asks: str, defining: frozenset[str]
) -> tuple[SetAttribute, ...]:
    """Return the places in the object's own class, and those of the package that asks for the attribute.

    If it is unknown who asks, the places of one package count, and only for a name that says enough. A
    package that those in `defining`, which have the class, build on does not know that class.
    """
    chosen = tuple(place for place in places if place.own or place.package == asks)
    if chosen or asks:
        return chosen
    places = [place for place in places if not _builds_on(defining - {place.package}, place.package)]
    alone = len({place.package for place in places}) == 1
    return tuple(places) if alone and _is_telling(name) else ()


def _is_telling(name: str) -> bool:
    """Return whether a name is one that two packages hardly choose independently."""
    return "_" in name.strip("_") and len(name) >= _TELLING


def _on_call(call: RefusedCall, callers: frozenset[str]) -> LibraryAnswer | None:
    """Return the parameters of a function by releases, or who passes what it does not take.

    Only a package whose code the traceback shows can have passed it. Without a traceback, who passes it is
    known only if but one of the usual callers does.
    """
    texts = texts_in("members")
    if call.field:
        owner = call.function.rpartition(".")[0]
        fields = members.releases_with_attribute(texts, owner, call.keyword, among=None, families={})
        return LibraryAnswer(members=_libraries_first(fields)) if fields else None
    if not call.keyword:
        found = members.releases_by_parameters(texts, call.function)
        if call.too_many:
            found = _without_any_number(found)
        by_user = len({has.package for has in found}) == 1 and own_code(call.place)
        members_found = _libraries_first(found)
        fitting = tuple(has for has in members_found if _is_fitting(has, call))
        if not found:
            return None
        return LibraryAnswer(members=members_found, own=by_user, by_position=True, fitting=fitting)
    if found := members.releases_with_parameter(texts, call.function, call.keyword):
        return LibraryAnswer(members=_libraries_first(found))
    passing = given.packages_that_pass(texts_in("given"), call.keyword)
    passed = tuple(each for each in passing if each.package in (callers or _CALLERS))
    private = call.keyword.startswith("_")  # which a package passes to its own functions alone
    private = private or _OF_SETTINGS.search(call.function) is not None  # made by scripts and parsers
    if not callers and (private or len(passed) != 1 or not _may_be_librarys(call.function, texts)):
        passed = ()
    if own_code(call.place):  # the user's own line passes it
        passed = ()
    refused = members.packages_whose_releases_all_refuse(texts, call.function, call.keyword)
    return LibraryAnswer(passed=passed, refused=refused) if passed or refused else None


_OF_SETTINGS = re.compile(r"(?:Config|Configuration|Arguments|Args)\.__init__$")
"""Constructor of a class that holds settings."""


def _is_called_by_library(call: RefusedCall, caller: str) -> bool:
    """Return whether a library's own line writes out a call of a method of a library's class.

    A function that is in no class, or in one that no library has, may be the user's, which libraries call.
    """
    owner = call.function.rpartition(".")[0]
    if call.keyword or not (call.written and owner) or caller in ("", missing_names.MODELS_OWN):
        return False
    known = _is_defined(texts_in("members"), MissingAttribute(owner, ""))
    return known and not own_code(call.place)


def _is_fitting(has: Membership, call: RefusedCall) -> bool:
    """Return whether the function in these releases takes as many positional arguments as it got."""
    same = has.owner == call.function or has.owner.rpartition(".")[2] == call.function
    return same and call.given > 0 and call.given <= members.most_positional(has.has)


def _without_any_number(found: tuple[Membership, ...]) -> tuple[Membership, ...]:
    """Return the parameters without packages of which every release takes any number of arguments.

    None of their functions can have said that it got too many.
    """
    limited = {has.package for has in found if not re.search(r"(?<!\*)\*\w", has.has)}
    return tuple(has for has in found if has.package in limited)


def _may_be_librarys(function: str, texts: Mapping[str, str]) -> bool:
    """Return whether a function may be a library's, as far as its name tells.

    The constructor of a class that no library has, nor a base of it by name, is called by own code, and so is
    a function that no library has, nor a method of its name.
    """
    owner, _, method = function.rpartition(".")
    if not owner and not method.startswith("__"):
        return any(f"({method})\n" in text or f".{method})\n" in text for text in texts.values())
    if method != "__init__" or not owner:
        return True
    known = members.related_classes(texts, owner)
    headers = [f"\n{form.format(name)}" for name in known for form in ("[{}]", "[{} <", "({}.")]
    return any(header in text for text in texts.values() for header in headers)


def _on_messages(
    cause: Cause, distributions: Mapping[str, str], named: frozenset[str]
) -> LibraryAnswer | None:
    """Return the places that raise the message of an exception.

    A library whose file is the innermost frame is asked first; if it does not raise the message, and its line
    does not either, the log leaves out the frames below, and the other libraries are asked. Of those, the
    `named` ones outweigh the rest. What the user's own code raises, or a library that was not read, may read
    like a short text of a library that the log does not name.
    """
    for text in library_questions.raised_texts(cause.event):
        package = missing_names.package_of(text.place, distributions)
        of_package = text_of("raised", package) if package else ""
        texts = {package: of_package} if of_package else texts_in("raised")
        place = text.place.file.replace("\\", "/") if text.place else ""
        rows = raised.find_raised(texts, text.exception, text.message, place)
        if of_package and not rows and not text.shown:
            rows = raised.find_raised(texts_in("raised"), text.exception, text.message)
        rows = tuple(found for found in rows if not _is_of_another_file(found.row, package, place))
        if text.shown and package and not of_package:  # the line that raises it is of a library not read
            continue
        of_log = tuple(found for found in rows if found.row.package in named)
        of_others = own_code(text.place) or (package and not of_package)
        if not of_log and of_others:
            rows = tuple(found for found in rows if raised.is_certain(found.row))
        if rows:
            here = any(f"/{place}".endswith(f"/{found.row.file}") for found in rows)
            by_check = text.place is not None and text.place.name in raised.CHECKS
            moved = bool(text.shown and of_package and not here and not by_check)
            return LibraryAnswer(raises=tuple(found._replace(moved=moved) for found in of_log or rows))
    return None


def _is_of_another_file(row: raised.RaisedRow, package: str, place: str) -> bool:
    """Return whether a row begins with a value and is of another file than the one that raised.

    A package may fill one text in several places (`err.format(mode="fp16")`), each under its own condition.
    """
    filled = row.template.startswith("{}")
    return filled and row.package == package and not place.endswith(f"/{row.file}")


def _libraries_first(found: Iterable[Membership]) -> tuple[Membership, ...]:
    return tuple(sorted(found, key=lambda has: has.package not in members.LIBRARIES))


def texts_in(folder: str) -> dict[str, str]:
    """Return the texts of a folder of compat/ by the packages that they are about."""
    if shipped := source_texts(folder, ".json"):
        return {name.removesuffix(".json"): json.loads(text) for name, text in shipped.items()}
    return {
        name.removesuffix(".txt"): text for name, text in source_texts(f"compat/{folder}", ".txt").items()
    }
