"""envcheck: will this machine, this Python environment and this training configuration train?

`envcheck.doctor()` judges from Python; what it needs is imported when it is first asked for.
"""

__version__ = "0.1.0"

_OF_THE_API = ("Report", "doctor")


def __getattr__(name: str) -> object:
    """What `__init__.pyi` declares, from `envcheck.api`."""
    if name not in _OF_THE_API:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.api"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_OF_THE_API))
