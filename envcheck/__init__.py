"""envcheck predicts whether a machine, a Python environment and a training configuration will train.

`envcheck.doctor()` is the Python API. It is imported on first use, so that `import envcheck` stays cheap.
"""

__version__ = "0.1.0"

_API_NAMES = ("Report", "doctor")


def __getattr__(name: str) -> object:
    """Import a name of the API on first use; `__init__.pyi` declares its type."""
    if name not in _API_NAMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.api"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_API_NAMES))
