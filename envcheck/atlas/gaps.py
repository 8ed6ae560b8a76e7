"""What one package asks of another, and the releases of the other that lack it."""

from dataclasses import dataclass
from enum import StrEnum


class GapKind(StrEnum):
    """How the asking code fails beside a release that lacks what it asks for."""

    NAME = "name"
    """`from partner.module import name`, `import partner.module` or an attribute, evaluated at import."""
    KEYWORD = "keyword"
    """A keyword argument that the partner's function does not accept: TypeError when the call runs."""
    OVERRIDE = "override"
    """A method that replaces one of the partner's class does not take what the partner passes to it."""
    GUARD = "guard"
    """The asking code compares the partner's version and raises, when it is imported."""
    REGISTER = "register"
    """A model type or configuration class is registered that the partner has itself: ValueError on import."""
    BINARY = "binary"
    """Compiled modules were made for other releases of the partner: undefined symbols, or a refusal."""
    SYMBOL = "symbol"
    """Compiled modules need a symbol that the partner's libraries do not define: `undefined symbol`."""


@dataclass(frozen=True, kw_only=True)
class CodeGap:
    """One demand of some releases of a package that some releases of its partner do not meet.

    Attributes:
        kind: what is asked for.
        package: the package whose code asks, `peft`.
        releases: its releases that ask, oldest first.
        entry: what a user does that runs the asking code: `import peft`, `from trl import SFTTrainer`,
            `trl.SFTTrainer(...)`.
        partner: the package that is asked, `transformers`.
        lacking: the partner's releases that do not have it, oldest first.
        needs: what is asked for: `transformers.cache_utils.HybridCache`,
            `accelerate.Accelerator(dispatch_batches=)`, or for a guard the bound, `accelerate>=0.26.0`.
        places: for each asking release, the file and line that asks, `peft/tuners/lora/model.py:27`.

    """

    kind: GapKind
    package: str
    releases: tuple[str, ...]
    entry: str
    partner: str
    lacking: tuple[str, ...]
    needs: str
    places: tuple[str, ...]
