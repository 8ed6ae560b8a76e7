"""Properties that hold for any input: launches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck.core.errors import InputError
from envcheck.training_config.readers import launch

_SCRAPS = (
    "if then else elif fi for in do done while until case esac function { } ( ) (( )) [[ ]] [ ] ! && || ; ;; & | < > "
    "<< <<< <<EOF EOF \n \\ \\\n ' \" ` $ ${ $( $(( $A ${A:-b} ${A[@]} $@ $1 $# A=1 A=( A+=x A+=(y) export local read "
    "eval bash -c exit return shift set -- source unset echo cat go torchrun python a.py --b --c=d # \t é 1 + * / "
    "x=$x$x f() f ${A/b/c} ${#A} ${1} [@] <x> \r\n"
)


@settings(max_examples=250, deadline=None)
@given(text=st.lists(st.sampled_from(_SCRAPS.split(" ")), max_size=40).map(" ".join) | st.text(max_size=80))
def test_any_text_is_read_or_raises_an_input_error(text: str) -> None:
    said = ""
    try:
        launch.read(text, "a.sh")
    except InputError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    "unit",
    [
        'X=1\ntorchrun --a $X x.py --b "$Y" \\\n  --c d\n', "if x; then A=1; fi\n", 'A="$A x"\ntorchrun a.py $A\n',
        "A=$A$A\n", "for a in b c; do A=$a; done\n", "case $x in a) B=1;; esac\n", "cat <<A\n", "`a` ", "a|", "$(", "((",
        "A+=(x)\n", "source x\nA=1\n", "'", '"', "a<b>c ",
    ],
)  # fmt: skip
def test_reading_takes_time_linear_in_the_text(unit: str) -> None:
    def steps(size: int) -> int:
        import sys

        count = 0

        def tick(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            launch.read(unit * (size // len(unit)), "a.sh")
        except InputError:
            pass
        finally:
            sys.setprofile(None)
        return count

    assert steps(40_000) <= 5 * steps(10_000) + 1000
