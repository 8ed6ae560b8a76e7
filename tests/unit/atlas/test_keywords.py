"""A keyword is reported where the call runs for every user and the partner's release refuses it for sure."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.gaps import GapKind
from envcheck.atlas.keywords import find_keyword_gaps
from envcheck.atlas.reader import PackageReader
from tests.unit.atlas.sources import reader

OLD, NEW = "0.34.2", "1.0.0"


def accelerate(old: str, new: str) -> PackageReader:
    """Return accelerate in two releases with these modules behind `from accelerate import …`."""
    root = "from .accelerator import *\nfrom .accelerator import Accelerator"
    sources = {
        version: {"accelerate/": root, "accelerate.accelerator": textwrap.dedent(text)}
        for version, text in ((OLD, old), (NEW, new))
    }
    return reader("accelerate", sources)


TAKES = "class Accelerator:\n    def __init__(self, split=False, dispatch=None): ...\n"
REFUSES = "class Accelerator:\n    def __init__(self, split=False): ...\n"
PARTNER = accelerate(TAKES, REFUSES)


def asked(body: str, partner: PackageReader = PARTNER, head: str = "") -> dict[str, tuple[str, ...]]:
    """Return what a Trainer whose constructor has this body lacks of its partner, by what it needs."""
    return {gap.needs: gap.lacking for gap in find_keyword_gaps(trainer(body, head), partner)}


METHODS = "# methods:\n"
"""Ends the body of the constructor; what follows are methods."""


def trainer(body: str, head: str = "") -> PackageReader:
    constructor, _, methods = textwrap.dedent(body).partition(METHODS)
    code = "".join(
        (
            "from accelerate import Accelerator\nimport accelerate\nimport inspect\n",
            f"from packaging import version\n{textwrap.dedent(head)}\n",
            "class Trainer:\n    def __init__(self, args=None, flag=False):\n",
            textwrap.indent(constructor, " " * 8) + "\n",
            textwrap.indent(methods, " " * 4),
        )
    )
    return reader(
        "transformers",
        {"4.0.0": {"transformers/": "from .trainer import Trainer", "transformers.trainer": code}},
    )


CALL = "self.accelerator = Accelerator(dispatch=1)\n"
INDENTED = textwrap.indent(CALL, "    ")
FOUND = {"accelerate.Accelerator(dispatch=)": (NEW,)}


def test_a_gap_names_the_call_the_line_and_both_sides() -> None:
    (gap,) = find_keyword_gaps(trainer(CALL), PARTNER)
    assert (gap.kind, gap.entry, gap.releases) == (GapKind.KEYWORD, "transformers.Trainer(...)", ("4.0.0",))
    assert (gap.needs, gap.lacking) == ("accelerate.Accelerator(dispatch=)", (NEW,))
    assert gap.places == ("transformers/trainer.py:8",)


def test_a_keyword_that_every_release_takes_or_none_takes_is_no_gap() -> None:
    assert asked("Accelerator(split=1)") == {}
    assert asked("Accelerator(never=1)") == {}


@pytest.mark.parametrize(
    "body",
    [
        f"if flag:\n{INDENTED}",
        f"if self.args.parallel:\n{INDENTED}",
        f"if not flag:\n    return\n{CALL}",
        f"try:\n{INDENTED}except TypeError:\n    pass\n",
        f"try:\n{INDENTED}except Exception:\n    self.accelerator = None\n",
        f"try:\n    import rare\nexcept ImportError:\n{INDENTED}",
        f"if 'dispatch' in inspect.signature(Accelerator).parameters:\n{INDENTED}",
        f"if hasattr(Accelerator, 'dispatch'):\n{INDENTED}",
        f"if version.parse(accelerate.__version__) < version.parse('1.0.0'):\n{INDENTED}",
        f"if version.parse(accelerate.__version__) >= version.parse('1.0.0'):\n    return\n{CALL}",
        f"for each in args.many:\n{INDENTED}",
        f"while flag:\n{INDENTED}",
        f"def later():\n{INDENTED}",
        "later = lambda: Accelerator(dispatch=1)",
        "flag and Accelerator(dispatch=1)",
        "Accelerator(dispatch=1) if flag else None",
        f"Accelerator = args.factory\n{CALL}",
        "table = {'dispatch': 1}\ntable.pop('dispatch')\nAccelerator(**table)",
        "table = {}\nif flag:\n    table['dispatch'] = 1\nAccelerator(**table)",
    ],
)
def test_a_call_that_not_every_user_reaches_is_no_gap(body: str) -> None:
    assert asked(body) == {}


@pytest.mark.parametrize(
    "body",
    [
        CALL,
        f"if flag:\n    raise ValueError\n{CALL}",
        f"try:\n{INDENTED}except ImportError:\n    raise\n",
        f"with open('x'):\n{INDENTED}",
        f"if version.parse(accelerate.__version__) >= version.parse('0.20'):\n{INDENTED}",
        "table = {'dispatch': 1}\nAccelerator(**table)",
        "table = dict(split=1)\ntable['dispatch'] = 1\nAccelerator(**table)",
        "from accelerate import Accelerator as Made\nMade(dispatch=1)",
        "accelerate.Accelerator(dispatch=1)",
        f"self._create()\n{METHODS}def _create(self):\n{INDENTED}",
        f"self.device\n{METHODS}@property\ndef device(self):\n{INDENTED}",
    ],
)
def test_a_call_that_every_user_reaches_is_followed(body: str) -> None:
    assert asked(body) == FOUND


def test_the_fields_of_a_dataclass_are_keywords_and_go_with_their_table() -> None:
    head = """
    from dataclasses import dataclass, asdict
    @dataclass
    class Config:
        split: bool = False
        dispatch: bool = None
        def to_dict(self):
            return asdict(self)
    class Arguments:
        def __init__(self):
            self.config = Config()
    """
    body = "self.args = Arguments()\nAccelerator(**self.args.config.to_dict())"
    assert asked(body, head=head) == FOUND
    popped = head + "        def pop(self, key): ...\n"
    assert asked(body, head=popped.replace("class Arguments", "class Other")) == {}


FIELDS = """
from dataclasses import dataclass, field
@dataclass
class Base:
    {inherited}
