"""Knowledge that a process loads once: it follows the user's files, and nobody changes it."""

from __future__ import annotations

from pathlib import Path

from envcheck.commands import explain, facts_files, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.host.machine import Host
from tests.support.worlds import rule

LOG = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    from transformers import NoSuchTrainer
ImportError: cannot import name 'NoSuchTrainer' from 'transformers' (/x/transformers/__init__.py)
"""


def test_a_second_question_gets_the_same_knowledge() -> None:
    assert loading.knowledge() is loading.knowledge()


def test_an_overlay_that_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "house.toml"
    titles = []
    for title in ("first", "second"):
        file.write_text(rule('{ "pkg.torch" = "<2.6" }', "house-torch").replace("it breaks", title))
        found = loading.knowledge([str(file)]).rule("house-torch")
        assert found is not None
        titles.append(found.title)
    assert titles == ["first", "second"]
    assert loading.knowledge().rule("house-torch") is None


def test_what_all_share_is_changed_by_none(tmp_path: Path) -> None:
    shared = loading.read_only_tree()
    explained = explain.explain_chunks(ExamineRequest(), "log", [LOG.encode()], Host())
    assert explained.diagnosis.cause is not None
    (tmp_path / "pasted.txt").write_text("torch 2.5.1, peft 0.13.2\n")
    read = facts_files.read_facts_file(str(tmp_path / "pasted.txt"), loading.known_vocabulary())
    assert read.known("pkg.peft") == "0.13.2"
    assert shared == loading.source_tree()
