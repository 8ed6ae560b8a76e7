"""Hold what the walk through the functions of a release finds: arguments, own calls, attributes."""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.atlas.code_summary import Parameters
from envcheck.atlas.conditions import Condition
from envcheck.atlas.entries import distribution_of


@dataclass(frozen=True, slots=True)
class KeywordUse:
    """Hold a keyword argument that is passed to another package.

    Attributes:
        path: import path of the function or class: `accelerate.Accelerator`.
        method: method of the class; empty for a function and for a constructor.
        keyword: name of the argument; empty if only the number of arguments matters.
        positional: number of positional arguments, for a method that is called without a keyword.

    """

    path: str
    method: str
    keyword: str
    positional: int = 0

    @property
    def partner(self) -> str:
        """Return the package that is called."""
        return distribution_of(self.path)

    @property
    def text(self) -> str:
        """Return the argument as text, `accelerate.Accelerator.unwrap_model(keep_torch_compile=)`."""
        method = f".{self.method}" if self.method else ""
        count = f"{self.positional} argument{'s' * (self.positional > 1)}"
        given = f"{self.keyword}=" if self.keyword else count
        return f"{self.path}{method}({given})"


@dataclass(frozen=True, slots=True)
class KeywordDemand:
    """Hold one line that passes a keyword argument to another package.

    Attributes:
        what: the keyword.
        entry: what a user calls, `transformers.Trainer(...)`.
        condition: when the line is reached.
        place: file and line.

    """

    what: KeywordUse
    entry: str
    condition: Condition
    place: str


@dataclass(frozen=True, slots=True)
class SelfCall:
    """Hold one line that calls a method of its own object, which a subclass may override.

    Attributes:
        method: the method.
        positional: number of positional arguments; -1 if it is not known.
        keywords: names of keyword arguments, as far as they are known.
        action: what a user calls, `Trainer.train`; empty for the constructor.
        through: the methods of the object that run on the way to the line; the first is run by the user.
        condition: when the line is reached.
        place: file and line.

    """

    method: str
    positional: int
    keywords: tuple[str, ...]
    action: str
    through: tuple[str, ...]
    condition: Condition
    place: str


@dataclass(frozen=True, slots=True)
class ClassPatch:
    """Hold one line that sets an attribute of another package's class.

    Attributes:
        owner: import path of the class.
        name: the attribute.
        parameters: what the function takes that it is set to, without `self`; None if that is not known.
        copied: the function is made from the source text of the one that it replaces.
        entry: what a user does that runs the line.
        condition: when the line is reached.
        place: file and line of the function, or of this line if the function is not known.

    """

    owner: str
    name: str
    parameters: Parameters | None
    copied: bool
    entry: str
    condition: Condition
    place: str
