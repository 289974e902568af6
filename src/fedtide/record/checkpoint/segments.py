"""The tensors of checkpoints, in safetensors files that are written once and never changed.

Most of a checkpoint of a long run is the same as in the one before: models of finished sessions, memories of
clients that did not take part. Each checkpoint adds one segment, a file with the tensors that are new, and
refers to older segments for the rest. Once more than half of the bytes in these are no longer needed,
everything is written anew into one segment.
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

Address = list[Any]  # of a tensor: its segment, its name there, and its storage (`_storage`)
SMALL = 2**20  # bytes that may be wasted in any case
MANY = 64  # segments that one checkpoint may refer to


class Known(NamedTuple):
    """A tensor whose content is in a segment, unless its version has changed since."""

    tensor: weakref.ref[Tensor]
    version: int
    address: Address

    def is_still(self, tensor: Tensor) -> bool:
        """Is this the same tensor, with its content unchanged?"""
        return self.tensor() is tensor and self.version == tensor._version


class Draft:
    """The segment of one checkpoint before it is written."""

    def __init__(self, number: int, known: Mapping[int, Known]) -> None:
        self.number = number
        self.tensors: dict[str, Tensor] = {}  # new ones, to be written
        self.known: dict[int, Known] = {}  # all of the checkpoint, by the identity of the object
        self.live = 0  # bytes that the checkpoint needs, in all segments
        self.segments: set[int] = set()  # that the checkpoint needs
        self._before = known

    def put(self, tensor: Tensor) -> Address:
        """Add a tensor, unless an older segment has it; returns its address."""
        name = id(tensor)
        if name not in self.known:
            old = self._before.get(name)
            if old is None or not old.is_still(tensor):
                address = [self.number, self.add(str(len(self.tensors)), tensor), _storage(tensor)]
                old = Known(weakref.ref(tensor), tensor._version, address)
            else:
                self.refer({old.address[0]}, tensor.nbytes)
            self.known[name] = old
        return self.known[name].address

    def add(self, name: str, tensor: Tensor) -> str:
        """Add a tensor under a name."""
        self.tensors[name] = tensor
        self.refer({self.number}, tensor.nbytes)
        return name

    def refer(self, segments: set[int], size: int) -> None:
        """Count bytes of these segments that the checkpoint needs."""
        self.segments |= segments
        self.live += size


class Segments:
    """The segments in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, Known] = {}
        self._checksums: dict[int, str] = {}
        self._open: dict[int, Any] = {}
        self._got: dict[tuple[int, str], Tensor] = {}

    def path(self, number: int) -> Path:
        return self._folder / f"{number:08}.safetensors"

    def draft(self, number: int, anew: bool = False) -> Draft:
        """The next segment, empty; with `anew` it takes tensors that older segments have, too."""
        return Draft(number, {} if anew else self._known)

    def is_wasteful(self, draft: Draft) -> bool:
        """Does the checkpoint need less than half of the bytes in its segments, or too many segments?"""
        older = draft.segments - {draft.number}
        size = sum(self.path(number).stat().st_size for number in older)
        size += sum(tensor.nbytes for tensor in draft.tensors.values())
        return size > 2 * draft.live + SMALL or len(older) >= MANY

    def write(self, draft: Draft) -> None:
        """Write a draft to disk."""
        path = self.path(draft.number)
        if draft.tensors:
            with replacing(path) as temporary:
                try:
                    save_file(_separate(draft.tensors), temporary)
                except SafetensorError as error:
                    raise OSError(str(error)) from error
            self._checksums[draft.number] = checksum(path)
        self._known = draft.known

    def checksums(self, numbers: Set[int]) -> dict[str, str]:
        """The checksums of these segments by number; each file is read once."""
        for number in numbers - self._checksums.keys():
            self._checksums[number] = checksum(self.path(number))
        return {str(number): self._checksums[number] for number in sorted(numbers)}

    def read(self, number: int, name: str) -> Tensor:
        """A tensor of a segment by name."""
        if type(number) is not int:  # it becomes part of a path
            raise ValueError(f"the number of a segment must be an integer, not {number!r}")
        if number not in self._open:
            try:
                self._open[number] = safe_open(self.path(number), framework="pt")
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{self.path(number).name} cannot be read ({error})") from error
        try:
            tensor: Tensor = self._open[number].get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{self.path(number).name} has no tensor {name!r}") from error
        # A copy in memory: the file may be removed, and its data are not aligned.
        return tensor.clone()

    def get(self, address: Address, device: torch.device) -> Tensor:
        """The tensor at an address, on its former storage; one object for each address."""
        number, name, storage = address
        if (number, name) not in self._got:
            tensor = self.read(number, name)
            if storage != "memory":
                tensor = on_disk(tensor) if storage == "disk" else tensor.to(device)
            self._known[id(tensor)] = Known(weakref.ref(tensor), tensor._version, address)
            self._got[number, name] = tensor
        return self._got[number, name]

    def close(self) -> None:
        """Close the files and forget the tensors that were read."""
        self._open.clear()
        self._got.clear()


def checksum(path: Path) -> str:
    """A checksum of the content of a file."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()[:32]


def _storage(tensor: Tensor) -> str:
    """Where the data of a tensor are: in memory, in a mapped file on disk, or on another device."""
    if tensor.device.type != "cpu":
        return "device"
    return "disk" if tensor.untyped_storage().filename else "memory"


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors requires them: on the CPU, contiguous, no two sharing memory."""
    separate: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        separate[name] = dense.clone() if place in seen else dense
        seen.add(place)
    return separate
