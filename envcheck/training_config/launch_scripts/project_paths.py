"""Paths of another machine, or below a folder that only a variable names, as files of the project."""

from __future__ import annotations

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.prefixes import OPTION_WITH_VALUE, SCRIPTS
from envcheck.training_config.launch_scripts.session import Session
from envcheck.training_config.launch_scripts.values import Fragment, Value, known_text

_PROJECT_FILES = (*SCRIPTS, ".py", ".json", ".yaml", ".yml", ".toml")

_FOLDER_OF_PROJECT = pattern(
    r"\$\{?(HOME|(?:SLURM_SUBMIT|PBS_O_WORK|LSB_SUBCWD|SGE_O_WORK|GITHUB_WORK)\w*)\}?"
)
"""Variables in which schedulers give the folder from which a job was submitted, and a folder above it."""

_USER = pattern(r"\$\{?(?:USER|LOGNAME)\}?|\$\(whoami\)|`whoami`")

_OPTION_AND_PATH = 3  # fragments of `--config=$ROOT/train.yaml`


def in_project(field: Value, session: Session) -> Value:
    """Return `src/train.py` for `$ROOT/src/train.py` if the project has it and no ROOT is set."""
    if any(each.why for each in field):
        field = tuple(each for each in field if each.text or each.why)  # quotes begin with an empty one
    elif field and field[0].text.startswith("~/"):
        return _below_home(field, session)
    if below := _below_user(field, session):
        return below
    at = 1 if len(field) == _OPTION_AND_PATH and field[0].text.endswith("=") else 0
    if len(field) != at + 2 or not field[at].why or any(each.why for each in (*field[:at], field[-1])):
        return field
    variable = _FOLDER_OF_PROJECT.fullmatch(field[at].text)
    root = field[at].unset or (variable.group(1) if variable else "")
    rest = field[-1].text
    if not root or not rest.startswith("/") or not rest.endswith(_PROJECT_FILES) or _is_elsewhere(root):
        return field
    # A path that ends as one of the project's, `/srv/project/src/a.py`, is found like an absolute one.
    ways = (rest,) if root == "HOME" else (rest.lstrip("/"), rest)
    found = next((each for each in ways if session.beside(each) is not None), "")
    if not found:
        return field
    if root != "HOME":
        session.roots.add(root)
    return (*field[:at], field[-1]._replace(text=found, at=field[at].at))


def _below_user(field: Value, session: Session) -> Value:
    """Return the file of the project that `/home/$USER/project/src/a.py` ends as, or an empty value."""
    at = next((i for i, each in enumerate(field) if each.why), 0)
    before, end = known_text(field[:at]) or "", known_text(field[at + 1 :])
    option = OPTION_WITH_VALUE.match(before)
    if not end or not before[option.end() if option else 0 :].startswith("/"):
        return ()
    if not end.endswith(_PROJECT_FILES) or not _USER.fullmatch(field[at].text):
        return ()
    if session.beside(end) is None:
        return ()
    return (field[0]._replace(text=f"{option.group() if option else ''}{end}"),)


def _below_home(field: Value, session: Session) -> Value:
    """Return the file of the project that `~/project/src/a.py` ends as, if there is one."""
    path = (known_text(field) or "").removeprefix("~")
    if not path.endswith(_PROJECT_FILES) or session.beside(path) is None:
        return field
    return (field[0]._replace(text=path),)


def is_above_project(fragment: Fragment) -> bool:
    """Return whether a part of a path that is not known ends as a folder above the project, or in it.

    That is the user's name, a folder that the scheduler gives, or a variable that the script does not set.
    """
    if _USER.fullmatch(fragment.text) or _FOLDER_OF_PROJECT.fullmatch(fragment.text):
        return True
    return bool(fragment.unset) and not _is_elsewhere(fragment.unset)


def _is_elsewhere(name: str) -> bool:
    """Return whether a variable is that of a folder which every machine has, and no project is in."""
    return name in ("TMPDIR", "TMP", "PWD", "OLDPWD") or "OUT" in name.upper()
