"""Archives in folders: the models of earlier sessions, from which a later run may go on.

    <folder>/0000.safetensors ...       one model per session, with its gradient if the start computed one
    <folder>/current-0007.safetensors   the model that the run ended with, after session 7
    <folder>/pilot.safetensors          the pilot model, if the start has one
    <folder>/archive.json               written last: number, clients and training accuracy of each session

Without archive.json, every safetensors file is the model of one session, in the order of their names, and the
last one is the current model. So models of any origin may be put into a folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedtide.core.errors import ConfigError, require
from fedtide.core.layout import Layout
from fedtide.core.types import Model, Nothing
from fedtide.record.files import write_bytes, write_text
from fedtide.starts.archive import NONE, Archive, Past

ABOUT = "archive.json"
FORMAT = 1  # of archive.json
GRADIENT = "gradient/"  # before the names of the parameters


class StoredArchive(NamedTuple):
    """What a run needs to go on where another one ended."""

    archive: Archive
    number: int  # of the last session
    model: Model  # that the earlier run ended with


def write_archive(folder: Path, stored: StoredArchive, layout: Layout) -> None:
    """Write an archive, or bring an older one of the same sessions up to date.

    It counts once archive.json is there, so that a crash at any moment leaves the older one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, sessions = stored.archive, []
    for past in archive.past:
        name = f"{past.session:04}.safetensors"
        _write(folder / name, past.model, layout, past.gradient)
        sessions.append(
            {
                "file": name,
                "session": past.session,
                "credit": past.credit,
                "clients": past.clients.tolist(),
            }
        )
    if not isinstance(archive.pilot, Nothing):
        _write(folder / "pilot.safetensors", archive.pilot, layout)
    current = f"current-{stored.number:04}.safetensors"
    _write(folder / current, stored.model, layout)
    about = {"format": FORMAT, "number": stored.number, "current": current, "sessions": sessions}
    _conclude(folder, json.dumps(about, indent=2), current)


def copy_archive(source: Path, folder: Path) -> None:
    """Bring an archive up to date with another one, which went on from it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.safetensors"):
        write_bytes(folder / path.name, path.read_bytes())
    about = (source / ABOUT).read_text(encoding="utf-8")
    _conclude(folder, about, json.loads(about)["current"])


def _conclude(folder: Path, about: str, current: str) -> None:
    """Make the archive count, and remove the current models of older ones."""
    write_text(folder / ABOUT, about)
    for older in folder.glob("current-*.safetensors"):
        if older.name != current:
            older.unlink()


def read_archive(folder: Path, like: Model, layout: Layout) -> StoredArchive:
    """The archive in a folder, whose models must have the shape of `like`."""
    about = folder / ABOUT
    if not about.exists():
        return _own_models(folder, like, layout)
    try:
        told = json.loads(about.read_text(encoding="utf-8"))
        sessions = [
            (
                str(one["file"]),
                int(one["session"]),
                float(one["credit"]),
                np.array(one["clients"], dtype=np.int64),
            )
            for one in told["sessions"]
        ]
        number, current = int(told["number"]), folder / str(told["current"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _wrong(about, f"{type(error).__name__}: {error}") from error
    if told.get("format") != FORMAT or number < 0:
        raise _wrong(about, f"format {told.get('format')}, session {number}")
    past = tuple(
        Past(session, *_read(folder / file, like, layout), credit, clients)
        for file, session, credit, clients in sessions
    )
    pilot = folder / "pilot.safetensors"
    model, _ = _read(current, like, layout)
    first = _read(pilot, like, layout)[0] if pilot.exists() else Nothing()
    return StoredArchive(Archive(first, past), number, model)


def _own_models(folder: Path, like: Model, layout: Layout) -> StoredArchive:
    inner = folder / "archive"
    if (inner / ABOUT).exists():  # a run's folder
        raise ConfigError(
            f"start.archive must be the archive of an earlier run. Got {str(folder)!r}, the folder of a run. "
            f"Write {str(inner)!r}."
        )
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ConfigError(
            f"start.archive must be a folder with safetensors files, such as the archive of an earlier run. "
            f"Got {str(folder)!r}, which has none. Check the path, as seen from where fedtide runs."
        )
    written = [path.name for path in paths if path.name.startswith(("current-", "pilot."))]
    if written:
        raise _wrong(folder, f"{written[0]}, which belongs to an archive, without its {ABOUT}")
    past = tuple(Past(number, *_read(path, like, layout)) for number, path in enumerate(paths))
    return StoredArchive(Archive(past=past), len(past) - 1, past[-1].model)


def _write(path: Path, model: Model, layout: Layout, gradient: Tensor = NONE) -> None:
    """Write a model, and a gradient if there is one, by parameter name."""
    tensors = {**layout.unpack(model.x), **model.buffers}
    if gradient.numel():
        tensors |= {GRADIENT + name: part for name, part in layout.unpack(gradient).items()}
    write_bytes(
        path, save({name: part.detach().cpu().contiguous() for name, part in tensors.items()})
    )


def _read(path: Path, like: Model, layout: Layout) -> tuple[Model, Tensor]:
    """A model and its gradient, empty if the file has none."""
    try:
        stored: Mapping[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _wrong(path, str(error)) from error
    parameters = layout.unpack(like.x)
    wanted: dict[str, Any] = {**parameters, **like.buffers}
    misfits = [n for n in wanted if n not in stored or stored[n].shape != wanted[n].shape]
    misfits += [n for n in stored if n.removeprefix(GRADIENT) not in wanted]
    require(
        not misfits,
        "start.archive",
        "a folder with models of this study's shape",
        str(path),
        f"{len(misfits)} tensors do not fit, the first is {(misfits or [''])[0]!r}.",
    )
    found = {name: stored[name].to(wanted[name]) for name in wanted}
    is_finite = all(bool(torch.isfinite(found[name]).all()) for name in parameters)
    require(is_finite, "start.archive", "a folder with models of finite numbers", str(path))
    gradient = NONE
    if GRADIENT + layout.names[0] in stored:
        parts = {name: stored.get(GRADIENT + name) for name in layout.names}
        whole = {n: p for n, p in parts.items() if p is not None and p.shape == parameters[n].shape}
        must = "a folder whose gradients have the shape of this study's model"
        require(len(whole) == len(parts), "start.archive", must, str(path))
        gradient = layout.pack(whole).to(like.x)
    buffers = {name: found[name] for name in like.buffers}
    return Model(layout.pack(found), buffers), gradient


def _wrong(path: Path, got: str) -> ConfigError:
    first = got.splitlines()[0] if got else "an empty file"
    return ConfigError(
        f"start.archive must be a folder that an earlier run has written. Got {str(path)!r}: {first}. "
        "Name another folder, or leave start.archive out."
    )
