"""Tests of one package each, in a folder of its name; `pytest tests/unit -n auto` takes under a minute."""
