"""torch's store of a job as two folders: what lies in `out` is set, what is wanted comes to `in`.

`python c10d.py FOLDER`; FOLDER/order.json says where the store is. Beside the standard library it needs
torch, whose store it is, and which envcheck itself never imports. It ends when FOLDER/stop is there, which
names keys that others set once they need the store no more, or when the process that started it is gone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

POLL_S = 0.05
LEAVING_S = 10.0
"""How long a store that this process hosts outlives its use."""


def main(folder: str) -> int:
    """Carry texts between the folders and the store; 1 if the store is out of reach."""
    parent = os.getppid()
    try:
        carry(reached(read(folder, "order.json")), folder, parent)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent tells it
        said = str(error).strip().split("\n")[0]
        put(folder, "failed", f"{type(error).__name__}: {said}")
        return 1
    return 0


def reached(order: dict[str, Any]) -> Any:
    """The store, hosted by rank 0 unless torchrun's agent does, with keys of this call alone."""
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
    # A job may ask twice: every rank counts its calls, and none reads what was said in an earlier one.
    call = store.add(f"{name}.calls.{order['rank']}", 1)
    return distributed.PrefixStore(f"{name}.{call}", store)


def carry(store: Any, folder: str, parent: int) -> None:
    """Until it is told to stop."""
    out, came = os.path.join(folder, "out"), os.path.join(folder, "in")
    done: dict[str, int] = {}
    fetched: set[str] = set()
    last = None
    while last is None or time.monotonic() < last:
        if last is None and os.path.exists(os.path.join(folder, "stop")):
            last = time.monotonic() + LEAVING_S  # and what was put there before is carried once more
        for name in sorted(os.listdir(out)):
            path = os.path.join(out, name)
            if not name.startswith(".") and done.get(name) != (stamp := os.stat(path).st_mtime_ns):
                with open(path, encoding="utf-8") as file:
                    store.set(name, file.read())
                done[name] = stamp
        for name in read(folder, "want"):
            if name not in fetched and store.check([name]):
                put(came, name, store.get(name).decode("utf-8", "replace"))
                fetched.add(name)
        if last is not None and all(store.check([name]) for name in read(folder, "stop")):
            return
        if os.getppid() != parent:
            return
        time.sleep(POLL_S)


def read(folder: str, name: str) -> Any:
    """What a JSON file holds; nothing if it is not there."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def put(folder: str, name: str, text: str) -> None:
    """Write a file, whole or not at all."""
    draft = os.path.join(folder, f".{name}")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, os.path.join(folder, name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
