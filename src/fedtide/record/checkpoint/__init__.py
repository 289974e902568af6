"""Checkpoints: the state of a run after a round, so that a resumed run gives the same results.

    checkpoints/
        00000120.json          round 120: the values, and where their tensors are
        00000120.safetensors   the tensors that are new since the checkpoint before

Files are written under a temporary name, flushed to disk and renamed; a checkpoint exists once its JSON
file does. The last two are kept, each with a checksum of every file it needs: if the newest is damaged, the
other one is used. Random numbers need no state here, since each is a function of its address.

A run that has ended keeps a small checkpoint from before its last round, so that rounds can be added later.
The last round itself differs from others, because the model is always tested then.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

import torch

from fedtide.core.errors import OutputError, require
from fedtide.core.machine import processor
from fedtide.record.checkpoint.codec import Kinds, declared, pack, unpack
from fedtide.record.checkpoint.rows import NO_ROWS, Memories, RowTable
from fedtide.record.checkpoint.segments import Draft, Segments
from fedtide.record.files import write_bytes, writing
from fedtide.record.journal import Journal, Mark

FORMAT = 4
KEPT = 2  # checkpoints at a time
SMALL = 16 << 20  # bytes of the checkpoint that a finished run keeps


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """The [checkpoint] section of a study: how often a checkpoint is written.

    After so many `seconds` or `rounds`, whichever come first; 0 turns a rule off. A run that is asked to
    stop writes one, too. A run can be resumed on the same kind of `processor`, where its results are the
    same bit for bit, or on any.
    """

    seconds: float = 60.0
    rounds: int = 0
    processor: Literal["same", "any"] = "same"

    def __post_init__(self) -> None:
        require(self.seconds >= 0, "checkpoint.seconds", "zero or positive", self.seconds)
        require(self.rounds >= 0, "checkpoint.rounds", "zero or positive", self.rounds)
        known = self.processor in ("same", "any")
        require(known, "checkpoint.processor", "'same' or 'any'", self.processor)


class Stopped(Exception):
    """The run was asked to stop, for example by a signal, and did so after a whole round."""

    def __init__(self, signal: int = 0, folder: Path | None = None) -> None:
        super().__init__(signal)
        self.signal = signal
        self.folder = folder  # of the study


class Restored(NamedTuple):
    """What a checkpoint restores."""

    rounds: int  # that the run has completed
    state: Any
    journal: Mark


class Checkpoints:
    """Writes and restores the checkpoints of one run; without a folder it only stops the run when asked."""

    def __init__(
        self,
        folder: Path | None = None,
        pace: Checkpointing | None = None,
        stop: Callable[[], bool] = lambda: False,
        last: int = 0,
    ) -> None:
        """`last` are the completed rounds after which a run writes the checkpoint that it keeps."""
        self._folder, self._pace, self._stop = folder, pace or Checkpointing(), stop
        self._keep = last
        self._segments, self._rows = Segments(folder or Path()), NO_ROWS
        self._kinds: Kinds = {}
        self._last, self._time = 0, monotonic()  # round and time of the last checkpoint

    def begin(
        self,
        kinds: Kinds,
        memory: Memories,
        device: torch.device,
        made_with: str = "",
        target: str = "",
    ) -> Restored | None:
        """Restore the newest checkpoint that is undamaged; None if there is no checkpoint.

        `kinds` are the NamedTuples that states are made of: see codec.py. A run can be resumed only with
        the same torch, with what else it was `made_with`, such as a version of numba, and on the same kind
        of processor, of which `target` is the instruction set that code was compiled for.
        """
        self._made_with = f"{torch.__version__}{made_with}"
        self._processor = f"{processor(device)}{target}"
        self._kinds = {**kinds, **declared(RowTable)}
        found, problems = self._found(), []
        for path in found:
            try:
                kept, self._rows = self._read(path, memory, device)
            except (ValueError, KeyError, TypeError, IndexError, OSError, RecursionError) as error:
                problems.append(f"{path.name}: {error}")
                continue
            finally:
                self._segments.close()
            self._last = kept.rounds
            for damaged in found[: len(problems)]:  # else `_tidy` would keep them as the last ones
                damaged.unlink()
            return kept
        if problems:
            raise OutputError(
                f"{self._folder} must hold an undamaged checkpoint that fits the study. "
                f"Got {'; '.join(problems)}. To run from the first round on, remove that folder."
            )
        return None

    def after(self, rounds: int, state: Any, memory: Memories, journal: Journal) -> None:
        """After so many completed rounds: write a checkpoint if it is time, and stop if asked to."""
        stop, waited = self._stop(), monotonic() - self._time
        by_rounds = 0 < self._pace.rounds <= rounds - self._last
        by_clock = 0 < self._pace.seconds <= waited
        final = rounds == self._keep and _is_small(state, memory)
        if self._folder and (by_rounds or by_clock or stop or final) and rounds > self._last:
            self._save(self._folder, rounds, state, memory, journal, final)
            self._last, self._time = rounds, monotonic()
        if stop:
            raise Stopped

    def conclude(self) -> None:
        """Remove the checkpoints of a run that has finished, except a small one to add rounds to."""
        if not self._folder:
            return
        kept = self._folder / f"{self._keep:08}.json"
        if not (self._keep and kept.is_file()):
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for path in self._found():
            if path != kept:
                path.unlink()
        self._tidy()
        if sum(path.stat().st_size for path in self._folder.iterdir()) > SMALL:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def newest(self) -> int:
        """The completed rounds of the newest checkpoint; 0 if there is none."""
        return next((int(path.stem) for path in self._found()), 0)

    def _save(
        self,
        folder: Path,
        rounds: int,
        state: Any,
        memory: Memories,
        journal: Journal,
        anew: bool = False,
    ) -> None:
        """Write a checkpoint; one that is written `anew` needs no file of those before it."""
        with writing(folder):
            folder.mkdir(exist_ok=True)
            draft, rows, values = self._drafted(rounds, state, memory, anew)
            if not anew and self._segments.is_wasteful(draft):
                draft, rows, values = self._drafted(rounds, state, memory, anew=True)
            self._segments.write(draft)
            content = {
                "rounds": rounds,
                "torch": self._made_with,
                "processor": self._processor,
                "journal": journal.mark(),
                "values": values,
                "segments": self._segments.checksums(draft.segments),
            }
            body = json.dumps(content, allow_nan=False).encode()
            head = json.dumps({"format": FORMAT, "checksum": _digest(body)}).encode()
            write_bytes(folder / f"{rounds:08}.json", head + b"\n" + body + b"\n")
            self._rows = rows
            memory.settle()
            self._tidy()

    def _drafted(
        self, rounds: int, state: Any, memory: Memories, anew: bool = False
    ) -> tuple[Draft, RowTable, Any]:
        """The segment of a checkpoint, the places of clients' rows in it, and all values as JSON."""
        draft = self._segments.draft(rounds, anew)
        rows = self._rows.updated(draft, memory, self._kinds, anew)
        return draft, rows, pack((state, rows), self._kinds, draft.put)

    def _read(
        self, path: Path, memory: Memories, device: torch.device
    ) -> tuple[Restored, RowTable]:
        memory.clear()
        content = _content(path)
        if content["torch"] != self._made_with:
            raise ValueError(
                f"it was made with torch {content['torch']}, this is {self._made_with}"
            )
        self._check_processor(content["processor"])
        if content["segments"] != self._segments.checksums(set(map(int, content["segments"]))):
            raise ValueError("one of its files is damaged")
        state, rows = unpack(
            content["values"], self._kinds, lambda where: self._segments.get(where, device)
        )
        rows.restore(self._segments, memory, self._kinds, device)
        return Restored(content["rounds"], state, Mark(*content["journal"])), rows

    def _check_processor(self, made_on: str) -> None:
        if made_on != self._processor and self._pace.processor == "same":
            raise OutputError(
                f"{self._folder} must be resumed on the kind of processor that made it, {made_on}. Got "
                f"{self._processor}. Resume there, or add --set checkpoint.processor=any: then results agree "
                "within rounding, no longer bit for bit."
            )

    def _found(self) -> list[Path]:
        """The checkpoints, newest first."""
        return sorted(self._folder.glob("[0-9]*.json"), reverse=True) if self._folder else []

    def _tidy(self) -> None:
        """Remove files that none of the last checkpoints needs."""
        assert self._folder
        last = self._found()[:KEPT]
        needed = {path.name for path in last} | {
            self._segments.path(int(number)).name
            for path in last
            for number in _content(path)["segments"]
        }
        for path in self._folder.iterdir():
            if path.name not in needed:
                path.unlink()


def _is_small(state: Any, memory: Memories) -> bool:
    """Is it worth the time to write a checkpoint only to keep it?"""
    model = getattr(state, "model", None)
    size = model.x.numel() * model.x.element_size() if model else 0
    return bool(size * (1 + len(memory.clients)) <= SMALL)


def _content(path: Path) -> dict[str, Any]:
    """The JSON of a checkpoint, after its format and checksum were checked."""
    head, body = path.read_bytes().split(b"\n")[:2]
    known = json.loads(head)
    if known["format"] != FORMAT:
        raise ValueError(f"its format is {known['format']}, this version of FedTide reads {FORMAT}")
    if known["checksum"] != _digest(body):
        raise ValueError("it is damaged")
    content: dict[str, Any] = json.loads(body)
    return content


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
