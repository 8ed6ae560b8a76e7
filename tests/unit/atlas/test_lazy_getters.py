"""A name that `__getattr__` imports when it is asked for is offered, and taking it imports its module."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.missing_names import find_missing_names
from envcheck.atlas.offers import OfferAnswer, Way
from tests.unit.atlas.sources import missing, offers, reader

REFUSES = "    raise AttributeError(name)\n"
LOADED = "module = importlib.import_module"

FORMS = [
    "if name == 'Trainer':\n    from .trainer import Trainer\n    return Trainer",
    "if name == 'Trainer':\n    from x.trainer import Trainer as found\n    globals()[name] = found\n    return found",
    "if name == 'Other':\n    return 1\nelif name in ('Trainer', 'Args'):\n    from . import trainer\n    return getattr(trainer, name)",
    f"if name == 'Trainer':\n    {LOADED}('x.trainer')\n    return getattr(module, name)",
    f"if name == 'Trainer':\n    {LOADED}('.trainer', __name__)\n    return module.Trainer",
    f"names = {{'Trainer', 'Args'}}\nif name in names:\n    {LOADED}('.trainer', package=__name__)\n    return getattr(module, name)",
    "if name in NAMES:\n    import x.trainer as trainer\n    return getattr(trainer, name)",
    "if name in PAIRS:\n    path, attribute = PAIRS[name]\n    return getattr(importlib.import_module(path, __name__), attribute)",
    "if name in PLAIN:\n    return getattr(importlib.import_module(f'.{PLAIN[name]}', __name__), name)",
    "if name in PLAIN:\n    return getattr(importlib.import_module('.' + PLAIN[name], __package__), name)",
    "if name in PLAIN:\n    return getattr(importlib.import_module(f'{__name__}.{PLAIN[name]}'), name)",
]
TABLES = {
    "PAIRS": "PAIRS = {'Trainer': ('.trainer', 'Trainer')}\n",
    "PLAIN": "PLAIN = {'Trainer': 'trainer'}\n",
    "NAMES": "NAMES = frozenset(['Trainer', 'Args'])\n",
}


def root(body: str) -> str:
    """Return a package file with the tables that the body of its `__getattr__` names."""
    tables = "".join(text for name, text in TABLES.items() if name in body)
    return f"import importlib\n{tables}def __getattr__(name):\n{textwrap.indent(body, '    ')}\n{REFUSES}"


@pytest.mark.parametrize("body", FORMS)
def test_what_a_getattr_imports_is_found(body: str) -> None:
    found = offers("x", {"x/": root(body), "x.trainer": "class Trainer: ...\nclass Args: ..."})
    trainer = found.find("x", "Trainer")
    assert (trainer.way, trainer.module, trainer.name) == (Way.LAZY, "x.trainer", "Trainer")
    assert found.name("x", "Missing") is OfferAnswer.NO


def test_a_submodule_that_a_getattr_imports_is_found() -> None:
    body = "if name in ('trainer', 'rare'):\n    return importlib.import_module(f'.{name}', __name__)"
    found = offers("x", {"x/": root(body), "x.trainer": ""})
    assert found.find("x", "trainer").way is Way.SUBMODULE
    assert found.name("x", "rare") is OfferAnswer.UNKNOWN


@pytest.mark.parametrize(
    "body",
    [
        "if name == 'Trainer':\n    try:\n        from .trainer import Trainer\n    except ImportError:\n        Trainer = None\n    return Trainer",
        "if name == 'Trainer':\n    return load(name)",
        "if name == 'Trainer':\n    from .gone import Trainer\n    return Trainer",
        "if name == 'Trainer':\n    module = importlib.import_module(path)\n    return getattr(module, name)",
        "if name == 'Trainer':\n    module = importlib.import_module('.trainer', 'other')\n    return getattr(module, name)",
        "if name.startswith('T') and name != 'Trainer':\n    from .trainer import Trainer\n    return Trainer",
    ],
)
def test_a_getattr_that_may_do_something_else_leaves_the_name_unknown(body: str) -> None:
    found = offers("x", {"x/": root(body), "x.trainer": "class Trainer: ..."})
    assert found.name("x", "Trainer") is OfferAnswer.UNKNOWN


TRANSFORMERS = reader(
    "transformers",
    {"4.57.0": {"transformers/": "class HybridCache: ..."}, "5.0.0": {"transformers/": "class Cache: ..."}},
)
ASKS = "from transformers import HybridCache\ndef get_peft_model(): ..."


def test_the_entry_that_asks_for_the_name_fails_where_its_module_does() -> None:
    asked = root(
        "if name == 'get_peft_model':\n    from .model import get_peft_model\n    return get_peft_model"
    )
    (gap,) = find_missing_names(reader("peft", {"1.0": {"peft/": asked, "peft.model": ASKS}}), TRANSFORMERS)
    assert (gap.entry, gap.lacking) == ("from peft import get_peft_model", ("5.0.0",))
    assert gap.places == ("peft/model.py:1",)


def test_a_getattr_that_first_asks_for_the_partner_is_followed_where_the_partner_is_there() -> None:
    imports = "from .model import get_peft_model\n    return get_peft_model"
    beside = "try:\n    import transformers\n    THERE = True\nexcept ImportError:\n    THERE = False\n"
    body = f"if not THERE:\n    raise ImportError(name)\nif name == 'get_peft_model':\n    {imports}"
    assert missing({"peft/": beside + root(body), "peft.model": ASKS}, TRANSFORMERS) == {
        "transformers.HybridCache": ("5.0.0",)
    }
    off = root(body.replace("not THERE", "not is_ready(name)"))
    assert missing({"peft/": off, "peft.model": ASKS}, TRANSFORMERS) == {}
