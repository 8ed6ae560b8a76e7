"""Give access to the store of a torch job through two folders.

Run as `python c10d.py FOLDER`. FOLDER/order.json says where the store is. Each file in FOLDER/out is set in
the store, under its name. Each key that FOLDER/want names is written to FOLDER/in once it is set. The script
ends when FOLDER/stop exists and all keys named in it are set, which means that the other ranks need the store
no longer; or when the process that started it has ended.

It needs the standard library and torch, which has the store and which envcheck itself never imports.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

POLL_S = 0.05
"""Seconds between two looks at the folders and the store."""

LEAVING_S = 10.0
"""Seconds for which this process may still host the store after FOLDER/stop appeared."""


def main(folder: str) -> int:
    """Carry texts between the folders and the store; return 1 if the store is out of reach."""
    parent = os.getppid()
    try:
        carry(connect(read_json(folder, "order.json")), folder, parent)
    except Exception as error:  # noqa: BLE001 - the parent reports any error
        message = str(error).strip().split("\n")[0]
        write_whole(folder, "failed", f"{type(error).__name__}: {message}")
        return 1
    return 0


def connect(order: dict[str, Any]) -> Any:
    """Return the store, with keys that only this call uses; rank 0 hosts it unless torchrun's agent does."""
    import datetime as dt

    distributed = importlib.import_module("torch.distributed")
    store = distributed.TCPStore(
        order["address"],
        order["port"],
        is_master=order["hosting"],
        timeout=dt.timedelta(seconds=order["seconds"]),
        wait_for_workers=False,
    )
    name = f"envcheck.fleet.{order['restarts']}"
    # A job may run envcheck twice: each rank counts its calls, so that it reads nothing of an earlier one.
    call = store.add(f"{name}.calls.{order['rank']}", 1)
    return distributed.PrefixStore(f"{name}.{call}", store)


def carry(store: Any, folder: str, parent: int) -> None:
    """Carry texts in both directions until the folder contains a file `stop`, or the parent has ended."""
    sent: dict[str, int] = {}
    received: set[str] = set()
    last = None
    while last is None or time.monotonic() < last:
        if last is None and os.path.exists(os.path.join(folder, "stop")):
            last = time.monotonic() + LEAVING_S  # files written before `stop` are still sent in this round
        send(store, os.path.join(folder, "out"), sent)
        receive(store, folder, received)
        if last is not None and all(store.check([name]) for name in read_json(folder, "stop")):
            return
        if os.getppid() != parent:
            return
        time.sleep(POLL_S)


def send(store: Any, out: str, sent: dict[str, int]) -> None:
    """Set each new or changed file of a folder in the store; `sent` keeps their modification times."""
    for name in sorted(os.listdir(out)):
        path = os.path.join(out, name)
        if not name.startswith(".") and sent.get(name) != (stamp := os.stat(path).st_mtime_ns):
            with open(path, encoding="utf-8") as file:
                store.set(name, file.read())
            sent[name] = stamp


def receive(store: Any, folder: str, received: set[str]) -> None:
    """Write each requested key that is set in the store to the folder `in`, once."""
    for name in read_json(folder, "want"):
        if name not in received and store.check([name]):
            write_whole(os.path.join(folder, "in"), name, store.get(name).decode("utf-8", "replace"))
            received.add(name)


def read_json(folder: str, name: str) -> Any:
    """Return the content of a JSON file, or an empty list if the file does not exist."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def write_whole(folder: str, name: str, text: str) -> None:
    """Write a file in one step: readers see it complete or not at all."""
    draft = os.path.join(folder, f".{name}")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, os.path.join(folder, name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
