"""A GPU that uses the memory of the first piece for the second piece, too."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right = torch.full
    first: list[Any] = []

    def full(size: Any, value: Any, **kwargs: Any) -> Any:
        made = right(size, value, **kwargs)
        if not first or kwargs.get("device") is None:
            first.append(made)
            return made
        return first[0][: size[0]].fill_(value)

    torch.full = full


after_import("torch", change)
