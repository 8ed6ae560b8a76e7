"""The messages that code raises are read with the condition before each."""

import ast
from textwrap import dedent

import pytest

from envcheck.atlas.members import module_members
from envcheck.atlas.raised_messages import CUT, RaisedMessage, raised_messages, shortened


def messages(source: str) -> list[RaisedMessage]:
    return list(raised_messages(ast.parse(dedent(source))))


def test_a_message_has_its_function_and_the_condition_above() -> None:
    found = messages(
        """
        class Tuner:
            def inject(self, names):
                if not self.targeted:
                    raise ValueError(f"Target modules {names} not found in the base model.")
        """
    )

    template = "Target modules {} not found in the base model."
    assert found == [RaisedMessage("ValueError", template, "Tuner.inject", "if not self.targeted")]


@pytest.mark.parametrize(
    ("statement", "condition", "template"),
    [
        ("assert config is None, 'The config was given in two places'", "unless config is None", "The config was given in two places"),
        ("if fits:\n    pass\nelse:\n    raise ValueError('The tensor does not fit: %s' % x)", "unless fits", "The tensor does not fit: {}"),
        ("if a:\n    message = f'Cannot use {a} here'\n    raise errors.Bad(message + ' because it is off')", "if a", "Cannot use {} here because it is off"),
        ("try:\n    f()\nexcept OSError as e:\n    raise RuntimeError('The file {} cannot be read'.format(p)) from e", "on OSError", "The file {} cannot be read"),
        ("raise ValueError('''\n    The first line says it all\n    and this says more''')", "", "The first line says it all"),
    ],
)  # fmt: skip
def test_forms_of_messages(statement: str, condition: str, template: str) -> None:
    (found,) = messages(statement)

    assert (found.condition, found.template) == (condition, template)


@pytest.mark.parametrize(
    ("call", "exception", "condition"),
    [
        (
            "_p_assert(x.grad is None, f'Expects no gradient of {x} here')",
            "AssertionError",
            "unless x.grad is None",
        ),
        ("torch._check(n > 0, lambda: f'Expects no gradient of {x} here')", "RuntimeError", "unless n > 0"),
        ("_p_assert(False, f'Expects no gradient of {x} here')", "AssertionError", ""),
    ],
)
def test_functions_that_raise_their_text(call: str, exception: str, condition: str) -> None:
    (found,) = messages(call)

    assert found == (exception, "Expects no gradient of {} here", "", condition)


@pytest.mark.parametrize(
    "call",
    [
        "_check(path, self.folder)",
        "check(x, 'a text of several words here')",
        "self._check('one text of it')",
    ],
)
def test_functions_with_a_like_name_raise_nothing(call: str) -> None:
    assert messages(call) == []


def test_short_and_unknown_messages_are_left_out() -> None:
    assert messages("raise ValueError(text)\nraise KeyError('no key')\nraise SystemExit(1)") == []


def test_a_long_message_is_cut() -> None:
    (found,) = messages(f"raise ValueError('{'word ' * 60}')")

    assert found.template.endswith("…")
    assert len(found.template) == 120


def test_members_of_classes_and_parameters_of_functions() -> None:
    members = module_members(
        ast.parse(
            dedent(
                """
                class Config(Base, Generic[T]):
                    loss: str = "sft"
                    def __init__(self, model, *, beta=0.1, **kwargs):
                        self.model = model
                def load(path, revision=None): ...
                """
            )
        )
    )

    config = members.classes["Config"]
    assert config.bases == ("Base", "Generic")
    assert config.attributes == {"loss", "__init__", "model"}  # made by __init__
    assert config.methods == {"__init__": "self, model, *, beta=, **kwargs"}
    assert members.functions == {"load": "path, revision="}


def test_a_template_is_shortened_unless_another_one_begins_alike() -> None:
    long = "Expected parameter `{}` of type torch.Tensor in a group whose ranks agree"
    other = "Expected parameter `{}` of type torch.Tensor in a group whose sizes agree"
    alone = "Another message which is longer than what is needed to tell it from the others"
    short = shortened([("TypeError", long), ("TypeError", other), ("TypeError", alone)])
    assert short["TypeError", long] == long
    assert short["TypeError", other] == other
    assert short["TypeError", alone] == f"{alone[:59]}{CUT}"
