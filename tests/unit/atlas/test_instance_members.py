"""An attribute of an object counts as used where code surely reads it and the object's class is known."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.missing_names import find_missing_names
from envcheck.atlas.reader import PackageReader
from tests.unit.atlas.sources import reader

OLD, NEW = "1.9.0", "1.10.0"
HAS = "class Accelerator:\n    def __init__(self):\n        self.step = 0\n        self.plan = None\n"
LACKS = "class Accelerator:\n    def __init__(self):\n        self.step = 0\n"
FOUND = {"accelerate.Accelerator.plan": (OLD,)}


def accelerate(old: str = LACKS, new: str = HAS, head: str = "") -> PackageReader:
    """Return accelerate in two releases with these classes."""
    sources = {
        version: {
            "accelerate/": "from .accelerator import Accelerator",
            "accelerate.accelerator": f"{head}\n{textwrap.dedent(text)}",
        }
        for version, text in ((OLD, old), (NEW, new))
    }
    return reader("accelerate", sources)


def lacked(
    constructor: str = "self.accelerator = Accelerator()",
    train: str = "",
    *,
    head: str = "",
    bases: str = "",
    partner: PackageReader | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return what a Trainer with this constructor and training lacks of its partner."""
    code = "".join(
        (
            f"from accelerate import Accelerator\n{textwrap.dedent(head)}\n",
            f"class Trainer{bases}:\n    def __init__(self, args=None, accelerator=None):\n",
            textwrap.indent(textwrap.dedent(constructor), " " * 8) + "\n",
            "    def train(self):\n",
            textwrap.indent(textwrap.dedent(train or "pass"), " " * 8) + "\n",
        )
    )
    package = reader(
        "transformers",
        {"4.0.0": {"transformers/": "from .trainer import Trainer", "transformers.trainer": code}},
    )
    return {gap.needs: gap.lacking for gap in find_missing_names(package, partner or accelerate())}


@pytest.mark.parametrize(
    "train",
    [
        "if plan := self.accelerator.plan:\n    pass",
        "print(self.accelerator.plan.name)",
        "self.accelerator.plan()",
        "for each in self.accelerator.plan:\n    pass",
        "accelerator = Accelerator()\nprint(accelerator.plan)",
        "return self._run()",
    ],
)
def test_an_attribute_of_an_object_is_read(train: str) -> None:
    head = "def _run(accelerator: Accelerator):\n    return accelerator.plan\n"
    called = "from transformers.trainer import _run\n_run(self.accelerator)"
    assert lacked(train=called if "_run" in train else train, head=head) == FOUND


@pytest.mark.parametrize(
    "train",
    [
        "print(getattr(self.accelerator, 'plan', None))",
        "if hasattr(self.accelerator, 'plan'):\n    print(self.accelerator.plan)",
        "try:\n    print(self.accelerator.plan)\nexcept AttributeError:\n    pass",
        "self.accelerator.plan = 1",
        "if self.args.flag:\n    print(self.accelerator.plan)",
        "print(self.accelerator.step)",
        "print(self.accelerator.__class__)",
    ],
)
def test_it_does_not_count_where_it_may_not_be_read(train: str) -> None:
    assert lacked(train=train) == {}


@pytest.mark.parametrize(
    "constructor",
    [
        "self.accelerator = accelerator",
        "self.accelerator = Accelerator() if args else Other()",
        "self.accelerator = Accelerator()\nself.accelerator = make()",
    ],
)
def test_nor_where_the_class_of_the_object_is_unknown(constructor: str) -> None:
    assert lacked(constructor, "print(self.accelerator.plan)") == {}


@pytest.mark.parametrize(
    "old",
    [
        "class Accelerator:\n    plan = None\n",
        "class Accelerator:\n    @property\n    def plan(self): ...\n",
        "class Accelerator:\n    def later(self):\n        self.plan, self.step = 1, 2\n",
        "class Accelerator:\n    def later(self):\n        setattr(self, 'plan', 1)\n",
        "class Accelerator:\n    def __getattr__(self, name): ...\n",
        (
            "class Accelerator:\n    def __init__(self, **kwargs):\n        for k, v in kwargs.items():\n"
            "            setattr(self, k, v)\n"
        ),
        "class Accelerator:\n    def __init__(self):\n        self.__dict__.update(make())\n",
        (
            "class Accelerator:\n    def __init__(self):\n        for k in NAMES:\n            setattr(self, k, 1)\n"
            "NAMES = ['plan']\n"
        ),
        "class Accelerator(Unknown): ...\n",
        "@decorated\nclass Accelerator: ...\n",
        "class Accelerator(metaclass=Meta): ...\n",
        "class Base:\n    plan = None\nclass Accelerator(Base): ...\n",
        "class Accelerator: ...\nAccelerator.plan = None\n",
    ],
)
def test_a_class_that_has_the_attribute_or_may_have_it_is_not_accused(old: str) -> None:
    assert lacked(train="print(self.accelerator.plan)", partner=accelerate(old)) == {}


