"""Read the settings of a folder: `envcheck.toml`, or `[tool.envcheck]` of its `pyproject.toml`.

Every mistake is reported at once, with file, line and column. A settings file is never used in part, because
that could let through what it was written to stop.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from envcheck.core import parsing, toml_locations, versions
from envcheck.core.errors import EnvcheckError
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.core.suggestions import suggestion
from envcheck.policy.decision import UNDECIDED, DeclaredMachine, Settings, Waiver

FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"envcheck.toml": (), "pyproject.toml": ("tool", "envcheck")}
)
"""The files that may hold settings, each with the table they are in; the first file that has some wins."""

PLATFORMS = ("linux-x86_64", "linux-aarch64")


class SettingsError(EnvcheckError):
    """The settings are wrong; the message lists all mistakes, one a line, each with its place."""


_KEYS = (
    "matrix",
    "trusted_keys",
    "threshold",
    "undecided",
    "target",
    "train",
    "machines",
    "lock",
    "skip",
    "severity",
    "waive",
    "machine",
)
_MOST_WAIVERS = 1000  # each is compared with every finding, and more would be unmanageable
_WAIVER_KEYS = ("rule", "reason", "until")
_MACHINE_KEYS = ("driver", "gpu", "platform")


def read_settings(name: str, text: str) -> Settings | None:
    """Return the settings in the text of one of `FILES`; None if it has none.

    Raises:
        InputError: the text is not TOML.
        SettingsError: an unknown key (with the nearest known one), or a value of the wrong kind.
    """
    tree: Any = parsing.parse_toml(text, name)
    path = FILES[name]
    for step in path:
        if not isinstance(tree, dict) or step not in tree:
            return None
        tree = tree[step]
    reader = _SettingsReader(_SettingsPlaces(name, text, ".".join(path)))
    settings = reader.settings(tree)
    if reader.problems:
        raise reader.error()
    return settings


def parse_machine(name: str, raw: object, where: str) -> DeclaredMachine:
    """Return a machine as the table `[machine.NAME]` of an overlay declares it.

    Raises:
        SettingsError: the table has another key than driver, gpu and platform, or a wrong value.
    """
    reader = _SettingsReader(_SettingsPlaces(where, "", ""))
    found = reader.machine(name, raw)
    if found is None:
        raise reader.error()
    return found


class _SettingsPlaces:
    """Finds the place of a setting in a file; `prefix` is the table that holds all settings."""

    def __init__(self, file: str, text: str, prefix: str) -> None:
        self.file, self.prefix = file, prefix
        self.lines = text.splitlines()
        self.blocks = list(toml_locations.blocks(text))

    def full_name(self, path: str) -> str:
        """Return the dotted name of a setting in the file."""
        return f"{self.prefix}.{path}" if self.prefix else path

    def place(self, path: str, number: int = 0) -> str:
        """Return `file:line:column` of a key; if the key has no line, of its table.

        `number` selects one of the tables `[[waive]]`, counted from 0.
        """
        full = self.full_name(path)
        table, _, key = full.rpartition(".")
        for header, name in ((table, key), (full, ""), *_enclosing_keys(full)):
            block = self._block(header, name, number)
            line = 0 if block is None else block.keys.get(name, 0) if name else block.line
            if line:
                return f"{self.file}:{line}:{self._column(line, name or header)}"
        block = self._block(table, key, number)
        if block is not None and block.line and table != self.prefix:
            return f"{self.file}:{block.line}:1"
        return self.file

    def _block(self, header: str, key: str, number: int) -> toml_locations.Block | None:
        """Return the table with this header, the nth if there are several, else the first."""
        found = [block for block in self.blocks if block.header == header]
        if not found and not key:  # `tool` has no header itself: the line of [tool.envcheck] is its line
            found = [block for block in self.blocks if block.header.startswith(f"{header}.")]
        if not found:
            return None
        return found[number] if number < len(found) else found[0]

    def _column(self, line: int, word: str) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return max(text.find(word), len(text) - len(text.lstrip())) + 1


def _enclosing_keys(full: str) -> Iterator[tuple[str, str]]:
    """Yield header and key of the inline tables that may hold a setting, the innermost first."""
    steps = full.split(".")
    for cut in range(len(steps) - 1, 0, -1):
        for header in range(cut - 1, -1, -1):
            yield ".".join(steps[:header]), ".".join(steps[header:cut])


class _SettingsReader:
    """Turns the tree of a settings file into values, and collects every problem on the way."""

    def __init__(self, places: _SettingsPlaces) -> None:
        self.places = places
        self.problems: list[str] = []

    def error(self) -> SettingsError:
        """Return the error that lists all problems, a line each, in the order of their places."""
        return SettingsError("\n".join(sorted(self.problems, key=_line_and_column)))

    def wrong(self, path: str, problem: str, number: int = 0) -> None:
        """Record a problem with the setting at a path."""
        place, name = self.places.place(path, number), self.places.full_name(path)
        self.problems.append(inline(f"{place}: {name}: {problem}"))

    # --- the settings

    def settings(self, tree: Any) -> Settings:
        if not isinstance(tree, dict):
            file, prefix = self.places.file, self.places.prefix
            self.problems.append(f"{file}: {prefix}: expected a table of settings, found {tree!r}")
            return Settings()
        self.check_keys(tree, _KEYS, "")
        severities = self.table(tree, "severity")
        return Settings(
            file=self.places.file,
            matrix=self.texts(tree, "matrix", "files"),
            trusted_keys=self.texts(tree, "trusted_keys", "public keys"),
            threshold=self.severity(tree["threshold"], "threshold") if "threshold" in tree else None,
            undecided=self.one_of(tree, "undecided", UNDECIDED),
            target=self.text(tree, "target"),
            train=self.texts(tree, "train", "files and arguments"),
            machines=self.texts(tree, "machines", "names of machines"),
            lock=self.text(tree, "lock"),
            skip=self.texts(tree, "skip", "rules"),
            severity={
                rule: severity
                for rule, raw in severities.items()
                if (severity := self.severity(raw, f"severity.{rule}"))
            },
            waivers=tuple(self.waivers(tree.get("waive", []))),
            machine={
                name: machine
                for name, raw in self.table(tree, "machine").items()
                if (machine := self.machine(name, raw)) is not None
            },
        )

    def waivers(self, raw: object) -> Iterator[Waiver]:
        if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
            self.wrong("waive", f"expected [[waive]] tables, found {_short(raw)}")
            return
        if len(raw) > _MOST_WAIVERS:
            self.wrong("waive", f"expected at most {_MOST_WAIVERS} waivers, found {len(raw)}")
            return
        for number, row in enumerate(raw):
            yield self.waiver(row, number)

    def waiver(self, row: Mapping[str, Any], number: int) -> Waiver:
        self.check_keys(row, _WAIVER_KEYS, "waive", number)
        until = _iso_day(row.get("until"))
        if not until:
            expected = f"expected a date such as 2027-03-01, found {_short(row.get('until'))}"
            self.wrong("waive.until", expected, number)
        texts = {}
        for key in ("rule", "reason"):
            text = row.get(key)
            if not isinstance(text, str) or not text.strip():
                self.wrong(f"waive.{key}", f"expected a text, found {_short(text)}", number)
            texts[key] = str(text)
        place = self.places.place("waive.rule", number).rpartition(":")[0]
        return Waiver(texts["rule"], inline(" ".join(texts["reason"].split())), until, place)

    def machine(self, name: str, raw: object) -> DeclaredMachine | None:
        path = f"machine.{name}"
        if not isinstance(raw, dict):
            self.wrong(path, f"expected a table, found {_short(raw)}")
            return None
        problems_before = len(self.problems)
        self.check_keys(raw, _MACHINE_KEYS, path)
        driver, gpu = raw.get("driver", ""), raw.get("gpu", [])
        if not isinstance(driver, str) or (driver and versions.parse(driver) is None):
            self.wrong(
                f"{path}.driver", f"expected a version such as 550.54.15 in quotes, found {_short(driver)}"
            )
        gpus = [gpu] if isinstance(gpu, str) else gpu
        if not isinstance(gpus, list) or not all(isinstance(each, str) and each for each in gpus):
            self.wrong(f"{path}.gpu", f"expected the name of a GPU or a list of them, found {_short(gpu)}")
        platform = raw.get("platform", "")
        if platform and platform not in PLATFORMS:
            self.wrong(
                f"{path}.platform", f"expected one of {', '.join(PLATFORMS)}, found {_short(platform)}"
            )
        if not raw:
            self.wrong(path, "the table is empty: give a driver, a gpu or a platform")
        if len(self.problems) > problems_before:
            return None
        return DeclaredMachine(name, driver, tuple(gpus), platform)

    # --- values of one kind

    def check_keys(self, table: Mapping[str, Any], keys: Sequence[str], path: str, number: int = 0) -> None:
        for key in table:
            if key not in keys:
                full = f"{path}.{key}" if path else key
                self.wrong(full, f"no such setting{suggestion(key, list(keys))}", number)

    def table(self, tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = tree.get(key, {})
        if isinstance(value, dict):
            return value
        self.wrong(key, f"expected a table, found {_short(value)}")
        return {}

    def text(self, tree: Mapping[str, Any], key: str) -> str:
        value = tree.get(key, "")
        if isinstance(value, str) and (value or key not in tree):
            return value
        self.wrong(key, f"expected a text, found {_short(value)}")
        return ""

    def texts(self, tree: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
        value = tree.get(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.wrong(key, f"expected a list of {what}, found {_short(value)}")
        return ()

    def one_of(self, tree: Mapping[str, Any], key: str, words: Iterable[str]) -> str:
        value = tree.get(key, "")
        if key not in tree or (isinstance(value, str) and value in words):
            return str(value)
        self.wrong(key, f"expected one of {', '.join(words)}, found {_short(value)}")
        return ""

    def severity(self, raw: object, path: str) -> Severity | None:
        try:
            return Severity(raw)
        except ValueError:
            known = ", ".join(severity.value for severity in Severity)
            self.wrong(path, f"expected one of {known}, found {_short(raw)}")
            return None


def _line_and_column(problem: str) -> tuple[int, ...]:
    place = problem.partition(": ")[0].split(":")[1:]
    return tuple(int(number) for number in place if number.isdecimal())


def _iso_day(raw: object) -> str:
    """Return a TOML date, or a text that is one, as ISO text; empty for anything else."""
    if isinstance(raw, dt.date) and not isinstance(raw, dt.datetime):
        return raw.isoformat()
    try:
        return raw if isinstance(raw, str) and str(dt.date.fromisoformat(raw)) == raw else ""
    except ValueError:
        return ""


def _short(raw: object) -> str:
    """Return a value as it is shown in a message, at most 60 characters long."""
    text = "nothing" if raw is None else str(raw) if isinstance(raw, dt.date | dt.time) else repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004 - one line of a terminal


TEMPLATE = """\
# Settings of envcheck for this folder. doctor, gate and check read all of them that concern them; fit, fleet,
# explain and run read target, train and matrix. In pyproject.toml they belong under [tool.envcheck].
# Command-line options override them.
# threshold = "error"             # doctor, gate, check: least severity that fails: error, warning or note
# undecided = "warn"              # if a fact could not be read: pass (not in the first line), warn, or fail
# target = "zero3-lora"           # the recipe to judge for; `envcheck target` lists all
# train = ["ds_config.json"]      # training configuration: files, and arguments such as "--use_lora true"
# lock = "requirements.txt"       # gate: what the environment was installed from
# machines = ["a100-r535"]        # gate and check: the machines it must run on; it has to pass on all.
#                                 # Not read with --driver, --gpu or --facts, which name the machine
# matrix = ["house.toml"]         # your own rules, targets and cells, on top of the shipped ones
# trusted_keys = []               # public keys of minisign, "RWQ…": overlays must be signed by one of them
# skip = ["lock:extra"]           # rules to skip; a prefix such as `lock:` or `remark:` selects a group

# [machine.a100-r535]             # declared, because the build of an image has no GPU
# driver = "535.104.05"
# gpu = "A100 80GB"               # a name, a compute capability such as "8.0", or a list of them
# platform = "linux-x86_64"

# [severity]
# "requires-dist:a:b" = "error"   # replaces the severity of the rule: error, warning or note

# [[waive]]                       # the rule counts again after that day; an unused waiver is a finding
# rule = "deepspeed-numpy2-bufsize"
# reason = "we never use that optimizer"
# until = 2027-03-01
"""
"""What `envcheck init` writes: every setting, as a comment."""
