"""The exchange between the workers of ranks that torchrun or Slurm started as separate processes."""

from __future__ import annotations

import json
import os
import time

from _context import host_store
from _journal import RankJournal, tail
from _processes import Deadline

GATHER_S = 10.0
"""Seconds that another machine's ranks may take longer than ours to finish a variant."""


class Board:
    """The store at rank 0, through which all workers share their journals."""

    def __init__(self, order):
        """Reach rank 0's store, within the time that importing may take."""
        import datetime as dt

        import torch.distributed as dist

        self.order, self.own = order, order["ranks"][0]["rank"]
        self.others = [rank for rank in range(order["world"]) if rank != self.own]
        # Rank 0 may still be importing.
        timeout = dt.timedelta(seconds=order["imports_seconds"])
        store = host_store(dist, timeout, hosting=self.own == 0)
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store = dist.PrefixStore(f"envcheck.{restarts}", store)
        self.absent, self.posted, self.next_share = [], None, 0.0

    def all_ready(self, claim, variant):
        """Return whether all ranks are ready for a variant; if not, each rank's journal says why."""
        prefix = f"{claim['name']}.{variant}"
        self.store.set(f"{prefix}.ready.{self.own}", claim["skipped"].get(variant, ""))
        expected = {f"{prefix}.ready.{rank}": rank for rank in range(self.order["world"])}
        ready = self._wait(list(expected), 1.0 if self.absent else self.order["imports_seconds"])
        self.absent = [rank for key, rank in expected.items() if key not in ready]
        for rank in self.absent:
            self._journal(claim, variant, rank).note("absent")
        for key, why in ready.items():
            if why:
                self._journal(claim, variant, expected[key]).note("end", result="skip", why=why, call="")
        return not self.absent and not any(ready.values())

    def share_progress(self, journal, failed):
        """Post our rank's journal; return whether something failed, here (`failed`) or on another rank.

        The store is used at most every 0.2 s.
        """
        now = time.monotonic()
        if now < self.next_share:
            return failed
        self.next_share = now + 0.2
        text = self._record(journal)
        if text != self.posted:
            self.posted = text
            self.store.set(f"{journal.key}.record.{self.own}", text)
        return failed or self.store.check([f"{journal.key}.failed"])

    def announce_failure(self, journal):
        """Let the other ranks know that they wait in vain."""
        self.store.set(f"{journal.key}.failed", "")

    def gather(self, claim, variant):
        """Copy every rank's journal to every rank, by way of rank 0.

        Raises:
            ConnectionError: rank 0 does not answer.
        """
        journal = self._journal(claim, variant, self.own)
        self.store.set(f"{journal.key}.record.{self.own}", self._record(journal))
        self.store.set(f"{journal.key}.done.{self.own}", "")
        present = [rank for rank in self.others if rank not in self.absent]
        records = self._collect(journal, present) if self.own == 0 else self._receive(journal)
        for rank in present:
            other = self._journal(claim, variant, rank)
            record = json.loads(records.get(str(rank), records.get(rank, "{}")))
            with open(other.journal, "a") as lines:
                lines.write(record.get("journal", ""))
            with open(other.stacks, "w") as stacks:
                stacks.write(record.get("stack", ""))

    def _collect(self, own, present):
        """Return the records of all ranks that are present, and post them for the others; on rank 0."""
        done = self._wait([f"{own.key}.done.{rank}" for rank in present], GATHER_S)
        records = {0: self._record(own)}
        for rank in present:
            key = f"{own.key}.record.{rank}"
            records[rank] = self.store.get(key).decode() if self.store.check([key]) else "{}"
            if f"{own.key}.done.{rank}" not in done:
                self._journal(own.claim, own.variant, rank).note("lost")
        self.store.set(f"{own.key}.all", json.dumps(records))
        return records

    def _receive(self, own):
        """Return the records of all ranks as rank 0 posted them, keyed by the rank as text."""
        key = f"{own.key}.all"
        seconds = self.order["imports_seconds"] if self.absent else 2 * GATHER_S
        records = json.loads(self._wait([key], seconds).get(key, "null"))
        if records is None:
            raise ConnectionError("rank 0 no longer answers")
        return records

    def close(self):
        """Leave the store; rank 0 leaves last, because it may host the store."""
        self.store.set(f"left.{self.own}", "")
        if self.own == 0:
            self._wait([f"left.{rank}" for rank in self.others if rank not in self.absent], GATHER_S)

    def _wait(self, keys, seconds):
        """Return the texts of those keys that are set in time."""
        deadline, found = Deadline(seconds), {}
        while len(found) < len(keys):
            for key in keys:
                if key not in found and self.store.check([key]):
                    found[key] = self.store.get(key).decode()
            if deadline.past():
                break
            time.sleep(0.02)
        return found

    def _journal(self, claim, variant, rank):
        path = os.path.join(self.order["scratch"], f"rank-{rank}.jsonl")
        return RankJournal({**self.order, "rank": rank, "local_rank": 0, "journal": path}, claim, variant)

    def _record(self, journal):
        """Return the end of this variant's journal, and the stack traces of a rank that was late, as JSON."""
        lines = tail(journal.journal).splitlines(keepends=True)
        of_variant = [line for line in lines if f'"variant": {json.dumps(journal.variant)}' in line]
        return json.dumps({"journal": "".join(of_variant), "stack": tail(journal.stacks)})
