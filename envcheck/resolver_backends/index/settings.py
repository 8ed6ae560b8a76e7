"""Read which indexes the user has set, for uv or pip, in the environment or in a configuration file."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.parsing import parse_toml
from envcheck.host.machine import Host

_KEPT_VARIABLES = re.compile(
    r"PATH|HOME|LANG|LC_.*|TMPDIR|USER|LOGNAME|XDG_.*|(?:HTTPS?|NO|ALL)_PROXY|(?:https?|no|all)_proxy"
    r"|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|SYSTEMROOT"
    r"|PIP_(?:CERT|CLIENT_CERT|PROXY|TRUSTED_HOST|DEFAULT_TIMEOUT|TIMEOUT|RETRIES|KEYRING_PROVIDER|CACHE_DIR)"
    r"|UV_(?:CACHE_DIR|SYSTEM_CERTS|NATIVE_TLS|INSECURE_HOST|HTTP_.*|OFFLINE|KEYRING_PROVIDER)"
)


@dataclass(frozen=True, slots=True)
class Index:
    """A package index. `url` may contain a login, so never print it; empty means the tools' default index.

    `cert` is the path of a certificate bundle, or empty.
    """

    url: str = ""
    cert: str = ""

    def __repr__(self) -> str:
        """Return a text without the address, because tracebacks may contain a repr."""
        return "Index(the user's)" if self.url else "Index(the default)"


def user_index(host: Host) -> Index:
    """Return the index that the user has set, or the tools' default.

    Raises:
        ExamineError: the settings forbid the use of any index, or the address in them cannot be parsed.
    """
    environ = host.environ
    pip = _pip_settings(host)
    _refuse_no_index(host, pip)
    candidates = (
        environ.get("UV_DEFAULT_INDEX"),
        environ.get("UV_INDEX_URL"),
        environ.get("PIP_INDEX_URL"),
        _uv_settings(host)[0],
        pip.get("index-url"),
    )
    cert = environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE") or pip.get("cert") or ""
    url = next((url.strip() for url in candidates if url and url.strip()), "")
    try:
        _ = urlsplit(url).port
    except ValueError:
        # The address is not repeated, because it may hold a login.
        raise ExamineError("the address of your index cannot be read") from None
    return Index(url, cert)


def _refuse_no_index(host: Host, pip: Mapping[str, str]) -> None:
    """Raise ExamineError if a setting forbids the use of any index."""
    settings = {
        "PIP_NO_INDEX": host.environ.get("PIP_NO_INDEX"),
        "UV_NO_INDEX": host.environ.get("UV_NO_INDEX"),
        "no-index in pip's configuration": pip.get("no-index"),
    }
    for name, value in settings.items():
        if (value or "").strip().lower() in ("1", "true", "yes", "on", "y", "t"):
            raise ExamineError(f"{name} forbids the use of an index, and a lock is made from one")


def user_extra_indexes(host: Host) -> list[tuple[str, Index]]:
    """Return the user's other indexes without duplicates, each with the name of its setting.

    The index that `user_index` returns is left out.

    Raises:
        ExamineError: the settings forbid the use of any index.
    """
    environ, pip = host.environ, _pip_settings(host)
    lists = {
        "UV_INDEX": environ.get("UV_INDEX"),
        "UV_EXTRA_INDEX_URL": environ.get("UV_EXTRA_INDEX_URL"),
        "PIP_EXTRA_INDEX_URL": environ.get("PIP_EXTRA_INDEX_URL"),
        "uv.toml": _uv_settings(host)[1],
        # The variable replaces the setting in pip's files.
        "pip.conf": "" if environ.get("PIP_EXTRA_INDEX_URL") else pip.get("extra-index-url"),
    }
    if not any(lists.values()):
        return []
    default = user_index(host)
    found: dict[str, tuple[str, Index]] = {}
    for setting, urls in lists.items():
        for word in (urls or "").split():
            url = re.sub(r"^[A-Za-z0-9._-]+=", "", word)  # uv's `name=address`
            if url.rstrip("/") != default.url.rstrip("/"):
                found.setdefault(url.rstrip("/"), (setting, Index(url, default.cert)))
    return list(found.values())


def backend_environment(host: Host, index: Index, extra: Mapping[str, str]) -> dict[str, str]:
    """Return a backend's environment: what the connection needs, without settings that affect the result.

    `DS_BUILD_OPS=0` is set because the metadata of an old DeepSpeed has to be built, and that must not
    compile anything.
    """
    kept = {name: value for name, value in host.environ.items() if _KEPT_VARIABLES.fullmatch(name)}
    if index.cert:
        kept = {"PIP_CERT": index.cert, "SSL_CERT_FILE": index.cert, **kept}
    return {**kept, "DS_BUILD_OPS": "0", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", **extra}


# --- configuration files ----------------------------------------------------------------------------


def _config_folders(host: Host) -> tuple[str, ...]:
    """Return the folders of configuration files, the system's first, the user's last."""
    home = host.environ.get("HOME", "")
    user = host.environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    system = (host.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return tuple(folder for folder in (*reversed(system), user) if folder)


def _pip_settings(host: Host) -> dict[str, str]:
    """Return the settings of pip's configuration files; a later file overrides an earlier one."""
    named = host.environ.get("PIP_CONFIG_FILE", "")
    if named == "/dev/null":  # for pip this means: read no configuration at all
        return {}
    home = host.environ.get("HOME", "")
    folders = _config_folders(host)
    files = [
        *(f"{folder}/pip/pip.conf" for folder in folders[:-1]),
        "/etc/pip.conf",
        *([f"{home}/.pip/pip.conf"] if home else []),
        *(f"{folder}/pip/pip.conf" for folder in folders[-1:]),
        *(f"{folder}/pip.conf" for folder in (host.environ.get("VIRTUAL_ENV"),) if folder),
        *([named] if named else []),
    ]
    settings: dict[str, str] = {}
    for section in ("global", "install"):  # a command's section overrides [global], even of a later file
        for file in files:
            settings.update(_ini_section(host.read_text(file), section))
    return settings


def _ini_section(text: str | None, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text or "")
    except configparser.Error:
        return {}
    if not parser.has_section(section):
        return {}
    return {name.replace("_", "-"): value for name, value in parser.items(section) if value}


def _uv_settings(host: Host) -> tuple[str, str]:
    """Return the default index of the user's or the system's uv.toml, and the others separated by spaces."""
    default, others = "", ""
    for file in ("/etc/uv/uv.toml", *(f"{folder}/uv/uv.toml" for folder in _config_folders(host))):
        try:
            tree: dict[str, Any] = parse_toml(host.read_text(file) or "", file)
        except InputError:
            continue
        rows = [row for row in _list(tree.get("index")) if isinstance(row, dict)]
        default_rows = [row for row in rows if row.get("default")]
        url = default_rows[0].get("url") if default_rows else tree.get("index-url")
        default = url if isinstance(url, str) else default
        urls = [row.get("url") for row in rows if row not in default_rows]
        urls += _list(tree.get("extra-index-url"))
        others = " ".join((others, *(url for url in urls if isinstance(url, str))))
    return default, others


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
