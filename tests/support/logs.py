"""Logs of failed runs for tests, and how they are explained."""

from __future__ import annotations

from collections.abc import Callable

from envcheck.core.findings import Verbosity
from envcheck.logs.diagnosis import Cause
from envcheck.reports.explanation import Explanation, render

SITE = "/opt/conda/lib/python3.11/site-packages"
STEPS = "".join(f"{{'loss': {2 - step / 500:.3f}, 'epoch': {step / 100:.2f}}}\n" for step in range(400))
END = "{'train_runtime': 1000.0, 'train_samples_per_second': 3.2, 'train_loss': 1.1, 'epoch': 3.0}\n"

Explain = Callable[..., Explanation]


def traceback(exception: str, *frames: tuple[str, int, str, str]) -> str:
    lines = ["Traceback (most recent call last):"]
    for file, line, function, source in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {source}"]
    return "\n".join([*lines, exception, ""])


def of_own_code(exception: str, source: str) -> str:
    return traceback(exception, ("/home/me/train.py", 40, "step", source))


def cause_of(found: Explanation) -> Cause:
    assert found.diagnosis.cause is not None
    return found.diagnosis.cause


def answer(found: Explanation) -> str:
    return render(found, Verbosity.USUAL)
