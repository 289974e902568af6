"""The journal: one JSON line per round, and nothing else decides what a report shows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

from fedtide.core.errors import OutputError
from fedtide.core.types import Ids, Plan, Session, Work
from fedtide.record.files import writing

Line = dict[str, Any]


class Mark(NamedTuple):
    """A place in a journal's file, and a checksum of everything before it."""

    bytes: int
    checksum: str


class Journal:
    """Keeps the rounds of a run in memory and, given a path, on disk as they happen.

    A journal that is not `fresh` keeps what is in its file until `rewind` says how much of it counts.
    """

    def __init__(self, path: Path | None = None, fresh: bool = True) -> None:
        self.lines: list[Line] = []
        self._path, self._size, self._hash = path, 0, blake2b(digest_size=16)
        self._file: IO[bytes] | None = None
        if path:
            with writing(self._path):
                mode = "wb" if fresh or not path.exists() else "r+b"
                self._file = path.open(mode, buffering=0)  # nothing waits that a crash could lose

    def append(self, line: Mapping[str, Any]) -> None:
        self.lines.append(dict(line))
        if self._file:
            with writing(self._path):
                self._write(json.dumps(line, allow_nan=False).encode() + b"\n")

    def rewind(self, mark: Mark | None) -> None:
        """Go on from this mark, or from the beginning; later lines are forgotten."""
        if not self._file:
            if mark:
                raise OutputError(
                    "A run that goes on must have its journal's file. Got a journal without one."
                )
            return
        with writing(self._path):
            self._file.seek(0)
            kept = self._file.read(mark.bytes) if mark else b""
        self._size, self._hash = len(kept), blake2b(kept, digest_size=16)
        if mark and mark != (self._size, self._hash.hexdigest()):
            raise OutputError(
                f"{self._path} must begin with the lines that the checkpoint counts on. Got others. "
                "Restore it, or run the study anew without --resume."
            )
        with writing(self._path):
            self._file.truncate(self._size)
            self._file.seek(self._size)
        self.lines = [json.loads(line) for line in kept.splitlines()]

    def mark(self) -> Mark:
        """Where the journal ends now; what is before is safe on disk."""
        if self._file:
            with writing(self._path):
                os.fsync(self._file.fileno())
        return Mark(self._size, self._hash.hexdigest())

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, content: bytes) -> None:
        assert self._file
        left = memoryview(content)
        while left:  # a disk that is nearly full takes a part
            left = left[self._file.write(left) :]
        self._size += len(content)
        self._hash.update(content)


def described(t: int, session: Session, asked: Ids, plan: Plan, work: Work, lr: float) -> Line:
    """The line of a round before it is trained and evaluated."""
    ids = asked[plan.able]
    return {
        "t": t,
        "session": session.number,
        "round_in_session": t - session.first,
        "population": len(session.clients),
        "cohort": len(ids),
        "absent": len(asked) - len(ids),  # drawn, but could not take part
        "clients": ids.tolist(),
        "stragglers": asked[
            ~plan.able & (work.steps > 0)
        ].tolist(),  # had data, could not afford it
        "accuracy": None,
        "loss": None,
        "train_accuracy": None,
        "train_loss": None,
        "lr": lr,
        "steps": int(plan.steps[plan.able].sum()),
        "bytes_down": len(ids) * work.bytes_down,
        "bytes_up": len(ids) * work.bytes_up,
        "latency": plan.latency,  # simulated seconds
        "joules": float(plan.joules.sum()),
        **by_phase(plan),
    }


def by_phase(plan: Plan) -> Line:
    """What the clients of a round spent receiving, computing and sending, if the network tells."""
    if plan.seconds_by is None or plan.joules_by is None:
        return {}
    begun = plan.seconds > 0
    return {
        "seconds_by_phase": {  # mean over those who began
            name: float(part[begun].mean()) if begun.any() else 0.0
            for name, part in plan.seconds_by._asdict().items()
        },
        "joules_by_phase": {
            name: float(part.sum()) for name, part in plan.joules_by._asdict().items()
        },
    }


def answered(line: Line, ids: Ids, work: Work) -> Line:
    """The line when these clients have answered; the others are counted as lost."""
    lost = line["cohort"] - len(ids)
    if not lost:
        return line
    back = {"cohort": len(ids), "clients": ids.tolist(), "bytes_up": len(ids) * work.bytes_up}
    return line | back | {"lost": lost}


def charged(line: Line, bill: Mapping[str, Any]) -> Line:
    """The line with the costs of what a start made clients do before the round."""
    return line | {name: line.get(name, 0) + cost for name, cost in bill.items()}


def read(path: Path) -> list[Line]:
    """The lines of a journal; a last line cut short by a crash is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
