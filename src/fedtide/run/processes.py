"""The same work in parallel processes, which stop together and never outlive the one that started them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from fedtide.core.errors import EngineError
from fedtide.record.checkpoint import Stopped

Stop = Callable[[], bool]  # asked after every round
Done = TypeVar("Done")

PATIENCE = 0.2  # seconds between two looks at whether to stop


class _Channel(NamedTuple):
    """How a worker process and its parent exchange messages."""

    news: SimpleQueue[Any]  # None: no more
    stop: Event  # set when all should stop after their round


_channel: _Channel | None = None  # set in a worker process
_signals: list[int] = []  # signals that came to it


def _prepare_worker(channel: _Channel) -> None:
    """Set up a worker: ignore Ctrl-C, which the parent handles, and exit when the parent dies."""
    global _channel
    _channel = channel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: _signals.append(number))
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)  # the parent is gone; files on disk are whole


def _work(work: Callable[..., Done], task: tuple[Any, ...]) -> Done | None:
    """One task in a worker process; None if it stopped because it was asked to."""
    assert _channel is not None
    news, stop = _channel
    try:
        return work(*task, news.put, lambda: bool(_signals) or stop.is_set())
    except Stopped:
        return None


class Workers:
    """Processes that stay for several calls."""

    def __init__(self, pool: ProcessPoolExecutor, channel: _Channel, jobs: int, stop: Stop) -> None:
        self._pool, self._channel, self._jobs, self._stop = pool, channel, jobs, stop

    def __call__(self, work: Callable[..., Done], tasks: Sequence[tuple[Any, ...]]) -> list[Done]:
        """`work(*task, watch, stop)` for every task, in order."""
        try:
            results = _results(self._pool, work, tasks, self._channel, self._stop)
        except BrokenProcessPool as error:
            raise EngineError(
                f"--jobs must be few enough for this machine's memory. Got {self._jobs}, and one of them "
                "died. Try --jobs 1 --resume."
            ) from error
        if len(results) < len(tasks):
            raise Stopped
        return results


@contextmanager
def workers(jobs: int, watch: Callable[[Any], None], stop: Stop) -> Iterator[Workers]:
    """So many processes.

    Progress reaches `watch` from a thread. Once `stop` is true, or a task has failed, all tasks are asked to
    stop after their round; `Stopped` is raised if one did.
    """
    context = get_context("spawn")
    channel = _Channel(context.SimpleQueue(), context.Event())
    with (
        _listening(channel, watch),
        ProcessPoolExecutor(
            jobs, context, initializer=_prepare_worker, initargs=(channel,)
        ) as pool,
    ):
        yield Workers(pool, channel, jobs, stop)


def in_processes(
    work: Callable[..., Done],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int,
    watch: Callable[[Any], None],
    stop: Stop,
) -> list[Done]:
    """`work(*task, watch, stop)` for every task, in so many processes: see `workers`."""
    with workers(jobs, watch, stop) as crew:
        return crew(work, tasks)


def _results(
    pool: ProcessPoolExecutor,
    work: Callable[..., Done],
    tasks: Sequence[tuple[Any, ...]],
    channel: _Channel,
    stop: Stop,
) -> list[Done]:
    """The results of all tasks that were not stopped, in order."""
    futures = [pool.submit(_work, work, task) for task in tasks]
    try:
        _wait(futures, channel, stop)
    except BaseException:  # the others stop after their round
        channel.stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    return [done for future in futures if (done := future.result()) is not None]


@contextmanager
def _listening(channel: _Channel, watch: Callable[[Any], None]) -> Iterator[None]:
    """Pass progress on to `watch` while tasks run; an exception of `watch` stops them and is raised."""
    problems: list[Exception] = []

    def listen() -> None:
        for progress in iter(channel.news.get, None):
            try:
                watch(progress)
            except Exception as error:  # raised below: a worker must not wait for a full queue
                problems.append(error)
                channel.stop.set()

    listener = Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        channel.news.put(None)
        listener.join()
        if problems:
            raise problems[0]


def _wait(futures: list[Future[Any]], channel: _Channel, stop: Stop) -> None:
    """Wait for all tasks, pass on a request to stop, and raise the first error."""
    rest = set(futures)
    while rest:
        done, rest = wait(rest, timeout=PATIENCE, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if stop():
            channel.stop.set()
