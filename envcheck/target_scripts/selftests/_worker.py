"""Run self-tests. The target's interpreter runs this file; it imports nothing of envcheck.

    python _worker.py '{"claims": [{"test": "…/recompute_consistency.py", "variants": ["zero3-lora"], …}], …}'

A self-test is a file beside this one with a function `run(test, variant)`; `test` is a `TrainingContext` (see
`_training.py`). The results are journals (see `_journal.py`).

There are three generations of processes:

* The supervisor imports no library, so it always answers. It leaves no process behind, whatever happens to
  envcheck or to a library.
* Its child, the worker, imports the libraries once and runs variant after variant to its end.
* Every rank of a variant is a fork of the worker. On a CPU it inherits the imported libraries, which saves
  nearly all of its time. On CUDA nothing that touches a GPU happens before the fork.

The order in the argument is a JSON object:

* `claims`: each has `name`, `test` (path), `variants`, `imports` (modules to load before forking), `seconds`
  (deadline of one variant) and `skipped` (variant: why; only where ranks were started separately).
* `device`: "cpu" or "cuda"; `world`: the number of ranks; `gpus`: how many GPUs a program should see, or
  null.
* `ranks`: those of this machine, each with `rank`, `local_rank` and `journal` (path).
* `imports_seconds`: the time that importing may take.
* `parent`: a process id; `folder`: the folder of the run; `scratch`: this worker's folder in it. The
  supervisor creates both, and removes `folder` if the parent cannot.
* `rendezvous`: "file", or "env" where ranks were started separately.

Runs on Python 3.9 and later. Needs the standard library, and torch where a test uses it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import signal
import sys

_FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, _FOLDER)  # Python leaves it out under PYTHONSAFEPATH

from _outcome import signature  # noqa: E402
from _processes import (  # noqa: E402
    Deadline,
    ForkedProcess,
    adopt_orphans,
    die_with_parent,
    kill_descendants,
    wait_for_output,
)
from _ranks import run_variant  # noqa: E402
from _rendezvous import Board  # noqa: E402

NO_ROOM, LATE, CUT_OFF = 123, 124, 125
"""Exit codes of this process: its folder cannot be written, for the reason that it prints; importing outlived
its deadline; the other ranks cannot be reached."""


def main():
    """Start as the supervisor, or as a worker that has replaced itself (see `import_libraries`)."""
    order = json.loads(sys.argv[1])
    if order.get("guarded"):
        die_with_parent(order["parent"])
        run_claims(order, mmap.mmap(-1, 1))
        os._exit(0)
    supervise(order)


# --- the supervisor -----------------------------------------------------------------------------------


def supervise(order):
    """Start a worker, wait for its end, leave no process behind, and end with the worker's exit code.

    The worker is killed when SIGTERM arrives, when envcheck is gone, or when its imports outlive their
    deadline.
    """
    terminated = []
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    adopt_orphans()
    if os.getppid() != order["parent"]:  # envcheck is gone already
        os._exit(0)
    create_folders(order)
    supervisor, importing = os.getpid(), mmap.mmap(-1, 1)

    def work():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_claims({**order, "parent": supervisor, "guarded": True}, importing)

    worker = ForkedProcess(work)
    deadline, late = Deadline(order["imports_seconds"]), False
    while not (terminated or late or worker.ended()) and os.getppid() == order["parent"]:
        if not importing[0]:
            deadline = Deadline(order["imports_seconds"])
        late = deadline.past()
        wait_for_output([worker], 0.05)
    worker.kill()
    kill_descendants()
    if os.getppid() != order["parent"]:
        import shutil

        shutil.rmtree(order["folder"], ignore_errors=True)
    with contextlib.suppress(OSError):
        os.write(2, bytes(worker.printed))
    if late:
        os._exit(LATE)
    end_like(worker.status)


def create_folders(order):
    """Create the folder of the run and this worker's folder in it; exit with NO_ROOM if that fails."""
    room = os.path.join(order["scratch"], "room")
    try:
        with contextlib.suppress(FileExistsError):  # created by another worker of this run
            os.mkdir(order["folder"], 0o700)
        os.mkdir(order["scratch"], 0o700)
        with open(room, "wb") as file:
            file.write(bytes(1 << 16))
        os.unlink(room)
    except OSError as error:
        os.write(2, (error.strerror or str(error)).encode())
        os._exit(NO_ROOM)


def end_like(status):
    """End this process as a child ended: killed by the same signal, or with the same exit code."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


# --- the worker ---------------------------------------------------------------------------------------


def run_claims(order, importing):
    """Import the libraries and run variant after variant; `importing[0]` is 1 while importing."""
    adopt_orphans()
    # A self-test is named after its claim, but some library may look for a module of the same name.
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != _FOLDER]
    board = None
    while order["claims"]:
        claim = order["claims"][0]
        importing[0] = 1
        import_libraries(order, importing)
        importing[0] = 0
        if order["rendezvous"] == "env" and board is None:
            with exit_if_cut_off():
                board = Board(order)
        for variant in claim["variants"]:
            if board is None:
                run_variant(order, claim, variant, None)
            else:
                run_with_others(order, claim, variant, board)
        order["claims"] = order["claims"][1:]
    if board is not None:
        with contextlib.suppress(Exception):  # all results are written: a rank that is gone changes none
            board.close()


def run_with_others(order, claim, variant, board):
    """Run one variant on all ranks, of which only one is in this process, and gather their journals."""
    with exit_if_cut_off():
        if board.all_ready(claim, variant):
            run_variant(order, claim, variant, board)
        board.gather(claim, variant)


def import_libraries(order, importing):
    """Import what the first claim needs; if that fails, start this process again without any imports.

    Each test then imports for itself, so that the error is attributed to the test that needs the library.
    """
    try:
        for name in order["claims"][0]["imports"]:
            importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - an import may raise anything
        # A second import of a half-imported package fails with another error than the first.
        for claim in order["claims"]:
            claim["imports"] = []
        sys.stdout.flush()
        importing[0] = 0
        os.execv(sys.executable, [sys.executable, *command_line()[1:-1], json.dumps(order)])  # noqa: S606


def command_line():
    """Return the command line of this process; before Python 3.10 without the interpreter's own options."""
    return getattr(sys, "orig_argv", [sys.executable, *sys.argv])


@contextlib.contextmanager
def exit_if_cut_off():
    """End the worker with exit code CUT_OFF, and the error as its last output, if a rank is out of reach."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - torch raises its own class, and RuntimeError before 2.2
        sys.stderr.write(signature(error))
        sys.stderr.flush()
        os._exit(CUT_OFF)


if __name__ == "__main__":
    main()
