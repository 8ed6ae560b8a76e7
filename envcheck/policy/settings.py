"""The settings of a folder: `envcheck.toml`, or `[tool.envcheck]` of its `pyproject.toml`.

Every mistake is told at once, with file, line and column, for a settings file that is half understood
would let through what it was written to stop.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from envcheck.core import toml_locations, versions
from envcheck.core.errors import EnvcheckError
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.knowledge.rule_pages import nearest
from envcheck.policy.decision import UNDECIDED, DeclaredMachine, Settings, Waiver

FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"envcheck.toml": (), "pyproject.toml": ("tool", "envcheck")}
)
"""Where settings are looked for, the first that has some wins, and the table they stand in."""

PLATFORMS = ("linux-x86_64", "linux-aarch64")


class SettingsError(EnvcheckError):
    """The settings are wrong: all mistakes, one a line, each with its place."""


_KEYS = (
    "matrix",
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
_MOST_WAIVERS = 1000  # each is held against every finding; nobody keeps track of more
_WAIVER_KEYS = ("rule", "reason", "until")
_MACHINE_KEYS = ("driver", "gpu", "platform")


def read_settings(name: str, text: str) -> Settings | None:
    """The settings in the text of one of `FILES`; None if it has none.

    Raises:
        InputError: it is not TOML.
        SettingsError: an unknown key (with the nearest right one), a value of the wrong kind.
    """
    tree: Any = toml_locations.parsed(text, name)
    path = FILES[name]
    for step in path:
        if not isinstance(tree, dict) or step not in tree:
            return None
        tree = tree[step]
    reader = _SettingsReader(name, text, ".".join(path))
    settings = reader.settings(tree)
    if reader.problems:
        raise SettingsError(reader.told())
    return settings


def parse_machine(name: str, raw: object, where: str) -> DeclaredMachine:
    """A machine as an overlay's `[machine.NAME]` declares it.

    Raises:
        SettingsError: it says something else than a driver, GPUs and a platform.
    """
    reader = _SettingsReader(where, "", "")
    found = reader.machine(name, raw)
    if reader.problems or found is None:
        raise SettingsError(reader.told())
    return found


class _SettingsReader:
    """Turns the tree of a settings file into values and keeps every problem met on the way."""

    def __init__(self, file: str, text: str, prefix: str) -> None:
        self.file, self.prefix = file, prefix
        self.lines = text.splitlines()
        self.blocks = list(toml_locations.blocks(text))
        self.problems: list[str] = []

    def told(self) -> str:
        """All problems, a line each, in the order of their places."""
        return "\n".join(sorted(self.problems, key=_by_place))

    # --- places

    def place(self, path: str, number: int = 0) -> str:
        """`file:line:column` of a key (in the nth `[[waive]]`), of its table if it has no line itself."""
        full = f"{self.prefix}.{path}" if self.prefix else path
        table, _, key = full.rpartition(".")
        fallback = 0
        for header, wanted in ((table, key), (full, ""), *self._shorter(full)):
            found = [block for block in self.blocks if block.header == header]
            if not found and not wanted:  # [tool.envcheck] is the line of `tool` too
                found = [block for block in self.blocks if block.header.startswith(f"{header}.")]
            block = found[number] if number < len(found) else found[0] if found else None
            if block is not None and (line := block.keys.get(wanted) if wanted else block.line):
                return f"{self.file}:{line}:{self._column(line, wanted or header)}"
            fallback = fallback or (block.line if block is not None and header == table != self.prefix else 0)
        return f"{self.file}:{fallback}:1" if fallback else self.file

    def _shorter(self, full: str) -> Iterator[tuple[str, str]]:
        """Inline tables: the line of the key that holds them."""
        steps = full.split(".")
        for cut in range(len(steps) - 1, 0, -1):
            for header in range(cut - 1, -1, -1):
                yield ".".join(steps[:header]), ".".join(steps[header:cut])

    def _column(self, line: int, word: str) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return max(text.find(word), len(text) - len(text.lstrip())) + 1

    def wrong(self, path: str, problem: str, number: int = 0) -> None:
        full = f"{self.prefix}.{path}" if self.prefix else path
        self.problems.append(inline(f"{self.place(path, number)}: {full}: {problem}"))

    # --- values

    def settings(self, tree: Any) -> Settings:
        if not isinstance(tree, dict):
            self.problems.append(f"{self.file}: {self.prefix}: expected a table of settings, found {tree!r}")
            return Settings()
        self.known(tree, _KEYS, "")
        severity = self.table(tree, "severity")
        return Settings(
            file=self.file,
            matrix=self.words(tree, "matrix", "files"),
            threshold=self.severity(tree["threshold"], "threshold") if "threshold" in tree else None,
            undecided=self.one_of(tree, "undecided", UNDECIDED),
            target=self.text(tree, "target"),
            train=self.words(tree, "train", "files and arguments"),
            machines=self.words(tree, "machines", "names of machines"),
            lock=self.text(tree, "lock"),
            skip=self.words(tree, "skip", "rules"),
            severity={
                rule: found
                for rule, raw in severity.items()
                if (found := self.severity(raw, f"severity.{rule}"))
            },
            waivers=tuple(self.waivers(tree.get("waive", []))),
            machine={
                name: there
                for name, raw in self.table(tree, "machine").items()
                if (there := self.machine(name, raw)) is not None
            },
        )

    def known(self, table: Mapping[str, Any], keys: Sequence[str], path: str, number: int = 0) -> None:
        for key in table:
            if key not in keys:
                said = f"no such setting{nearest(key, list(keys))}"
                self.wrong(f"{path}.{key}" if path else key, said, number)

    def table(self, tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        found = tree.get(key, {})
        if isinstance(found, dict):
            return found
        self.wrong(key, f"expected a table, found {_short(found)}")
        return {}

    def text(self, tree: Mapping[str, Any], key: str) -> str:
        found = tree.get(key, "")
        if isinstance(found, str) and (found or key not in tree):
            return found
        self.wrong(key, f"expected a text, found {_short(found)}")
        return ""

    def words(self, tree: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
        found = tree.get(key, [])
        if isinstance(found, list) and all(isinstance(each, str) for each in found):
            return tuple(found)
        self.wrong(key, f"expected a list of {what}, found {_short(found)}")
        return ()

    def one_of(self, tree: Mapping[str, Any], key: str, words: Iterable[str]) -> str:
        found = tree.get(key, "")
        if (found in words if isinstance(found, str) else False) or key not in tree:
            return str(found)
        self.wrong(key, f"expected one of {', '.join(words)}, found {_short(found)}")
        return ""

    def severity(self, raw: object, path: str) -> Severity | None:
        try:
            return Severity(raw)
        except ValueError:
            self.wrong(
                path, f"expected one of {', '.join(each.value for each in Severity)}, found {_short(raw)}"
            )
            return None

    def waivers(self, raw: object) -> Iterator[Waiver]:
        if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
            self.wrong("waive", f"expected [[waive]] tables, found {_short(raw)}")
            return
        if len(raw) > _MOST_WAIVERS:
            self.wrong("waive", f"{len(raw)} waivers, and no more than {_MOST_WAIVERS} are read")
            return
        for number, row in enumerate(raw):
            self.known(row, _WAIVER_KEYS, "waive", number)
            until = row.get("until")
            day = (
                until.isoformat()
                if isinstance(until, dt.date) and not isinstance(until, dt.datetime)
                else until
            )
            if not isinstance(day, str) or not _is_day(day):
                self.wrong(
                    "waive.until", f"expected a date such as 2027-03-01, found {_short(until)}", number
                )
                day = ""
            texts = {}
            for key in ("rule", "reason"):
                text = row.get(key)
                if not isinstance(text, str) or not text.strip():
                    self.wrong(f"waive.{key}", f"expected a text, found {_short(text)}", number)
                texts[key] = str(text)
            place = self.place("waive.rule", number).rpartition(":")[0]
            yield Waiver(texts["rule"], inline(" ".join(texts["reason"].split())), day, place)

    def machine(self, name: str, raw: object) -> DeclaredMachine | None:
        path = f"machine.{name}"
        if not isinstance(raw, dict):
            self.wrong(path, f"expected a table, found {_short(raw)}")
            return None
        before = len(self.problems)
        self.known(raw, _MACHINE_KEYS, path)
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
            self.wrong(path, "says nothing: give a driver, a gpu or a platform")
        return DeclaredMachine(name, driver, tuple(gpus), platform) if len(self.problems) == before else None


def _by_place(problem: str) -> tuple[int, ...]:
    place = problem.partition(": ")[0].split(":")[1:]
    return tuple(int(each) for each in place if each.isdecimal())


def _is_day(text: str) -> bool:
    try:
        return str(dt.date.fromisoformat(text)) == text
    except ValueError:
        return False


def _short(raw: object) -> str:
    text = "nothing" if raw is None else str(raw) if isinstance(raw, dt.date | dt.time) else repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004 - one line of a terminal


TEMPLATE = """\
# Settings of envcheck for this folder: read by every command that runs here. In pyproject.toml the same
# stands under [tool.envcheck]. Command-line options win over what stands here.

# threshold = "error"             # gate and check: error, warning or note shuts
# undecided = "warn"              # what could not be read: pass (say nothing), warn, or fail
# target = "zero3-lora"           # the recipe to judge for: `envcheck target` lists them
# train = ["ds_config.json"]      # training configuration: files, and arguments such as "--use_lora true"
# lock = "requirements.txt"       # gate: what the environment was installed from
# machines = ["a100-r535"]        # gate: where the image must run; it has to pass on all of them
# matrix = ["house.toml"]         # your own rules, targets and cells, laid over the shipped ones
# skip = ["lock:extra"]           # rules left out; `lock:` is all that begin so, `remark:` those of --train

# [machine.a100-r535]             # declared, because no GPU is there when an image is built
# driver = "535.104.05"
# gpu = "A100 80GB"               # a name, a compute capability such as "8.0", or a list of them
# platform = "linux-x86_64"

# [severity]
# "requires-dist:a:b" = "error"   # error, warning or note instead of the rule's own

# [[waive]]                       # counts again after that day; one that matches nothing is a finding
# rule = "deepspeed-numpy2-bufsize"
# reason = "we never use that optimizer"
# until = 2027-03-01
"""
"""What `envcheck init` writes: every setting, as a comment."""
