"""`pin` with the user's own requirements, index and output file, through the real command and a local index."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from envcheck.host.machine import Host, find_program
from envcheck.lock.leaks import refuse_leaks
from envcheck.lock.parse import parse_requirements
from tests.support.local_index import LocalIndex, sdist, serving, wheel
from tests.support.running import Outcome, installed, invocation
from tests.support.stack_index import STACK, stack

PYTHON = "{}.{}".format(*sys.version_info)
PIN = ("pin", "--target", "zero3-lora", "--python-version", PYTHON, "--driver", "580.65.06")
SHIPPED = ("pin", "--target", "zero3-lora", "--python-version", "3.11", "--driver", "580.65.06")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or find_program(Host(), "uv") is None, reason="needs Linux and uv"
)


@pytest.fixture(scope="module")
def index() -> Iterator[LocalIndex]:
    """The stack; trl and a package of the user's own; rich 14 is newer than all of the stack."""
    files = stack(("trl", "1.16.0"), transformers="5.23.0")
    files |= dict(
        (
            wheel("mine", "1.0", ("rich>=13",)),
            wheel("mine", "2.0", ("rich>=13", "numpy>=9")),
            wheel("rich", "13.0"),
            wheel("rich", "14.0"),
            wheel("withdrawn", "1.0"),
        )
    )
    said: dict[str, dict[str, object]] = {file: {"upload-time": "2026-09-01T00:00:00Z"} for file in files}
    said["rich-14.0-py3-none-any.whl"] = {"upload-time": "2026-11-20T00:00:00Z"}
    said["withdrawn-1.0-py3-none-any.whl"]["yanked"] = "it ate\nmy \x1b[31mhomework"
    with serving(LocalIndex(files, as_json=True, said=said)) as served:
        yield served


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def environ(url: str, cache: Path, **more: str) -> dict[str, str]:
    aside = ("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_", "ENVCHECK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(aside)}  # noqa: TID251
    own = {
        "PYTHONPATH": str(installed()),
        "PIP_INDEX_URL": url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "UV_CACHE_DIR": str(cache),
        "UV_HTTP_RETRIES": "0",
    }
    return {**kept, **own, **more}


def run(
    environment: Mapping[str, str], *arguments: str, cwd: Path, prepare: Callable[[], None] | None = None
) -> Outcome:
    ran = subprocess.run(
        invocation(*arguments),
        capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env=dict(environment), preexec_fn=prepare,
    )  # fmt: skip
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


def versions(text: str) -> dict[str, str]:
    return {pin.name: pin.version for pin in parse_requirements(text, "stdout").pins}


# --- the user's own requirements --------------------------------------------------------------------


def test_own_requirements_join_the_search_and_the_closure(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/my.in").write_text("trl>=0.20\n-r more.in\n-c bounds.in\n")
    (tmp_path / "in/more.in").write_text("mine<2\n")
    (tmp_path / "in/bounds.in").write_text("rich<14\nnot-there>=3\n")
    code, out, err = run(
        environ(index.url, cache), *PIN, "-r", "in/my.in", "--with", "transformers>=5", cwd=tmp_path
    )
    assert code == 0, err
    found = versions(out)
    assert STACK.items() <= found.items()
    assert (found["trl"], found["mine"], found["rich"]) == ("1.16.0", "1.0", "13.0")
    assert "not-there" not in found
    refuse_leaks(out)


def test_own_requirements_that_cannot_be_met_name_both_sides(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    code, out, err = run(environ(index.url, cache), *PIN, "--with", "mine>=2", cwd=tmp_path)
    assert (code, out) == (4, "")
    assert "mine" in err
    assert "numpy" in err


def test_an_address_is_kept_out_of_the_lock_and_named_without_repeating_it(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    lines = [
        "mine<2",
        "https://user:canary@host.example/a/studio-0.4-py3-none-any.whl",
        "-e .",
        "git+ssh://h/x.git",
    ]
    (tmp_path / "my.in").write_text("\n".join([*lines, "transformers @ git+https://host.example/t.git\n"]))
    code, out, err = run(environ(index.url, cache), *PIN, "-r", "my.in", cwd=tmp_path)
    assert code == 0, err
    assert versions(out)["mine"] == "1.0"
    assert "canary" not in out + err
    notes = [line for line in err.splitlines() if "kept and not judged" in line]
    assert [line.split(": ")[0] for line in notes] == ["my.in:2", "my.in:3", "my.in:4", "my.in:5"]
    assert "studio" in notes[0]
    assert "python -m pip install --no-deps -r my.in" in notes[0]
    assert "the lock has a release of transformers" in notes[3]
    refuse_leaks(out)


def test_a_package_that_is_source_only_needs_to_be_allowed(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    source = {
        **index.files,
        **dict(
            (
                sdist("fair", "0.4.0", "from setuptools import setup\nsetup(name='fair', version='0.4.0')"),
                wheel("setuptools", "80.0"),
            )
        ),
    }
    with serving(LocalIndex(source, as_json=True)) as served:
        code, out, err = run(environ(served.url, cache), *PIN, "--with", "fair==0.4.0", cwd=tmp_path)
    assert (code, out) == (4, "")
    assert "has it as source only" in err
    assert "--allow-source fair" in err


def test_all_packages_that_are_source_only_are_named_at_once(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    """Uv names one after the other; what they require themselves is known only when they may be built."""
    script = "from setuptools import setup\nsetup(name={name!r}, version='1.0')"
    parts = ("part-a", "part-b", "part-c")
    files = [
        wheel("suite", "2.0", ("part-a", "middle")),
        wheel("middle", "1.0", ("part-b", "part-c", "part-a")),
        *(sdist(name, "1.0", script.format(name=name)) for name in parts),
    ]
    with serving(LocalIndex({**index.files, **dict(files)}, as_json=True)) as served:
        code, out, err = run(environ(served.url, cache), *PIN, "--with", "suite", cwd=tmp_path)
    assert (code, out) == (4, "")
    assert "part-a, part-b, part-c are on the index as source only" in err
    tried, _, untried = err.partition("a fix, not tried because it runs the packages' build code")
    assert "--allow-source" not in tried
    assert "--allow-source part-a --allow-source part-b --allow-source part-c" in untried


def test_a_shipped_lock_is_served_only_if_it_fulfils_the_requirements(tmp_path: Path) -> None:
    nowhere = environ("http://127.0.0.1:9/simple", tmp_path)
    served = run(
        nowhere, *SHIPPED, "--offline", "--with", "transformers>=5", "--model", "qwen3", cwd=tmp_path
    )
    assert served.code == 0, served.err
    refused = run(nowhere, *SHIPPED, "--offline", "--with", "transformers<5", "--with", "mine", cwd=tmp_path)
    assert refused.code == 4
    assert re.search(r"has transformers 5\S+, --with asks for transformers<5", refused.err)
    assert "lacks mine (--with)" in refused.err
    older = run(nowhere, *SHIPPED, "--offline", "--exclude-newer", "2024-01-01", cwd=tmp_path)
    assert older.code == 4
    assert "--exclude-newer 2024-01-01" in older.err


def test_exclude_newer_locks_nothing_uploaded_later(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    for day, rich in {"2026-11-19": "13.0", "2026-11-20": "14.0"}.items():
        options = ("--with", "rich", "--exclude-newer", day, "--resolve")
        code, out, err = run(environ(index.url, cache), *PIN, *options, cwd=tmp_path)
        assert code == 0, err
        assert versions(out)["rich"] == rich
    # The stack that is there is newer in the tables than that day.
    code, out, err = run(
        environ(index.url, cache), *PIN, "--exclude-newer", "2026-11-01", "--resolve", cwd=tmp_path
    )
    assert (code, out) == (4, "")
    assert "nothing after 2026-11-01 (--exclude-newer 2026-11-01)" in err


def test_keep_locks_the_installed_version(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    site = tmp_path / f"env/lib/python{PYTHON}/site-packages"
    for name, version in {"torch": "2.13.0+cu130", "rich": "13.0"}.items():
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        (site / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n"
        )
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {PYTHON}.9\n")
    own = ("--static", "--python", "env", "--keep", "torch", "--keep", "rich")
    code, out, err = run(environ(index.url, cache), *PIN, *own, "--resolve", cwd=tmp_path)
    assert code == 0, err
    assert versions(out)["torch"] == "2.13.0"
    assert versions(out)["rich"] == "13.0"
    missing = run(environ(index.url, cache), *PIN, *own, "--keep", "peft", cwd=tmp_path)
    assert missing.code == 2
    assert "--keep peft: not found in env" in missing.err


def test_a_withdrawn_release_is_not_locked(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    code, out, err = run(environ(index.url, cache), *PIN, "--with", "withdrawn==1.0", cwd=tmp_path)
    assert (code, out) == (4, "")
    assert "your index has none" in err
    assert "all of its releases were withdrawn" in err
    assert "\x1b" not in err


def test_what_the_index_lacks_is_replaced_by_what_it_has(cache: Path, tmp_path: Path) -> None:
    with serving(LocalIndex(stack(peft="0.21.1"), as_json=True)) as older:
        code, out, err = run(environ(older.url, cache / "older"), *PIN, "--resolve", cwd=tmp_path)
    assert code == 0, err
    assert versions(out)["peft"] == "0.21.1"
    assert "your index has no usable peft 0.21.2: the newest one is 0.21.1" in err


def test_two_backends_are_compared(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    code, out, err = run(environ(index.url, cache), *PIN, "--resolve", "--engine", "both", cwd=tmp_path)
    assert code == 0, err
    assert f"uv and pip-tools agree on all {len(versions(out))} packages" in err


# --- wrong use --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (("--offline", "--resolve"), 2, "--offline: --resolve needs a package index"),
        (("--offline", "--engine", "uv"), 2, "--offline: --engine needs a package index"),
        (("--offline", "--format", "pylock"), 2, "--offline: --format pylock holds addresses"),
        (("--engine", "poetry"), 2, "--engine: expected one of uv, pip-tools, both, found 'poetry'"),
        (("--format", "nosuch"), 2, "--format: expected one of"),
        (("--prefer", "oldest"), 2, "--prefer: expected one of measured, newest"),
        (("--show-index",), 2, "--show-index: --format requirements holds no address"),
        (("--exclude-newer", "soon"), 2, "--exclude-newer: expected a date"),
        (("--format", "pylock"), 2, "the address of your own index is not shown"),
        (("--model", "qwen33"), 2, "did you mean 'qwen3'"),
        (("-r", "gone.in"), 2, "gone.in: no such file"),
        (("-r", "bad.in"), 2, "bad.in:2: expected name>=version alone, found the option --pre"),
        (("-r", "."), 2, "expected a file, found a directory"),
        (("--with", "x @ https://u:canary@h/x"), 2, "found a direct reference"),
        (("-o", "gone/lock.txt"), 2, "the folder of this file does not exist"),
        (("-o", "."), 2, "found a directory"),
        (("-o", "lock/"), 2, "found a folder"),
        (("-o", "link.txt"), 2, "is a symbolic link"),
        (("-o", "bad.in", "-r", "bad.in"), 2, "is read with -r"),
        (("-o", "loop", "-r", "bad.in"), 2, "is a symbolic link"),
        (("-o", "lock.txt", "-r", "loop"), 2, "loop: too many levels of symbolic links"),
        (
            ("--python-version", "3.11rc1"),
            2,
            "--python-version: expected a version such as 3.11, found '3.11rc1'",
        ),
        (("--python-version", "1!3.11"), 2, "--python-version: expected a version such as 3.11"),
        (("-o", "/dev/null"), 2, "found a device"),
        (("--format", "uv", "-o", "pyproject.toml"), 2, "the file of a whole project"),
        (("--format", "pylock", "-o", "lock.toml"), 2, "PEP 751 requires the name"),
        (("--target", "zero3-lor"), 2, "did you mean 'zero3-lora'"),
        (("--gpu", "A1000000"), 2, "no GPU 'A1000000' is known"),
    ],
)
def test_wrong_use_is_a_one_line_error_and_changes_no_file(
    options: tuple[str, ...], code: int, why: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.in").write_text("rich\n--pre\n")
    (tmp_path / "link.txt").symlink_to("bad.in")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    outcome = run(environ("http://127.0.0.1:9/simple", tmp_path / "uv"), *SHIPPED, *options, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (code, ""), outcome.err
    (line,) = outcome.err.splitlines()
    assert why in line
    assert "canary" not in line
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "bad.in").read_text() == "rich\n--pre\n"


# --- indexes that misbehave -------------------------------------------------------------------------


class Garbage(LocalIndex):
    """Serves pages that are none."""

    def answer(self, path: str, authorization: str) -> tuple[int, bytes, str]:
        del path, authorization
        return 200, b"\xff\xfe garbage", "application/vnd.pypi.simple.v1+json"


@pytest.mark.parametrize("engine", ["uv", "pip-tools"])
@pytest.mark.parametrize("kind", ["garbage", "gone", "refused"])
def test_a_broken_index_is_a_one_line_error(engine: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("old\n")
    options = ("--resolve", "--engine", engine, "-o", "lock.txt")

    with serving(Garbage({}) if kind == "garbage" else LocalIndex({}, login="a:b")) as index:
        url = index.url.replace("a:b@", "canary-user:canary-pass@")
        outcome = run(environ(url, tmp_path / "uv"), *PIN, *options, cwd=tmp_path) if kind != "gone" else None
    if outcome is None:  # nobody listens any more
        outcome = run(environ(url, tmp_path / "uv"), *PIN, *options, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (3, ""), outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not re.search(r"canary|127\.0\.0\.1|Traceback", outcome.err)
    assert (tmp_path / "lock.txt").read_text() == "old\n"


def test_a_hash_that_the_index_lacks_is_reported(cache: Path, tmp_path: Path) -> None:
    changed = stack()
    with serving(LocalIndex(changed, as_json=True)) as index:
        # A shipped lock's files are not those of this index.
        outcome = run(
            environ(index.url, cache),
            *SHIPPED,
            "--format",
            "pylock",
            "--show-index",
            "-o",
            "pylock.toml",
            cwd=tmp_path,
        )
    assert outcome.code == 3
    assert re.search(r"the index (?:answers 404 for|has no file of) ", outcome.err)
    assert not list(tmp_path.iterdir())


SECRETS = ("canary-user", "canary-pass", "canary%2Fpath", "canary")


@pytest.mark.parametrize(
    ("engine", "way", "wish"),
    [
        ("uv", "variable", "mine<2"),
        ("uv", "pip.conf", "mine>=2"),
        ("uv", "uv.toml", "nosuch"),
        ("pip-tools", "uv.toml", "mine<2"),
        ("pip-tools", "variable", "mine>=2"),
    ],
)
def test_an_index_with_a_login_is_used_and_shown_nowhere(
    engine: str, way: str, wish: str, index: LocalIndex, tmp_path: Path
) -> None:
    with serving(LocalIndex(index.files, login="canary-user:canary-pass", as_json=True)) as private:
        environment = environ("", tmp_path / "uv", HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "cfg"))
        del environment["PIP_INDEX_URL"], environment["PIP_CONFIG_FILE"]
        environment["ENVCHECK_DEBUG"] = ""
        if way == "variable":
            environment["UV_DEFAULT_INDEX"] = private.url
        else:
            name, text = {
                "pip.conf": ("pip/pip.conf", f"[global]\nindex-url = {private.url}\n"),
                "uv.toml": ("uv/uv.toml", f'[[index]]\nurl = "{private.url}"\ndefault = true\n'),
            }[way]
            (tmp_path / "cfg" / name).parent.mkdir(parents=True)
            (tmp_path / "cfg" / name).write_text(text)
        (tmp_path / "work").mkdir()
        options = ("--resolve", "--engine", engine, "--with", wish, "-o", "lock.txt")
        outcome = run(environment, *PIN, *options, cwd=tmp_path / "work")
        assert private.asked, "the index was not used"
    written = [path.read_text() for path in (tmp_path / "work").iterdir()]
    assert outcome.code == (0 if wish == "mine<2" else 4), outcome.err
    assert len(written) == (wish == "mine<2")
    for text in (outcome.out, outcome.err, *written):
        assert not any(secret in text for secret in (*SECRETS, "127.0.0.1", str(private.port)))


# --- the file is the old one or the whole new one ---------------------------------------------------


def test_a_replaced_file_keeps_its_permissions_and_a_new_one_follows_the_umask(tmp_path: Path) -> None:
    nowhere = environ("http://127.0.0.1:9/simple", tmp_path / "uv")
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "old.txt").chmod(0o640)

    def strict() -> None:
        os.umask(0o027)

    for name in ("old.txt", "new.txt"):
        outcome = run(nowhere, *SHIPPED, "-o", name, cwd=tmp_path, prepare=strict)
        assert (outcome.code, outcome.out) == (0, "")
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
        assert versions((tmp_path / name).read_text())


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("old\n")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    nowhere = environ("http://127.0.0.1:9/simple", tmp_path / "uv", PYTHONDONTWRITEBYTECODE="1")
    outcome = run(nowhere, *SHIPPED, "-o", "lock.txt", cwd=tmp_path, prepare=full)
    assert (outcome.code, outcome.out) == (3, "")
    assert "lock.txt: file too large; the old content is unchanged" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["lock.txt"]
    assert (tmp_path / "lock.txt").read_text() == "old\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leaves_the_old_file_or_the_whole_new_one(
    number: signal.Signals, index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    scratch, folder = tmp_path / "tmp", tmp_path / "work"
    scratch.mkdir()
    folder.mkdir()
    environment = environ(index.url, cache, TMPDIR=str(scratch))
    words = invocation(*PIN, "--resolve", "-o", "lock.txt")
    began = time.monotonic()
    subprocess.run(words, env=environment, cwd=folder, check=True, capture_output=True)
    whole, took = (folder / "lock.txt").read_text(), time.monotonic() - began
    moments = random.Random(number)  # noqa: S311 - moments to strike at
    codes: list[int] = []
    while len(codes) < 4 or (not any(codes) and len(codes) < 20):  # no strike may come too late for ever
        (folder / "lock.txt").write_text("old\n")
        process = subprocess.Popen(
            words, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509 - nohup ignores it
        )  # fmt: skip
        time.sleep(moments.uniform(0.3, 1.1) * took)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        codes.append(process.returncode)
        assert (folder / "lock.txt").read_text() in ("old\n", whole)
        assert [path.name for path in folder.iterdir()] == ["lock.txt"]
        assert not list(scratch.iterdir())
        assert "internal error" not in said
    assert set(codes) <= {0, 128 + number, -number}
    assert any(codes)


def test_a_backend_does_not_outlive_an_interruption(tmp_path: Path) -> None:
    with serving(LocalIndex({}, hang_s=30)) as index:
        mark = str(tmp_path / "cache-of-this-very-test")
        words = invocation(*PIN, "--resolve")
        process = subprocess.Popen(
            words, env=environ(index.url, Path(mark)), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        while not index.asked:
            time.sleep(0.05)
            assert process.poll() is None, process.communicate()
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
        time.sleep(0.3)
        assert mark not in "".join(_environments())


def _environments() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield (folder / "environ").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
