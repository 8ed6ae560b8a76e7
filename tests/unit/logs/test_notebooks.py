"""Tracebacks of notebooks, whose frames are printed in several forms, and of rich, which breaks lines."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.logs import scanner as log_scanner
from envcheck.logs.events import Frame, Raised
from envcheck.logs.line_format import log_patterns
from envcheck.logs.missing_names import missing_name

TABLES = loading.source_tree()["tables"]
HEADER = "KeyError                                  Traceback (most recent call last)\n"


def first_raised(log: str) -> Raised:
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())
    return scanner.finish().events[0].exceptions[0]


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        (
            (
                "File ~/e/lib/python3.11/site-packages/transformers/trainer.py:1932, in Trainer.train(self, trial)\n"
                "   1930         hf_hub_utils.enable_progress_bars()\n"
                "-> 1932     return inner_training_loop(\n"
            ),
            Frame("~/e/lib/python3.11/site-packages/transformers/trainer.py", 1932, "Trainer.train"),
        ),
        (
            "File c:\\Users\\me\\Lib\\site-packages\\torch\\__init__.py:148\n    146     raise err\n",
            Frame("c:\\Users\\me\\Lib\\site-packages\\torch\\__init__.py", 148, ""),
        ),
        (
            (
                "[/usr/local/lib/python3.10/dist-packages/packaging/version.py](https://localhost:8080/#) in "
                "__init__(self, version)\n    199 \n--> 200         match = self._regex.search(version)\n"
            ),
            Frame("/usr/local/lib/python3.10/dist-packages/packaging/version.py", 200, "__init__"),
        ),
        (
            "/srv/ipykernel_106/1639467418.py in <cell line: 0>()\n----> 3 rows[0]['text']\n",
            Frame("the notebook's cell", 3, "<cell line: 0>"),
        ),
        (
            "File [~/e/site-packages/torch/x.py:12](http://127.0.0.1:8889/e/x.py#line=11), in f(a)\n",
            Frame("~/e/site-packages/torch/x.py", 12, "f"),
        ),
        (
            "Cell In[20], line 59, in train(base_model)\n     58 x\n---> 59 y\n",
            Frame("Cell In[20]", 59, "train"),
        ),
        (
            (
                "Cell In[14], [line 1](vscode-notebook-cell:?execution_count=14&line=1)\n"
                "----> [1](vscode-notebook-cell:?execution_count=14&line=1) trainer.train()\n"
            ),
            Frame("Cell In[14]", 1, ""),
        ),
    ],
)
def test_the_innermost_frame_of_a_notebook_is_read(frame: str, place: Frame) -> None:
    cell = "Cell In[1], line 7\n----> 7 main()\n\n"

    raised = first_raised(f"{HEADER}{cell}{frame}\nKeyError: 'text'\n")

    assert raised.place == place


def test_code_in_a_notebook_that_looks_like_a_frame_is_none() -> None:
    shown = "      2 # see /srv/a.py in main\n----> 3 open(path)\n      4 File = 3\n"

    raised = first_raised(f"{HEADER}Cell In[1], line 3\n{shown}\nKeyError: 'text'\n")

    assert raised.place == Frame("Cell In[1]", 3, "")


def test_a_package_that_asks_itself_in_a_notebook_is_known() -> None:
    log = (
        f"{HEADER.replace('KeyError', 'ImportError')}"
        "/usr/local/lib/python3.12/dist-packages/PIL/ImageDraw.py in <module>\n"
        "---> 44 from ._typing import Coords\n\n"
        "ImportError: cannot import name '_Ink' from 'PIL._typing' (/usr/local/lib/python3.12/dist-packages/PIL/"
        "_typing.py)\n"
    )
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())

    missing = missing_name(scanner.finish().events[0], TABLES)

    assert missing is not None
    assert (missing.asks, missing.lacks, missing.own) == ("pillow", "pillow", False)


BOX = f"╭{'─' * 24} Traceback (most recent call last) {'─' * 19}╮\n│ /srv/t.py:3 in main {'':>58}│\n╰{'─' * 78}╯\n"


def test_a_message_that_rich_broke_at_the_width_of_its_box_goes_on() -> None:
    wrapped = "TypeError: Trainer.compute_loss() got an unexpected keyword argument \n'num_items_in_batch'\n"

    assert first_raised(BOX + wrapped).message.endswith("unexpected keyword argument 'num_items_in_batch'")


def test_a_line_below_a_short_message_of_rich_is_other_output() -> None:
    assert first_raised(f"{BOX}TypeError: bad argument\nsaving the state\n").message == "bad argument"


def test_a_message_that_is_wider_than_the_box_was_not_broken_there() -> None:
    assert first_raised(f"{BOX}TypeError: {'x' * 90}\nsaving the state\n").message == "x" * 90


def test_the_exception_of_a_chain_whose_middle_was_left_out_is_read() -> None:
    log = (
        "ImportError                               Traceback (most recent call last)\n"
        "File ~/e/lib/python3.11/site-packages/transformers/utils/import_utils.py:1510, in _get_module(self)\n"
        "-> 1510     return importlib.import_module(name)\n\n"
        "{}: Failed to import transformers.trainer because of the following error:\n"
    )

    assert first_raised(log.format("RuntimeError")).name == "RuntimeError"
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.format("note").encode())
    assert not scanner.finish().events[0].exceptions
