"""The journal: one JSON line per round, and nothing else decides what a report shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from fedtide.core.types import Ids, Plan, Session, Work

Line = dict[str, Any]


class Journal:
    """Keeps the rounds of a run in memory and, given a path, on disk as they happen."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: list[Line] = []
        self._file: TextIO | None = path.open("w", encoding="utf-8") if path else None

    def append(self, line: Mapping[str, Any]) -> None:
        self.lines.append(dict(line))
        if self._file:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file:
            self._file.close()


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
