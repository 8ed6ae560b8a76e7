"""Functions of trainers that a program gives the options of their command line in a dictionary."""

from __future__ import annotations

from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.values import Record

TAKE_A_DICTIONARY = {"llamafactory.run_exp": "args", "axolotl.load_cfg": "config"}
"""Their packages and names, and the name of their first argument, the dictionary.

From LLaMA-Factory 0.9 (train/tuner.py) and axolotl 0.4 to 0.16 (cli/config.py, once cli/__init__.py).
"""


def given_dictionary(call: FollowedCall) -> Record | None:
    """Return the options of a trainer that a call has in a dictionary; None if it has none.

    What else it is given replaces options, by name.
    """
    argument = TAKE_A_DICTIONARY.get(f"{call.owner.partition('.')[0]}.{call.name}")
    options = call.arguments.get(argument, 0) if argument else None
    if not isinstance(options, Record):
        return None
    more = {each.name: each.value for each in call.arguments.keywords if each.name != argument}
    rest = options.rest or call.arguments.rest
    return Record({**options.items, **more}, options.role, rest=rest, born=options.born)
