"""A message of a log is found among those that libraries raise."""

import pytest

from envcheck.knowledge.raised import RaisedRow, find_raised, raised_text

READ = ["0.4.0", "0.9.0", "0.21.2"]


def row(template: str, *, exception: str = "ValueError", package: str = "peft") -> RaisedRow:
    spans = (("0.4.0", "0.21.2"),)
    return RaisedRow(package, "peft/config.py", "Config.load", spans, exception, "if not x", template)


TEXTS = {
    "peft": raised_text(
        "peft",
        [
            row("Target modules {} not found in the base model. Please check the target modules."),
            row("`create_and_replace` does not support {} yet.")._replace(spans=(("0.4.0", "0.9.0"),)),
            row("Please specify `target_modules` in `peft_config`"),
            row("The weights trained with {} differ in their shape from those of the m…"),
            row("{} is not supported by {} at the moment"),
        ],
        READ,
    ),
    "trl": raised_text(
        "trl", [row("Please specify a reward function or a reward model", package="trl")], READ
    ),
}


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("Target modules {'q', 'k'} not found in the base model. Please check the target modules.", "peft"),
        ("Please specify `target_modules` in `peft_config`", "peft"),
        ("Please specify a reward function or a reward model", "trl"),
        ("The weights trained with LoRA differ in their shape from those of the model: [8] and [4]", "peft"),
    ],
)
def test_a_message_is_found_whatever_its_values(message: str, package: str) -> None:
    (found,) = find_raised(TEXTS, "ValueError", message)

    assert found.row.package == package
    assert found.row.function == "Config.load"
    assert found.row.condition == "if not x"


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        ("TypeError", "Please specify `target_modules` in `peft_config`"),
        ("ValueError", "Please specify `target_modules` in `peft_config`, and more"),
        ("ValueError", "I say: Please specify `target_modules` in `peft_config`"),
        ("ValueError", f"x{' and much text around it' * 9} is not supported by {'yy ' * 40} at the moment"),
        ("ValueError", ""),
    ],
)
def test_another_message_is_not_found(exception: str, message: str) -> None:
    assert find_raised(TEXTS, exception, message) == ()


def test_the_releases_are_said_in_words() -> None:
    (found,) = find_raised(
        TEXTS, "peft.errors.ValueError", "`create_and_replace` does not support prompts yet."
    )

    assert (found.releases, found.gone) == ("up to 0.9.0", True)


def test_an_exception_handler_is_no_check() -> None:
    assert row("x").is_check
    assert not row("x")._replace(condition="on ImportError").is_check
    assert not row("x")._replace(condition="").is_check


def two_wordings(condition: str) -> dict[str, str]:
    """Return the text of a library whose newer releases fill in a word that older ones have in the text."""
    old = row("Configured CUDA binary not found at {}", package="bnb")._replace(spans=(("0.4.0", "0.9.0"),))
    new = row("Configured {} binary not found at {}", package="bnb")._replace(spans=(("0.10.0", "0.21.2"),))
    return {"bnb": raised_text("bnb", [old, new._replace(condition=condition)], ["0.4.0", "0.21.2"])}


def test_releases_that_raise_the_message_from_another_template_count() -> None:
    (found,) = find_raised(
        two_wordings("if not x"), "ValueError", "Configured CUDA binary not found at /a/b.so"
    )

    assert (found.releases, found.gone) == ("up to 0.9.0, from 0.10.0 on", False)


@pytest.mark.parametrize(
    ("condition", "message", "releases"),
    [
        ("if not x", "Configured ROCm binary not found at /a/b.so", "from 0.10.0 on"),
        ("if other", "Configured CUDA binary not found at /a/b.so", "up to 0.9.0"),
    ],
)
def test_a_template_that_does_not_fit_or_is_of_another_check_adds_no_releases(
    condition: str, message: str, releases: str
) -> None:
    (found,) = find_raised(two_wordings(condition), "ValueError", message)

    assert found.releases == releases
