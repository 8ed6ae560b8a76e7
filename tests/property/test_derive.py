"""Properties that hold for any input: derive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import InvalidMarker, Marker, UndefinedComparison

from envcheck.core.markers import matches

ENVIRONMENT = {
    "python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux", "os_name": "posix",
    "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "implementation_version": "3.11.9", "platform_release": "",
    "platform_version": "", "extra": "",
}  # fmt: skip


tests = st.tuples(
    st.sampled_from(sorted(ENVIRONMENT)),
    st.sampled_from(["==", "!=", ">=", "<", "<=", ">", "~=", "in", "not in"]),
    st.sampled_from(
        ["3.11", "3.9", "3.12", "3.11.9", "linux", "win32", "Linux", "x86_64", "aarch64", "cpython", ""]
    ),
).map(lambda part: f'{part[0]} {part[1]} "{part[2]}"')


chains = st.lists(tests, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([" and ", " or "]).map(lambda word: word.join(parts))
)


@given(st.one_of(chains, st.tuples(chains, tests).map(lambda two: f"({two[0]}) and {two[1]}")))
def test_markers_get_the_answer_of_packaging(marker: str) -> None:
    try:
        expected = Marker(marker).evaluate(dict(ENVIRONMENT))
    except (InvalidMarker, UndefinedComparison):
        expected = False
    assert matches(marker, ENVIRONMENT) == expected
