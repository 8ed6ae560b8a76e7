"""Backends complete pins from one index, leak nothing, end in time, and agree with each other."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from envcheck.core.errors import EnvcheckError, ExamineError, InputError, NoSolutionError
from envcheck.host.environment import own_python
from envcheck.host.machine import Host
from envcheck.lock.install import build_needs
from envcheck.lock.model import Artifact, Lock, Pin
from envcheck.lock.render import render_requirements
from envcheck.resolver_backends import (
    BOTH,
    Backend,
    CompletionRequest,
    YankedError,
    choose_backend,
    differences,
    every_backend,
    select_backends,
)
from envcheck.resolver_backends.index.availability import Offer, offers
from envcheck.resolver_backends.index.pages import files_on_page
from envcheck.resolver_backends.index.reader import file_addresses, release_files
from envcheck.resolver_backends.index.redaction import redact
from envcheck.resolver_backends.index.settings import Index, backend_environment, user_index
from tests.support.local_index import LocalIndex, sdist, serving, wheel

BACKENDS = {backend.name: backend for backend in every_backend()}
PYTHON = "{}.{}".format(*sys.version_info)
TAG = f"cp{PYTHON.replace('.', '')}"
SECRETS = ("canary-user", "canary-pass", "canary-path-token")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not all(backend.available(Host()) for backend in BACKENDS.values()),
    reason="needs Linux, uv and pip-tools",
)
both = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)


def world() -> dict[str, bytes]:
    return dict(
        (
            wheel("alpha", "1.0", ("beta>=1", "gamma")),
            wheel("alpha", "2.0", ("beta<1",)),
            wheel("beta", "1.0"),
            wheel("beta", "1.1"),
            wheel("beta", "0.5"),
            wheel("gamma", "3.0", tag=f"{TAG}-{TAG}-manylinux_2_17_x86_64"),
            wheel("gamma", "3.0", tag=f"{TAG}-{TAG}-manylinux_2_28_x86_64"),
            wheel("gamma", "3.0", tag=f"{TAG}-{TAG}-manylinux_2_39_x86_64"),
            wheel("gamma", "3.0", tag=f"{TAG}-{TAG}-win_amd64"),
            wheel("gamma", "3.0", tag="cp36-cp36m-manylinux_2_17_x86_64"),
            sdist("gamma", "3.0"),
            wheel("delta", "1.0", ("beta>=1.1",)),
            wheel("epsilon", "1.0", ("beta<1.1",)),
            wheel("labelled", "1.0+label"),
            sdist("source", "1.0"),
        )
    )


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex(world())) as served:
        yield served


def host_for(index: LocalIndex, home: Path, **more: str) -> Host:
    environ = {
        "PATH": f"{Path(own_python()).parent}:/usr/bin:/bin",
        "HOME": str(home),
        "UV_CACHE_DIR": str(home / "uv"),
        "PIP_CACHE_DIR": str(home / "pip"),
        "PIP_INDEX_URL": index.url,
        "PIP_RETRIES": "0",
        "UV_HTTP_RETRIES": "0",
    }
    return Host(environ={**environ, **more})


def wanted(**pins: str) -> CompletionRequest:
    return CompletionRequest(pins=pins, python=PYTHON, deadline_s=60.0)


def text_of(pins: tuple[Pin, ...]) -> str:
    return render_requirements(Lock(target="t", python=PYTHON, platform="linux-x86_64", pins=pins))


def test_backends_give_the_same_bytes_for_the_same_index(index: LocalIndex, tmp_path: Path) -> None:
    host = host_for(index, tmp_path)
    texts = {text_of(backend.complete(host, wanted(alpha="1.0"))) for backend in BACKENDS.values()}
    assert len(texts) == 1
    (text,) = texts
    assert [line for line in text.splitlines() if "==" in line and "sed" not in line] == [
        "alpha==1.0 \\",
        "beta==1.1 \\",
        "gamma==3.0 \\",
    ]


@both
def test_backend_admits_exactly_the_usable_files(backend: Backend, index: LocalIndex, tmp_path: Path) -> None:
    pins = {pin.name: pin for pin in backend.complete(host_for(index, tmp_path), wanted(gamma="3.0"))}
    assert sorted(file.filename for file in pins["gamma"].artifacts) == [
        f"gamma-3.0-{TAG}-{TAG}-manylinux_2_17_x86_64.whl",
        f"gamma-3.0-{TAG}-{TAG}-manylinux_2_28_x86_64.whl",
    ]


@both
def test_order_of_the_request_does_not_change_the_lock(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    host = host_for(index, tmp_path)
    one = backend.complete(host, CompletionRequest(pins={"alpha": "1.0", "beta": "1.0"}, python=PYTHON))
    other = backend.complete(host, CompletionRequest(pins={"beta": "1.0", "alpha": "1.0"}, python=PYTHON))
    assert text_of(one) == text_of(other)


@both
def test_backend_names_both_constraints_of_a_conflict(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    with pytest.raises(NoSolutionError) as caught:
        backend.complete(host_for(index, tmp_path), wanted(delta="1.0", epsilon="1.0"))
    said = str(caught.value)
    assert "delta" in said
    assert "epsilon" in said
    assert said.startswith("no versions satisfy this: ")
    assert "\n" not in said


@both
def test_backend_reports_a_version_that_does_not_exist(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    with pytest.raises(NoSolutionError, match="beta"):
        backend.complete(host_for(index, tmp_path), wanted(beta="9.9"))


@both
@pytest.mark.parametrize("kind", ["ok", "conflict", "missing", "unauthorised", "dead"])
def test_login_of_the_index_is_never_shown(backend: Backend, kind: str, tmp_path: Path) -> None:
    pins = {"delta": "1.0", "epsilon": "1.0"} if kind == "conflict" else {"alpha": "1.0"}
    if kind == "missing":
        pins = {"nosuchpackage": "1.0"}
    with serving(LocalIndex(world(), login="canary-user:canary-pass")) as index:
        url = index.url.replace("canary-pass", "canary-wrong") if kind == "unauthorised" else index.url
        url = f"{url}/canary-path-token" if kind == "dead" else url
        host = host_for(index, tmp_path, PIP_INDEX_URL=url)
        if kind == "dead":
            index.files.clear()
        try:
            said = text_of(backend.complete(host, wanted(**pins)))
            assert kind == "ok"
        except EnvcheckError as error:
            said = f"{error} {error!r}"
            assert kind != "ok"
    for secret in (*SECRETS, "canary", str(index.port), "127.0.0.1", str(tmp_path)):
        assert secret not in said


@both
def test_unreachable_index_is_not_reported_as_a_conflict(backend: Backend, tmp_path: Path) -> None:
    with serving(LocalIndex({})) as gone:
        pass
    with pytest.raises(ExamineError) as caught:
        backend.complete(host_for(gone, tmp_path), replace(wanted(alpha="1.0"), deadline_s=60))
    assert "127.0.0.1" not in str(caught.value)


@both
def test_hanging_index_ends_at_the_deadline(backend: Backend, tmp_path: Path) -> None:
    with serving(LocalIndex(world(), hang_s=20)) as index:
        began = time.monotonic()
        with pytest.raises(ExamineError, match="did not finish within 3 s"):
            backend.complete(host_for(index, tmp_path), replace(wanted(alpha="1.0"), deadline_s=3))
        assert time.monotonic() - began < 6


@both
def test_unrequested_local_version_is_refused(backend: Backend, index: LocalIndex, tmp_path: Path) -> None:
    with pytest.raises(EnvcheckError, match=r"labelled"):
        backend.complete(host_for(index, tmp_path), wanted(labelled="1.0"))
    allowed = CompletionRequest(pins={"labelled": "1.0+label"}, python=PYTHON, local=("label",))
    assert [pin.version for pin in backend.complete(host_for(index, tmp_path), allowed)] == ["1.0+label"]


@both
def test_wheel_folders_and_extra_indexes_of_this_machine_are_not_used(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    name, data = wheel("beta", "7.0+label")
    (folder / name).write_bytes(data)
    with serving(LocalIndex(dict([wheel("beta", "8.0")]))) as second:
        host = host_for(
            index,
            tmp_path,
            **dict.fromkeys(("PIP_FIND_LINKS", "UV_FIND_LINKS"), str(folder)),
            **dict.fromkeys(("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX"), second.url),
        )
        pins = backend.complete(host, wanted(alpha="1.0"))
    assert {pin.name: pin.version for pin in pins}["beta"] == "1.1"
    assert second.asked == []


@both
def test_source_distribution_is_refused_unless_named(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    with pytest.raises(EnvcheckError, match="source"):
        backend.complete(host_for(index, tmp_path), wanted(source="1.0"))


def test_uv_admits_a_named_source_distribution_without_running_it(index: LocalIndex, tmp_path: Path) -> None:
    (pin,) = BACKENDS["uv"].complete(
        host_for(index, tmp_path), replace(wanted(source="1.0"), build=("source",))
    )
    assert [file.filename for file in pin.artifacts] == ["source-1.0.tar.gz"]


def test_uv_locks_for_a_python_that_is_not_installed(index: LocalIndex, tmp_path: Path) -> None:
    index.files.update([wheel("gamma", "3.0", tag="cp314-cp314-manylinux_2_28_x86_64")])
    pins = BACKENDS["uv"].complete(host_for(index, tmp_path), replace(wanted(gamma="3.0"), python="3.14"))
    assert [file.filename for file in pins[0].artifacts] == [
        "gamma-3.0-cp314-cp314-manylinux_2_28_x86_64.whl"
    ]


def test_piptools_refuses_another_python(index: LocalIndex, tmp_path: Path) -> None:
    with pytest.raises(ExamineError, match=r"only for the Python that runs it .* not for 3\.8"):
        BACKENDS["pip-tools"].complete(host_for(index, tmp_path), replace(wanted(alpha="1.0"), python="3.8"))


@both
def test_unsupported_platform_is_an_input_error(backend: Backend, index: LocalIndex, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="platform"):
        backend.complete(host_for(index, tmp_path), replace(wanted(alpha="1.0"), platform="plan9-mips"))


def test_missing_backend_names_what_to_install() -> None:
    gone = Backend("gone", 1, lambda _: False, lambda *_: ())
    hint = "install it beside envcheck: pip install 'pip-tools>=7.6' 'uv>=0.8'"
    with pytest.raises(ExamineError, match=re.escape(f"gone is not installed; {hint}")):
        choose_backend(Host(), [gone])


def test_best_backend_is_chosen_unless_one_is_named() -> None:
    assert choose_backend(Host(), BACKENDS.values()).name == "uv"
    assert choose_backend(Host(), BACKENDS.values(), "pip-tools").name == "pip-tools"
    with pytest.raises(InputError, match="found 'poetry'"):
        choose_backend(Host(), BACKENDS.values(), "poetry")


@both
def test_constraints_bind_packages_and_require_none(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    ask = replace(wanted(alpha="1.0"), constraints=("beta<1.1", "delta==1.0"))
    pins = backend.complete(host_for(index, tmp_path), ask)
    assert {pin.name: pin.version for pin in pins} == {"alpha": "1.0", "beta": "1.0", "gamma": "3.0"}


@both
def test_a_yanked_release_is_refused_with_its_reason_on_one_line(
    backend: Backend, index: LocalIndex, tmp_path: Path
) -> None:
    index.as_json = True
    index.said["beta-1.0-py3-none-any.whl"] = {"yanked": "it\n\x1b[31m ate data"}
    with pytest.raises(YankedError, match=r"beta 1\.0 was yanked") as caught:
        backend.complete(host_for(index, tmp_path), wanted(beta="1.0"))
    assert (caught.value.name, caught.value.version) == ("beta", "1.0")
    assert str(caught.value).isprintable()


def test_uv_leaves_out_what_was_uploaded_later(index: LocalIndex, tmp_path: Path) -> None:
    index.as_json = True
    for file in index.files:
        index.said[file] = {"upload-time": "2026-10-31T23:59:59Z"}
    index.said["beta-1.1-py3-none-any.whl"] = {"upload-time": "2026-11-01T00:00:00Z"}
    pins = BACKENDS["uv"].complete(
        host_for(index, tmp_path), replace(wanted(alpha="1.0"), until="2026-10-31")
    )
    assert {pin.name: pin.version for pin in pins}["beta"] == "1.0"
    pins = BACKENDS["uv"].complete(
        host_for(index, tmp_path), replace(wanted(alpha="1.0"), until="2026-11-01")
    )
    assert {pin.name: pin.version for pin in pins}["beta"] == "1.1"


def test_piptools_refuses_a_date_with_a_pip_that_has_no_option_for_it(
    index: LocalIndex, tmp_path: Path
) -> None:
    pip = Version(importlib.metadata.version("pip"))
    ask = replace(wanted(beta="1.0"), until="2026-10-31")
    if pip.major >= 26:
        pytest.skip("this pip knows dates")
    with pytest.raises(ExamineError, match=r"pip \S+ cannot ignore newer releases, pip 26\.0 can"):
        BACKENDS["pip-tools"].complete(host_for(index, tmp_path), ask)


def test_both_backends_are_run_and_compared(index: LocalIndex, tmp_path: Path) -> None:
    remarks: list[str] = []
    host = host_for(index, tmp_path)
    select_backends(host, BACKENDS.values(), BOTH).complete(host, wanted(alpha="1.0"), remarks)
    assert remarks == ["uv and pip-tools agree on all 3 packages"]


def test_differences_name_the_package_and_both_versions() -> None:
    def pins(**versions: tuple[str, str]) -> list[Pin]:
        return [
            Pin(name, version, (Artifact("", digest * 64),)) for name, (version, digest) in versions.items()
        ]

    one = pins(same=("1", "a"), other=("1", "a"), files=("1", "a"), only=("1", "a"))
    two = pins(same=("1", "a"), other=("2", "a"), files=("1", "b"))
    assert differences(("uv", one), ("pip-tools", two)) == [
        "files 1: not the same files: uv 1, pip-tools 1",
        "only: uv chooses 1, pip-tools nothing",
        "other: uv chooses 1, pip-tools 2",
    ]


@pytest.mark.parametrize("name", ["PIP_NO_INDEX", "UV_NO_INDEX"])
def test_settings_that_forbid_an_index_are_obeyed(name: str) -> None:
    with pytest.raises(ExamineError, match=f"{name} forbids the use of an index"):
        user_index(Host(environ={name: "true"}))
    assert (
        user_index(Host(environ={name: "0", "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "p"})).url == "p"
    )


def test_offers_leave_out_unusable_files(index: LocalIndex, tmp_path: Path) -> None:
    index.as_json = True
    index.said["beta-1.0-py3-none-any.whl"] = {"yanked": True}
    index.files.update([wheel("beta", "3.0", tag="cp36-cp36m-manylinux_2_17_x86_64")])
    found = offers(host_for(index, tmp_path), wanted(beta="1.0", source="1.0", nosuch="1"))
    assert found["beta"] == Offer(frozenset(map(Version, ("0.5", "1.0", "1.1"))), frozenset([Version("1.0")]))
    assert found["source"] == Offer(frozenset(), frozenset(), source_only=frozenset([Version("1.0")]))
    assert found["nosuch"] == Offer(frozenset(), frozenset())


def test_addresses_of_a_private_index_need_permission_and_have_no_login(tmp_path: Path) -> None:
    with serving(LocalIndex(world(), login="canary-user:canary-pass", as_json=True)) as index:
        host = host_for(index, tmp_path)
        sha256 = hashlib.sha256(index.files["beta-1.0-py3-none-any.whl"]).hexdigest()
        with pytest.raises(InputError, match="the address of your own index is not shown"):
            file_addresses(host, {"beta": [sha256]}, 30.0, own=False)
        found = file_addresses(host, {"beta": [sha256]}, 30.0, own=True)
        assert found == {sha256: f"http://127.0.0.1:{index.port}/files/beta-1.0-py3-none-any.whl"}
        with pytest.raises(ExamineError, match="the index has no file of beta with the sha256 000000000000…"):
            file_addresses(host, {"beta": ["0" * 64]}, 30.0, own=True)


# --- the index --------------------------------------------------------------------------------------


def test_the_page_of_a_project_with_very_many_files_is_read() -> None:
    wheel = {"hashes": {"sha256": "0" * 64}, "requires-python": ">=3.9", "url": "../" + "x" * 900}
    page = {"files": [{**wheel, "filename": f"big-{number}.0-py3-none-any.whl"} for number in range(5000)]}
    body = json.dumps(page).encode()
    assert len(body) > 5_000_000, "some real pages are as large"

    found = files_on_page(body, "application/vnd.pypi.simple.v1+json", "https://example.org/simple/big/")

    assert len(found) == 5000


@pytest.mark.parametrize("as_json", [False, True], ids=["PEP 503", "PEP 691"])
def test_both_kinds_of_index_page_are_read(as_json: bool, index: LocalIndex) -> None:
    index.as_json = as_json
    files = release_files(Host(environ={}), Index(index.url), ["beta"], PYTHON, 10.0)["beta"]
    assert {file.name for file in files} == {f"beta-{one}-py3-none-any.whl" for one in ("0.5", "1.0", "1.1")}


def test_files_without_a_sha256_cannot_be_locked(index: LocalIndex, tmp_path: Path) -> None:
    index.hashes = False
    with pytest.raises(ExamineError, match=r"beta 1\.1: the index has no wheel with a sha256"):
        BACKENDS["pip-tools"].complete(host_for(index, tmp_path), wanted(beta="1.1"))


def test_slow_pages_end_at_the_deadline() -> None:
    with serving(LocalIndex(world(), hang_s=20)) as index:
        began = time.monotonic()
        with pytest.raises(ExamineError, match="timed out"):
            release_files(Host(environ={}), Index(index.url), ["beta"], PYTHON, 1.0)
        assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        *(
            (body, "json")
            for body in (b"\xff\xfe\x00", b"[]", b'{"files": [{"filename": 3}]}', b"null", b"{")
        ),
        (b"[" * 100_000, "json"),
        (b"<![canary[ x ]]>", "html"),
        (b'<a href="http://[canary/x.whl">x</a>', "html"),
    ],
)
def test_malformed_page_is_one_clear_error(body: bytes, kind: str) -> None:
    class Odd(LocalIndex):
        def answer(self, path: str, authorization: str) -> tuple[int, bytes, str]:
            del path, authorization
            return 200, body, f"application/vnd.pypi.simple.v1+{kind}"

    with serving(Odd({})) as index, pytest.raises(ExamineError, match="page of beta cannot be read"):
        release_files(Host(environ={}), Index(index.url), ["beta"], PYTHON, 5.0)


CONFIGS = {
    "uv's variable before pip's": ({"UV_DEFAULT_INDEX": "u", "PIP_INDEX_URL": "p"}, {}, "u"),
    "pip's variable": ({"PIP_INDEX_URL": "p"}, {"/etc/pip.conf": "[global]\nindex-url = c"}, "p"),
    "a system file": ({}, {"/etc/pip.conf": "[global]\nindex-url = c"}, "c"),
    "the user's before the system's": (
        {},
        {
            "/etc/pip.conf": "[global]\nindex-url = c",
            "/home/x/.config/pip/pip.conf": "[global]\nindex_url = d",
        },
        "d",
    ),
    "the install section": (
        {},
        {"/home/x/.pip/pip.conf": "[install]\nindex-url = i\n[global]\nindex-url = g"},
        "i",
    ),
    "a named file": ({"PIP_CONFIG_FILE": "/n"}, {"/n": "[global]\nindex-url = n"}, "n"),
    "no file at all": (
        {"PIP_CONFIG_FILE": "/dev/null"},
        {"/etc/pip.conf": "[global]\nindex-url = c"},
        "",
    ),
    "uv's file": (
        {},
        {"/home/x/.config/uv/uv.toml": '[[index]]\nurl = "o"\n[[index]]\nurl = "d"\ndefault = true'},
        "d",
    ),
    "files nobody can read": ({}, {"/etc/pip.conf": "\0[", "/etc/uv/uv.toml": "="}, ""),
    "an extra index is not the index": ({"PIP_EXTRA_INDEX_URL": "e"}, {}, ""),
}


@pytest.mark.parametrize(("environ", "files", "url"), CONFIGS.values(), ids=CONFIGS)
def test_index_of_the_user_is_found(
    environ: dict[str, str], files: dict[str, str], url: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert user_index(Host(tmp_path, {"HOME": "/home/x", **environ})).url == url


def test_index_does_not_show_its_address() -> None:
    assert "canary" not in repr(Index("https://canary:canary@canary.example/canary"))


def test_environment_of_a_backend_has_no_setting_that_shapes_a_lock() -> None:
    host = Host(
        environ={
            **dict.fromkeys(
                ("PIP_FIND_LINKS", "UV_PRERELEASE", "DS_BUILD_OPS", "PYTHONPATH", "PIP_PRE"), "1"
            ),
            "HTTPS_PROXY": "kept",
        }
    )
    said = backend_environment(host, Index(), {})
    assert said == {
        "HTTPS_PROXY": "kept",
        "DS_BUILD_OPS": "0",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.parametrize("url", ["http://u:canary@[x/simple", "http://u:canary@host:port/simple"])
def test_malformed_address_is_reported_and_not_shown(url: str) -> None:
    with pytest.raises(ExamineError, match=r"^the address of your index cannot be read$"):
        user_index(Host(environ={"UV_DEFAULT_INDEX": url, "PIP_CONFIG_FILE": "/dev/null"}))


def test_redacting_hides_a_password_with_special_characters() -> None:
    said = redact("see (https://me:can),ary'x@a.b/c), then", Index())
    assert said == "see (<url>), then"


def test_redacting_hides_escapes_urls_and_the_pieces_of_an_address() -> None:
    index = Index("https://us%40er:pa%20ss@mirror.example/t0k3n/simple")
    said = redact("\x1b[31m https://a.b/c us@er pa ss mirror.example t0k3n simple", index)
    assert said == "\\x1b[31m <url> … … … … simple"


@pytest.mark.network
@pytest.mark.parametrize("transformers", ["4.57.6"])
def test_backends_agree_about_the_real_stack(transformers: str) -> None:
    pins = {"torch": "2.10.0", "deepspeed": "0.19.8", "transformers": transformers}
    ask = CompletionRequest(
        pins=pins, also=build_needs(["deepspeed"]), python=PYTHON, build=("deepspeed",), deadline_s=500
    )
    texts = {text_of(backend.complete(Host(), ask)) for backend in BACKENDS.values()}
    assert len(texts) == 1
