"""A function that a package puts into a partner's class is reported if every run calls it as it cannot be called."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.class_patches import find_patch_gaps
from envcheck.atlas.gaps import GapKind
from envcheck.atlas.reader import PackageReader
from tests.unit.atlas.sources import reader

OLD, NEW = "4.49.0", "4.50.0"
NEEDS = "transformers.trainer.Trainer.get_samples(3 arguments)"
NARROW = "def get_samples(self, batches, number): ...\n"
PLAIN = "self.get_samples(1, 2)"
PASSES = "self.get_samples(1, 2, 3)"


def transformers(*loops: str) -> PackageReader:
    """Return transformers in two or more releases whose loop of a training has these bodies."""
    return reader(
        "transformers",
        {
            f"4.{49 + minor}.0": {
                "transformers/": "from .trainer import Trainer",
                "transformers.trainer": _trainer(loop),
            }
            for minor, loop in enumerate(loops)
        },
    )


def _trainer(loop: str) -> str:
    return (
        "class Trainer:\n"
        "    def __init__(self, model=None): ...\n"
        "    def train(self):\n        self._inner_training_loop()\n"
        f"    def _inner_training_loop(self):\n{textwrap.indent(textwrap.dedent(loop), ' ' * 8)}\n"
        "    def get_samples(self, batches, number, device=None): ...\n"
    )


def refused(asking: PackageReader, partner: PackageReader | None = None) -> dict[str, tuple[str, ...]]:
    """Return the calls that a package does not accept, with the partner's releases that make them."""
    return {gap.needs: gap.lacking for gap in find_patch_gaps(asking, partner or transformers(PLAIN, PASSES))}


def on_import(module: str) -> PackageReader:
    """Return unsloth with this module, which its import runs."""
    sources = {"unsloth/": "from . import patches", "unsloth.patches": textwrap.dedent(module)}
    return reader("unsloth", {"2025.3.1": sources}, requires=("transformers",))


def on_call(function: str, body: str, head: str = "") -> PackageReader:
    """Return unsloth with `UnslothTrainer.__init__` of this body, and a function beside it."""
    module = (
        f"import inspect\n{head}\n{NARROW}\n{textwrap.dedent(function)}\n"
        f"class UnslothTrainer:\n    def __init__(self):\n{textwrap.indent(textwrap.dedent(body), ' ' * 8)}\n"
    )
    sources = {"unsloth/": "", "unsloth.trainer": module}
    return reader("unsloth", {"2025.3.1": sources}, requires=("transformers",))


@pytest.mark.parametrize(
    "module",
    [
        f"from transformers.trainer import Trainer\n{NARROW}Trainer.get_samples = get_samples",
        f"import transformers.trainer\n{NARROW}transformers.trainer.Trainer.get_samples = get_samples",
        f"from transformers.trainer import Trainer\n{NARROW}setattr(Trainer, 'get_samples', get_samples)",
        "from transformers.trainer import Trainer\nTrainer.get_samples = lambda self, batches, number: None",
        (
            f"from transformers.trainer import Trainer\n{NARROW}"
            "if hasattr(Trainer, 'get_samples'):\n    Trainer.get_samples = get_samples"
        ),
        (
            f"from transformers.trainer import Trainer\n{NARROW}"
            "def put():\n    Trainer.get_samples = get_samples\nput()"
        ),
    ],
)
def test_a_function_put_in_place_on_import_is_a_gap(module: str) -> None:
    (gap,) = find_patch_gaps(on_import(module), transformers(PLAIN, PASSES))
    assert (gap.kind, gap.needs, gap.lacking) == (GapKind.OVERRIDE, NEEDS, (NEW,))
    assert gap.entry == "import unsloth, then transformers.Trainer.train(...)"


@pytest.mark.parametrize(
    ("function", "value"),
    [
        ("def get_samples(self, batches, number, device=None): ...", "get_samples"),
        ("def get_samples(self, *args, **kwargs): ...", "get_samples"),
        ("@wrapped\ndef get_samples(self, batches, number): ...", "get_samples"),
        (NARROW, "wrapped(get_samples)"),
        (NARROW, "other"),
    ],
)
def test_a_function_that_takes_the_argument_or_may_take_it_is_no_gap(function: str, value: str) -> None:
    module = f"from transformers.trainer import Trainer\n{function}\nTrainer.get_samples = {value}"
    assert refused(on_import(module)) == {}


@pytest.mark.parametrize(
    "statement",
    [
        "if flag:\n    Trainer.get_samples = get_samples",
        "for each in many:\n    Trainer.get_samples = get_samples",
        "Other.get_samples = get_samples",
        "trainer = Trainer()\ntrainer.get_samples = get_samples",
        "original = Trainer.get_samples\nTrainer.get_samples = get_samples\nTrainer.get_samples = original",
        "def put():\n    Trainer.get_samples = get_samples",
        "if transformers.__version__ < '4.50':\n    Trainer.get_samples = get_samples",
    ],
)
def test_what_not_every_import_puts_in_place_is_no_gap(statement: str) -> None:
    head = f"import transformers\nfrom transformers.trainer import Trainer\n{NARROW}"
    assert refused(on_import(head + statement)) == {}


def test_a_function_put_in_place_beside_the_releases_that_fail_alone_is_a_gap() -> None:
    head = f"import transformers\nfrom transformers.trainer import Trainer\n{NARROW}"
    statement = "if transformers.__version__ >= '4.50':\n    Trainer.get_samples = get_samples"
    assert refused(on_import(head + statement)) == {NEEDS: (NEW,)}


PUTS = """\
def put(cls):
    if hasattr(cls, "get_samples"):
        if Cls.get_samples.__name__ == "get_samples": return
        if not inspect.getsource(Cls.get_samples).endswith("samples"):
            raise NotImplementedError
        else:
            if Cls.get_samples.__name__ != "get_samples":
                Cls.get_samples = get_samples
""".replace("cls", "Cls")


def test_a_class_that_is_handed_to_a_function_is_followed() -> None:
    """Follow it as Unsloth does so, which asks first whether its function is there already."""
    body = "from transformers.trainer import Trainer\nput(Trainer)"
    (gap,) = find_patch_gaps(on_call(PUTS, body), transformers(PLAIN, PASSES))
    assert gap.entry == "unsloth.trainer.UnslothTrainer(...), then transformers.Trainer.train(...)"
    assert (gap.needs, gap.lacking, gap.places) == (NEEDS, (NEW,), ("unsloth/trainer.py:3",))
    assert refused(on_call(PUTS, "from other import Trainer\nput(Trainer)")) == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("made", {NEEDS: (NEW,)}),
        ("other", {}),
    ],
)
def test_an_edited_copy_of_a_method_makes_the_same_calls(
    value: str, found: dict[str, tuple[str, ...]]
) -> None:
    """Pass on through a function made from the source text that it replaces; any other one stops the way."""
    reads = "source = inspect.getsource(Trainer._inner_training_loop)\nexec(source)\n" * (value == "made")
    body = (
        f"from transformers.trainer import Trainer\n{reads}"
        f"Trainer._inner_training_loop = {value}\nTrainer.get_samples = get_samples"
    )
    assert refused(on_call("", body)) == found


def test_a_call_that_not_every_training_reaches_is_no_gap() -> None:
    module = f"from transformers.trainer import Trainer\n{NARROW}Trainer.get_samples = get_samples"
    guarded = f"if self.args.flag:\n    {PASSES}"
    assert refused(on_import(module), transformers(PLAIN, guarded)) == {}
