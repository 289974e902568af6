"""Tensors in safetensors files that are written once: what has not changed stays where it is.

A checkpoint of a long run is mostly what the last one held: an archive of finished sessions, the memories
of clients that did not take part. Each checkpoint adds one segment with what is new and refers to older
ones for the rest. Once more than half of what is kept has become useless, everything is written anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Set
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedtide.record.files import replacing
from fedtide.starts.archive import on_disk

Address = list[Any]  # of a tensor: its segment, its name there, and what it lay on
SMALL = 2**20  # bytes; below this nothing is worth being tidied up
MANY = 64  # segments of one checkpoint


class Known(NamedTuple):
    """A tensor whose content is in a segment, as long as it has this version."""

    tensor: weakref.ref[Tensor]
    version: int
    address: Address

    def still(self, tensor: Tensor) -> bool:
        """Is it this tensor, unchanged?"""
        return self.tensor() is tensor and self.version == tensor._version


class Draft:
    """The segment of one checkpoint while it is put together."""

    def __init__(self, number: int, known: Mapping[int, Known]) -> None:
        self.number = number
        self.tensors: dict[str, Tensor] = {}  # to be written
        self.known: dict[int, Known] = {}  # of the whole checkpoint, by identity
        self.live = 0  # bytes of the whole checkpoint
        self.segments: set[int] = set()  # that it needs
        self._before = known

    def put(self, tensor: Tensor) -> Address:
        """Keep a tensor, unless it is kept already; its address."""
        name = id(tensor)
        if name not in self.known:
            old = self._before.get(name)
            if old is None or not old.still(tensor):
                address = [self.number, self.add(str(len(self.tensors)), tensor), _ground(tensor)]
                old = Known(weakref.ref(tensor), tensor._version, address)
            else:
                self.refer({old.address[0]}, tensor.nbytes)
            self.known[name] = old
        return self.known[name].address

    def add(self, name: str, tensor: Tensor) -> str:
        """Keep a tensor under a name."""
        self.tensors[name] = tensor
        self.refer({self.number}, tensor.nbytes)
        return name

    def refer(self, segments: set[int], size: int) -> None:
        """So many bytes of these segments are needed."""
        self.segments |= segments
        self.live += size


class Segments:
    """The segments of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, Known] = {}
        self._checksums: dict[int, str] = {}
        self._open: dict[int, Any] = {}
        self._got: dict[tuple[int, str], Tensor] = {}

    def path(self, number: int) -> Path:
        return self._folder / f"{number:08}.safetensors"

    def draft(self, number: int, anew: bool = False) -> Draft:
        """The next segment; `anew` writes what is known already once more."""
        return Draft(number, {} if anew else self._known)

    def is_wasteful(self, draft: Draft) -> bool:
        """Is more than half of what this checkpoint needs useless to it, or too much in pieces?"""
        older = draft.segments - {draft.number}
        size = sum(self.path(number).stat().st_size for number in older)
        size += sum(tensor.nbytes for tensor in draft.tensors.values())
        return size > 2 * draft.live + SMALL or len(older) >= MANY

    def write(self, draft: Draft) -> None:
        """Bring a draft to the disk."""
        path = self.path(draft.number)
        if draft.tensors:
            with replacing(path) as temporary:
                try:
                    save_file(_apart(draft.tensors), temporary)
                except SafetensorError as error:
                    raise OSError(str(error)) from error
            self._checksums[draft.number] = checksum(path)
        self._known = draft.known

    def checksums(self, numbers: Set[int]) -> dict[str, str]:
        """What is in these segments, in short; each is read once."""
        for number in numbers - self._checksums.keys():
            self._checksums[number] = checksum(self.path(number))
        return {str(number): self._checksums[number] for number in sorted(numbers)}

    def read(self, number: int, name: str) -> Tensor:
        """A tensor by name."""
        if type(number) is not int:  # it becomes a part of a path
            raise ValueError(f"a segment has a number, not {number!r}")
        if number not in self._open:
            try:
                self._open[number] = safe_open(self.path(number), framework="pt")
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{self.path(number).name} cannot be read ({error})") from error
        try:
            tensor: Tensor = self._open[number].get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{self.path(number).name} has no tensor {name!r}") from error
        return (
            tensor.clone()
        )  # in memory of its own: a file may end or move, and is aligned otherwise

    def get(self, address: Address, device: torch.device) -> Tensor:
        """The tensor at an address, on what it lay on; the same one where the same one was kept."""
        number, name, ground = address
        if (number, name) not in self._got:
            tensor = self.read(number, name)
            if ground != "memory":
                tensor = on_disk(tensor) if ground == "disk" else tensor.to(device)
            self._known[id(tensor)] = Known(weakref.ref(tensor), tensor._version, address)
            self._got[number, name] = tensor
        return self._got[number, name]

    def close(self) -> None:
        """Let go of what was opened and read."""
        self._open.clear()
        self._got.clear()


def checksum(path: Path) -> str:
    """A number that stands for the content of a file."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()[:32]


def _ground(tensor: Tensor) -> str:
    """What a tensor lies on: memory, a mapped file, or another device."""
    if tensor.device.type != "cpu":
        return "device"
    return "disk" if tensor.untyped_storage().filename else "memory"


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors wants them: on the CPU, solid, and no two in one piece of memory."""
    apart: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        solid = tensor.detach().cpu().contiguous()
        place = solid.untyped_storage().data_ptr()
        apart[name] = solid.clone() if place in seen else solid
        seen.add(place)
    return apart
