"""A package index on 127.0.0.1 with tiny real wheels, so that backends run without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


def wheel(
    name: str,
    version: str,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    more: dict[str, bytes] | None = None,
    python: str = "",
) -> tuple[str, bytes]:
    """Return the file name and the reproducible bytes of a wheel with metadata and `more` files."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Python: {python}\n" if python else ""
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        "METADATA": metadata,
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        "RECORD": "",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{file}", (2026, 1, 1, 0, 0, 0)), text)
        for path, data in (more or {}).items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data)
    return f"{stem}-{tag}.whl", packed.getvalue()


def sdist(
    name: str, version: str, setup: str = "raise SystemExit('ran')", requires: tuple[str, ...] = ()
) -> tuple[str, bytes]:
    """Return the file name and bytes of a source distribution; its default setup.py fails if it is run."""
    stem = f"{name}-{version}"
    said = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    said += "".join(f"Requires-Dist: {one}\n" for one in requires)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file, text in (
            ("PKG-INFO", said),
            ("setup.py", setup),
        ):
            info = tarfile.TarInfo(f"{stem}/{file}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return f"{stem}.tar.gz", packed.getvalue()


@dataclass
class LocalIndex:
    """What the index serves and how it behaves.

    `files` are the contents by file name. `login` is `user:password`, if the index requires one. Each answer
    is delayed by `hang_s` seconds. `asked` are the requested paths.
    """

    files: dict[str, bytes]
    login: str = ""
    hang_s: float = 0.0
    as_json: bool = False
    hashes: bool = True
    port: int = 0
    ranges: bool = False
    said: dict[str, dict[str, object]] = field(default_factory=dict)  # further PEP 691 fields, by file name
    sent: int = 0  # bytes of files that were sent
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The index's URL, with the login if it requires one."""
        login = f"{self.login}@" if self.login else ""
        return f"http://{login}127.0.0.1:{self.port}/simple"

    def page(self, name: str) -> tuple[str, str] | None:
        """Return a project's page and its content type."""
        found = {
            file: hashlib.sha256(data).hexdigest()
            for file, data in self.files.items()
            if file.replace("_", "-").startswith(f"{name}-")
        }
        if not found:
            return None
        if self.as_json:
            rows = [
                {
                    "filename": file,
                    "url": f"/files/{file}",
                    "hashes": {"sha256": digest} if self.hashes else {},
                    **self.said.get(file, {}),
                }
                for file, digest in found.items()
            ]
            said = {"meta": {"api-version": "1.0"}, "name": name, "files": rows}
            return json.dumps(said), "application/vnd.pypi.simple.v1+json"
        links = (
            f'<a href="/files/{file}{f"#sha256={digest}" if self.hashes else ""}"{self._attributes(file)}>{file}</a><br>'
            for file, digest in found.items()
        )
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>", "text/html"

    def _attributes(self, file: str) -> str:
        return "".join(
            f' data-{key}="{html.escape(str(value))}"' for key, value in self.said.get(file, {}).items()
        )

    def part(self, data: bytes, wanted: str) -> tuple[bytes, str]:
        """Return the bytes that a Range header requests, and their Content-Range."""
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = max(0, len(data) - int(last)) if not first else int(first)
        end = len(data) - 1 if not first or not last else min(int(last), len(data) - 1)
        return data[start : end + 1], f"bytes {start}-{end}/{len(data)}"

    def answer(self, path: str, authorization: str) -> tuple[int, bytes, str]:
        """Return status, body and content type for a path."""
        self.asked.append(path)
        time.sleep(self.hang_s)
        expected = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and authorization != expected:
            return 401, b"", "text/plain"
        head, _, rest = unquote(path).lstrip("/").partition("/")
        if head == "files" and rest in self.files:
            return 200, self.files[rest], "application/octet-stream"
        page = self.page(rest.strip("/")) if head == "simple" else None
        return (200, page[0].encode(), page[1]) if page else (404, b"", "text/plain")


@contextmanager
def serving(index: LocalIndex) -> Iterator[LocalIndex]:
    """Serve an index on a free port of 127.0.0.1 until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, kind = index.answer(self.path, self.headers.get("Authorization", ""))
            where = ""
            if status == 200 and index.ranges and self.headers.get("Range") and "/files/" in self.path:
                body, where = index.part(body, self.headers["Range"])
                status = 206
            if "/files/" in self.path and self.command == "GET":
                index.sent += len(body)
            try:
                self.send_response(status)
                if where:
                    self.send_header("Content-Range", where)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if status == 401:
                    self.send_header("WWW-Authenticate", "Basic")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)
            except OSError:
                pass  # in some tests, the client closes the connection early

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
