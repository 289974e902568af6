"""The same work on the machines of a Ray cluster. Files travel as bytes, so they need not share a disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import ray
from ray import cloudpickle
from ray.exceptions import RayTaskError, WorkerCrashedError

from fedtide.core.errors import EngineError, FedTideError
from fedtide.record.checkpoint import Stopped
from fedtide.record.files import write_bytes, writing
from fedtide.run.processes import Stop

Done = TypeVar("Done")
Files = dict[str, bytes]  # by their place in a folder

PATIENCE = 0.2  # seconds between two looks at progress


class Job(NamedTuple):
    """A call `work(*before, folder, *after, watch, stop)`; its files are at `place` in the folder."""

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    place: str


class Mailbox:
    """An actor that collects the progress of all jobs and tells them whether to stop."""

    def __init__(self) -> None:
        self._news: list[Any] = []
        self._stop = False

    def tell(self, news: Any) -> None:
        self._news.append(news)

    def collect(self) -> list[Any]:
        news, self._news = self._news, []
        return news

    def stop(self) -> None:
        self._stop = True

    def is_stopped(self) -> bool:
        return self._stop


def run_remotely(
    paths: Sequence[str], payload: bytes, files: Files, mailbox: Any
) -> tuple[Any, Files]:
    """Run one job on another machine; returns its result, None if it was stopped, and its files."""
    sys.path.extend(path for path in paths if path not in sys.path)  # of a user's own classes
    work, job = cloudpickle.loads(payload)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, files)
        try:
            done = work(
                *job.before,
                folder,
                *job.after,
                lambda news: mailbox.tell.remote(news),
                lambda: ray.get(mailbox.is_stopped.remote()),
            )
        except Stopped:
            done = None
        return done, read_files(folder, job.place)


def on_ray(
    work: Callable[..., Done],
    jobs: Sequence[Job],
    folder: Path,
    cpus: int,
    watch: Callable[[Any], None],
    stop: Stop,
) -> list[Done]:
    """Run every job in a process of the cluster with so many CPUs, as many at once as there is room for.

    Once `stop` is true, jobs are asked to stop, and `Stopped` is raised. If a job fails, the others end.
    """
    mailbox: Any = ray.remote(Mailbox).options(num_cpus=0).remote()
    task: Any = ray.remote(run_remotely).options(num_cpus=cpus, max_retries=0)
    waiting = {}
    for number, job in enumerate(jobs):
        files = read_files(folder, job.place)
        payload = cloudpickle.dumps((work, job))  # type: ignore[no-untyped-call]
        waiting[task.remote(sys.path, payload, files, mailbox)] = number
    results: dict[int, Done] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=PATIENCE)
            for news in ray.get(mailbox.collect.remote()):
                watch(news)
            if stop():
                mailbox.stop.remote()
            for reference in ready:
                number = waiting.pop(reference)
                done, files = _brought(reference)
                put_back(folder, jobs[number].place, files)
                if done is not None:
                    results[number] = done
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        ray.kill(mailbox)
    if len(results) < len(jobs):
        raise Stopped
    return [results[number] for number in range(len(jobs))]


def _brought(reference: Any) -> tuple[Any, Files]:
    try:
        brought: tuple[Any, Files] = ray.get(reference)
        return brought
    except RayTaskError as error:
        if isinstance(error.cause, FedTideError):
            raise error.cause from error
        raise
    except WorkerCrashedError as error:
        raise EngineError(
            "--ray: a run must survive on its machine. Got one whose process died, for lack of memory "
            "perhaps. What has ended is kept: go on with --resume."
        ) from error


def read_files(folder: Path, place: str) -> Files:
    """All files at a place of a folder."""
    found: Iterable[Path] = sorted((folder / place).rglob("*"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in found if file.is_file()}


def write_files(folder: Path, files: Files) -> None:
    """These files, each whole or not at all."""
    for name, content in files.items():
        path = folder / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)


def put_back(folder: Path, place: str, files: Files) -> None:
    """Replace the files of a job by those that it returns; run.json, the mark of a finished run, is last."""
    last = sorted(files, key=lambda name: Path(name).name == "run.json")
    write_files(folder, {name: files[name] for name in last})
    for path in sorted(
        (folder / place).rglob("*"), reverse=True
    ):  # files before the folder that holds them
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