@dataclass
class Accelerator(Base):
    split: bool = False
    hidden: int = field(default=0, init=False)
"""


def test_a_dataclass_takes_inherited_fields() -> None:
    partner = accelerate(
        FIELDS.format(inherited="dispatch: int = 0"), FIELDS.format(inherited="other: int = 0")
    )
    assert asked(CALL, partner) == FOUND


@pytest.mark.parametrize(
    "new",
    [
        "class Accelerator:\n    def __init__(self, split=False, **kwargs): ...\n",
        "class Accelerator:\n    @renamed\n    def __init__(self, split=False): ...\n",
        "class Accelerator:\n    if version:\n        def __init__(self): ...\n    else:\n        def __init__(self, dispatch): ...\n",
        "if version:\n    class Accelerator:\n        def __init__(self): ...\nelse:\n    class Accelerator: ...\n",
        "from elsewhere import Base\nclass Accelerator(Base): ...\n",
        "class Accelerator(metaclass=Meta):\n    def __init__(self): ...\n",
        "class Accelerator:\n    def __new__(cls, *args): ...\n    def __init__(self): ...\n",
        "def make(): ...\nAccelerator = make()\n",
        "class Accelerator:\n    @deprecate_kwarg('dispatch')\n    def __init__(self, split=False): ...\n",
    ],
)
def test_a_signature_that_cannot_be_read_for_sure_gives_no_verdict(new: str) -> None:
    assert asked(CALL, accelerate(TAKES, new)) == {}


def test_a_decorator_that_passes_everything_on_hides_nothing() -> None:
    new = "class Accelerator:\n    @torch.no_grad()\n    def __init__(self, split=False): ...\n"
    assert asked(CALL, accelerate(TAKES, new)) == FOUND


def test_a_hole_between_releases_is_the_readers_blindness() -> None:
    root = {"accelerate/": "from .accelerator import Accelerator"}
    partner = reader(
        "accelerate",
        {
            version: {**root, "accelerate.accelerator": text}
            for version, text in (("0.1", TAKES), ("0.2", REFUSES), ("0.3", TAKES))
        },
    )
    assert asked(CALL, partner) == {}


def test_methods_of_an_attribute_made_from_a_partners_class_are_read_in_the_training_path() -> None:
    old = REFUSES + "    def unwrap(self, model): ...\n"
    new = REFUSES + "    def unwrap(self, model, keep=True): ...\n"
    body = """
    self.accelerator = Accelerator()
    # methods:
    def _save_checkpoint(self):
        self.accelerator.unwrap(self.model, keep=False)
    """
    (gap,) = find_keyword_gaps(trainer(body), accelerate(old, new))
    assert gap.needs == "accelerate.Accelerator.unwrap(keep=)"
    assert (gap.entry, gap.lacking) == ("transformers.Trainer.save_model(...)", (OLD,))
    replaced = body.replace("Accelerator()\n", "Accelerator()\n    self.accelerator = self.other\n", 1)
    assert asked(replaced, accelerate(old, new)) == {}


def test_a_subclass_passes_keywords_to_the_constructor_of_a_partners_class() -> None:
    head = "class Base(accelerate.Accelerator):\n    def __init__(self, x=1):\n        super().__init__(dispatch=x)\n"
    assert asked("Base()", head=head) == FOUND


def test_a_trainer_of_another_package_is_found_through_its_lazy_table() -> None:
    transformers = reader(
        "transformers",
        {
            version: {
                "transformers/": "import sys\n_import_structure = {'trainer': ['Trainer']}\n"
                "sys.modules[__name__] = _LazyModule(__name__, _import_structure)",
                "transformers.trainer": f"class Trainer:\n    def __init__(self, model, {keyword}=None): ...\n",
            }
            for version, keyword in (("4.40.0", "tokenizer"), ("5.0.0", "processing_class"))
        },
    )
    trl = reader(
        "trl",
        {
            "0.11.0": {
                "trl/": "from .sft import SFTTrainer",
                "trl.sft": "from transformers import Trainer\nclass SFTTrainer(Trainer):\n"
                "    def __init__(self, model, tokenizer):\n        super().__init__(model=model, tokenizer=tokenizer)\n",
            }
        },
    )
    (gap,) = find_keyword_gaps(trl, transformers)
    assert (gap.entry, gap.lacking) == ("trl.SFTTrainer(...)", ("5.0.0",))
    assert gap.needs == "transformers.Trainer(tokenizer=)"


def test_a_constructor_that_is_deleted_is_not_called() -> None:
    head = "from accelerate import Accelerator as Base\n{}\nclass Mine(Base):\n    def __init__(self):\n"
    head += "        super().__init__(dispatch=1)\n"

    assert asked("Mine()", head=head.format("")) == FOUND
    assert asked("Mine()", head=head.format("del Base.__init__")) == {}
    assert asked("Mine()", head=head.format("Base.__init__ = None")) == {}


def test_arguments_that_are_bound_for_later_are_not_passed() -> None:
    assert asked("self.make = partial(Accelerator, dispatch=1)", head="from functools import partial") == {}


def test_a_flag_that_was_acted_on_is_not_taken_to_be_set_again() -> None:
    body = """
    self.accelerator = Accelerator()
    # methods:
    def train(self):
        if self.control.should_save:
            self.save()
        if self.control.should_save:
            Accelerator(dispatch=1)
    """
    assert asked(body) == {}
    assert asked(body.replace("        if self.control.should_save:\n            self.save()\n", "")) == FOUND
