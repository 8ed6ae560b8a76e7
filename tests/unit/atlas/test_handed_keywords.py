"""A keyword that goes through `**kwargs` of constructors is judged where the partner's class receives it."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.keywords import find_keyword_gaps
from envcheck.atlas.reader import PackageReader
from tests.unit.atlas.sources import reader

OLD, NEW = "0.27.2", "0.28.0"
HTTPX = reader(
    "httpx",
    {
        OLD: {"httpx/": "class Client:\n    def __init__(self, *, timeout=1, proxies=None): ...\n"},
        NEW: {"httpx/": "class Client:\n    def __init__(self, *, timeout=1): ...\n"},
    },
)
FOUND = {"httpx.Client(proxies=)": (NEW,)}


def openai(wrapper: str, made: str = "Wrapper(proxies=None)", parameter: str = "client") -> PackageReader:
    """Return openai with this class around the partner's, which its documented class makes."""
    base = f"import httpx\n{textwrap.dedent(wrapper)}\nclass Base:\n    def __init__(self, {parameter}=None):\n        {made}\n"
    root = "from ._base import Base\nclass OpenAI(Base):\n    def __init__(self, client=None):\n        super().__init__(client=client)\n"
    return reader("openai", {"1.40.0": {"openai/": root, "openai._base": base}})


def asked(
    wrapper: str, made: str = "Wrapper(proxies=None)", parameter: str = "client"
) -> dict[str, tuple[str, ...]]:
    """Return what the documented class lacks of its partner, by what it needs."""
    return {gap.needs: gap.lacking for gap in find_keyword_gaps(openai(wrapper, made, parameter), HTTPX)}


PLAIN = "class Wrapper(httpx.Client):\n    def __del__(self): ...\n"
HANDS_ON = "class Wrapper(httpx.Client):\n    def __init__(self, **kwargs):\n        {}\n        super().__init__(**kwargs)\n"


def test_a_class_without_a_constructor_takes_what_its_base_takes() -> None:
    (gap,) = find_keyword_gaps(openai(PLAIN), HTTPX)
    assert (gap.entry, gap.needs, gap.lacking) == ("openai.OpenAI(...)", "httpx.Client(proxies=)", (NEW,))
    assert gap.places == ("openai/_base.py:7",)


@pytest.mark.parametrize(
    "does",
    [
        "pass",
        "kwargs.setdefault('timeout', 3)",
        "kwargs['timeout'] = kwargs.get('timeout') or 3",
        "kwargs.pop('retries', None)",
        "if 'timeout' not in kwargs:\n            kwargs['timeout'] = 3",
    ],
)
def test_what_a_constructor_leaves_in_its_kwargs_reaches_the_base(does: str) -> None:
    (gap,) = find_keyword_gaps(openai(HANDS_ON.format(does)), HTTPX)
    assert (gap.needs, gap.lacking) == ("httpx.Client(proxies=)", (NEW,))
    assert gap.places[0].startswith("openai/_base.py:")
    assert "Wrapper(proxies" in line_at(does, gap.places[0])


def line_at(does: str, place: str) -> str:
    """Return the line of the package that a place names."""
    (release,) = openai(HANDS_ON.format(does)).by_version.values()
    path, _, number = place.rpartition(":")
    return release.files.read(path).decode().splitlines()[int(number) - 1]


@pytest.mark.parametrize(
    "does",
    [
        "kwargs.pop('proxies')",
        "del kwargs['proxies']",
        "kwargs = {}",
        "kwargs = {key: kwargs[key] for key in known(httpx.Client)}",
        "clean(kwargs)",
        "kwargs.clear()",
        "kwargs.pop(name)",
    ],
)
def test_what_a_constructor_may_take_out_of_its_kwargs_does_not(does: str) -> None:
    assert asked(HANDS_ON.format(does)) == {}


@pytest.mark.parametrize(
    "wrapper",
    [
        "class Wrapper(httpx.Client):\n    def __init__(self, proxies=None, **kwargs):\n        super().__init__(**kwargs)\n",
        "class Wrapper(httpx.Client):\n    def __init__(self, **kwargs):\n        super().__init__(**filtered(kwargs))\n",
        "class Wrapper(httpx.Client):\n    @renames('proxies')\n    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n",
        "class Wrapper(httpx.Client):\n    def __new__(cls, **kwargs): ...\n",
        "class Wrapper(httpx.Client, metaclass=Makes): ...\n",
        "@dataclass\nclass Wrapper(httpx.Client):\n    proxies: str = ''\n",
        "@registered\nclass Wrapper(httpx.Client): ...\n",
        "class Wrapper(httpx.Client):\n    def __init__(self, **kwargs):\n        if ready():\n            super().__init__(**kwargs)\n",
        "from fast import Wrapper\n",
    ],
)
def test_a_constructor_that_may_change_its_arguments_gives_no_gap(wrapper: str) -> None:
    assert asked(wrapper) == {}


def test_two_classes_hand_on_what_a_function_passes() -> None:
    nested = HANDS_ON.format("pass").replace("Wrapper", "Inner") + "class Wrapper(Inner):\n    pass\n"
    make = nested + "def make(**kwargs):\n    return Wrapper(**kwargs)\n"
    assert asked(nested) == asked(make, "make(proxies=None)") == FOUND


def test_a_keyword_that_a_constructor_adds_reaches_the_base() -> None:
    assert asked(HANDS_ON.format("kwargs.setdefault('proxies', None)"), "Wrapper()") == FOUND
    assert asked(HANDS_ON.format("kwargs['proxies'] = None"), "Wrapper()") == FOUND


def test_a_name_that_only_type_checkers_see_otherwise_is_followed() -> None:
    named = "if TYPE_CHECKING:\n    Shown = httpx.Client\nelse:\n    Shown = _Own\n"
    wrapper = f"class _Own(httpx.Client): ...\n{named}class Wrapper(Shown): ...\n"
    assert asked(wrapper) == FOUND
    assert asked(wrapper.replace("TYPE_CHECKING", "FAST")) == {}
    assert asked("Wrapper = httpx.Client\n") == FOUND
    assert asked("Wrapper = _Own\n_Own = Wrapper\n") == {}


def test_a_client_that_users_give_is_no_gap_unless_nearly_nobody_gives_one() -> None:
    assert asked(PLAIN, "self.made = client or Wrapper(proxies=None)") == {}
    assert asked(PLAIN, "self.made = http_client or Wrapper(proxies=None)", parameter="http_client") == FOUND
    assert asked(PLAIN, "self.made = http_client and Wrapper(proxies=1)", parameter="http_client") == {}
