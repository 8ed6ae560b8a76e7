"""Attributes that objects of a class have once they are made, and those that it may answer to."""

import ast

from envcheck.atlas.members import ClassMembers, module_members


def members(source: str) -> ClassMembers:
    (found,) = module_members(ast.parse(source)).classes.values()
    return found


def test_what_a_method_assigns_that_making_calls_is_there() -> None:
    found = members(
        "class Rotary:\n"
        "    def __init__(self):\n"
        "        self._make()\n"
        "    def _make(self):\n"
        "        self._fill()\n"
        "    def _fill(self):\n"
        "        self.length = 1\n"
        "    def extend(self):\n"
        "        self.later = 1\n"
    )

    assert "length" in found.attributes
    assert "later" not in found.attributes


def test_what_is_registered_or_set_by_name_is_there() -> None:
    found = members(
        "class Rotary:\n"
        "    def __init__(self, name, other):\n"
        "        self.register_buffer('cos_cached', 1, persistent=False)\n"
        "        setattr(self, 'sin_cached', 1)\n"
        "        setattr(self, name, 1)\n"
        "        setattr(other, 'elsewhere', 1)\n"
    )

    assert {"cos_cached", "sin_cached"} <= found.attributes
    assert "elsewhere" not in found.attributes


def test_a_class_that_passes_names_on_may_answer_to_any() -> None:
    found = members(
        "class Engine:\n    def __getattr__(self, name):\n        return getattr(self.module, name)\n"
    )

    assert found.may_answer("generate")


def test_a_class_that_answers_to_names_it_lists_answers_to_no_others() -> None:
    found = members(
        "class Tokenizer:\n"
        "    SPECIAL = ['pad_token', 'additional_special_tokens']\n"
        "    def __getattr__(self, name):\n"
        "        if name.removesuffix('_id') in self.SPECIAL:\n"
        "            return self._special[name]\n"
        "        raise AttributeError(f'{self.__class__.__name__} has no attribute {name}')\n"
    )

    assert found.may_answer("pad_token_id")
    assert found.may_answer("additional_special_tokens_ids")
    assert not found.may_answer("batch_encode_plus")


def test_a_class_without_such_a_method_answers_to_nothing() -> None:
    assert not members("class Plain:\n    kind = 'pad_token'\n").may_answer("pad_token")


def test_what_a_loop_over_its_own_defaults_sets_is_there() -> None:
    found = members(
        "class Config:\n"
        "    def __init__(self, **kwargs):\n"
        "        for name, value in self._defaults().items():\n"
        "            setattr(self, name, kwargs.pop(name, value))\n"
        "        for name in self._others():\n"
        "            setattr(kwargs, name, 1)\n"
        "    @staticmethod\n"
        "    def _defaults():\n"
        "        return {'max_length': 20, 'top_k': 50}\n"
        "    def _others(self):\n"
        "        return {'elsewhere': 1}\n"
    )

    assert {"max_length", "top_k"} <= found.attributes
    assert "elsewhere" not in found.attributes


def test_the_old_name_of_a_class_is_the_class() -> None:
    found = module_members(ast.parse("class New:\n    size = 1\nOld = New\nother = size\n")).classes

    assert found["Old"] == found["New"]
    assert "other" not in found
