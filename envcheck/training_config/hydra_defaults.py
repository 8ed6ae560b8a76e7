"""The files that the list `defaults` of a configuration of Hydra names. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document, Section

_ENTRY = pattern(r"defaults\.\d+\.(.+)")


def hydra_defaults(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the path of each file beside the configuration, and the section that its settings belong to."""
    listed = next((each.value for each in document.settings if each.name == "defaults"), None)
    if not isinstance(listed, tuple) or isinstance(listed, Section):
        return
    for name in listed:
        if isinstance(name, str) and name != "_self_":
            yield _file(name), ""
    for setting in document.settings:
        entry = _ENTRY.fullmatch(setting.name)
        if entry is None or not isinstance(setting.value, str):
            continue
        group, _, package = entry.group(1).strip('"').partition("@")
        if group.startswith("override "):
            continue
        group = group.removeprefix("optional ")
        section = "" if package == "_global_" else package or group.replace("/", ".")
        yield f"{group.lstrip('/')}/{_file(setting.value)}", section


def _file(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