def test_a_class_that_sets_attributes_by_other_names_lacks_this_one() -> None:
    names = "class Accelerator:\n    def __init__(self):\n        for k in NAMES:\n            setattr(self, k, 1)\n"
    old = f"{names}NAMES = ['scaler']\n"
    assert lacked(train="print(self.accelerator.plan)", partner=accelerate(old)) == FOUND


PARENT = {
    version: {
        "transformers/": "from .trainer import Trainer",
        "transformers.trainer": f"class Trainer:\n    def __init__(self):\n        self.args = 1\n{more}",
    }
    for version, more in ((OLD, ""), (NEW, "        self.plan = None\n    def scale(self, loss): ...\n"))
}


def inherited(body: str, more: str = "", bases: str = "Trainer") -> dict[str, tuple[str, ...]]:
    """Return what a trainer of TRL that derives from the Trainer lacks of transformers."""
    code = f"from transformers import Trainer\n{textwrap.dedent(more)}\nclass SFTTrainer({bases}):\n"
    package = reader(
        "trl",
        {
            "1.0.0": {
                "trl/": "from .sft import SFTTrainer\nclass SFTConfig: ...",
                "trl.sft": code + textwrap.indent(textwrap.dedent(body), " " * 4),
            }
        },
    )
    found = find_missing_names(package, reader("transformers", PARENT))
    return {gap.needs: gap.lacking for gap in found}


STEP = "def training_step(self, model, inputs):\n    "


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (f"{STEP}return 1 / self.plan", "plan"),
        (f"{STEP}return self.scale(1)", "scale"),
        ("def compute_loss(self, model, inputs):\n    return super().scale(1)", "scale"),
    ],
)
def test_an_attribute_that_the_base_has_to_have(body: str, name: str) -> None:
    assert inherited(body) == {f"transformers.Trainer.{name}": (OLD,)}


@pytest.mark.parametrize(
    ("body", "more", "bases"),
    [
        (f"{STEP}return self.args", "", "Trainer"),
        (f"{STEP}return self.plan\ndef later(self):\n    self.plan = 1", "", "Trainer"),
        (f"plan = 1\n{STEP}return self.plan", "", "Trainer"),
        (f"{STEP}return self.plan", "class Mixin:\n    plan = 1", "Trainer, Mixin"),
        (f"{STEP}return self.plan", "class Mixin:\n    plan = 1", "Mixin, Trainer"),
        (f"{STEP}return self.plan", "from other import Mixin", "Mixin, Trainer"),
        (f"{STEP}return self.plan", "def prepare(trainer):\n    trainer.plan = 1", "Trainer"),
        (f"def __getattr__(self, name): ...\n{STEP}return self.plan", "", "Trainer"),
    ],
)
def test_one_that_the_package_may_set_itself_is_not_asked_of_the_base(
    body: str, more: str, bases: str
) -> None:
    assert inherited(body, more, bases) == {}


def test_the_accelerator_of_the_trainer_has_a_known_class() -> None:
    package = reader(
        "trl",
        {
            "1.0.0": {
                "trl/": "from .sft import SFTTrainer\nclass SFTConfig: ...",
                "trl.sft": "from transformers import Trainer\nclass SFTTrainer(Trainer):\n"
                f"    {STEP}    return self.accelerator.plan\n",
            }
        },
    )
    assert {gap.needs: gap.lacking for gap in find_missing_names(package, accelerate())} == FOUND


@pytest.mark.parametrize(
    ("class_name", "method", "counts"),
    [
        ("LogCallback", "on_step_end", True),
        ("LogCallback", "describe", False),
        ("Logger", "on_step_end", False),
    ],
)
def test_callbacks_that_the_constructor_makes_run_in_a_training(
    class_name: str, method: str, *, counts: bool
) -> None:
    run = "        made = Accelerator()\n        return made.plan\n"
    callback = f"class {class_name}:\n    def {method}(self):\n{run}"
    found = lacked(f"self.callbacks = [{class_name}()]", head=callback)
    assert found == (FOUND if counts else {})


@pytest.mark.parametrize("test", ["not hasattr(self.model, 'save')", "hasattr(self.args, 'old')"])
def test_a_test_of_an_own_attribute_is_taken_not_to_raise(test: str) -> None:
    train = f"if {test}:\n    raise NotImplementedError\nelse:\n    self.model.save()\n{{}}".format
    assert lacked(train=train("print(self.accelerator.plan)")) == FOUND
