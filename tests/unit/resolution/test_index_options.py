"""A requirements file that names an index: pin passes the option over and says so."""

from __future__ import annotations

import pytest

from envcheck.resolution import user_requirements


@pytest.mark.parametrize(
    "line",
    [
        "--extra-index-url https://ana:hunter22@example.org/whl/cu118/",
        "--index-url=https://example.org/simple",
        "-i https://example.org/simple",
        "-f https://example.org/wheels.html",
    ],
)
def test_an_index_option_is_passed_over_and_named_without_its_address(line: str) -> None:
    text = f"rich==13.0.0\n{line}\n"
    found = user_requirements.read_requirements_file(
        "r.txt", lambda name, _: (name, text), "3.11", "linux-x86_64"
    )
    assert [each.bare.package for each in found if not each.by_address] == ["rich"]
    (note,) = user_requirements.describe_by_address(found[1:], [])
    assert note.startswith(f"r.txt:2: {line.replace('=', ' ').split()[0]} is passed over: ")
    assert "example.org" not in note
    assert "hunter22" not in note
