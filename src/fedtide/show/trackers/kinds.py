"""The tools that can follow a study's runs, chosen by `track` in its file."""

from __future__ import annotations

import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar, NamedTuple

from fedtide.core.errors import ConfigError, needs
from fedtide.core.kinds import Kinds
from fedtide.record.folder import word

FLUSH = 2.0  # seconds after which what waits is written
BATCH = 900  # numbers at once; MLflow takes 1000


class Tracked(NamedTuple):
    """What a tracker is told about a run."""

    study: str
    label: str
    settings: Mapping[str, Any]
    seed: int
    rounds: int
    folder: Path  # the run's own

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def parameters(self) -> dict[str, Any]:
        """What differs from the study's other runs, in words."""
        return {**{key: word(value) for key, value in self.settings.items()}, "seed": self.seed}


class Logbook(ABC):
    """An open tracker: it begins, writes and ends runs, many at a time."""

    @abstractmethod
    def begin(self, run: Tracked) -> Any:
        """What `write` and `end` are given to know the run by."""

    @abstractmethod
    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of round t."""

    @abstractmethod
    def end(self, page: Any, finished: bool) -> None:
        """The run is over, or was cut short."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """The study is over."""


@dataclass(frozen=True, kw_only=True)
class Tracker(ABC):
    """A tool that follows runs; it must be installed when a study names it."""

    packages: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        needs(f"track: {type(self).__name__}", "track", *self.packages)

    @abstractmethod
    def open(self, study: str, source: str, folder: Path) -> Logbook:
        """Get ready to follow a study with this name, file and folder."""


@dataclass(frozen=True, kw_only=True)
class TensorBoard(Tracker):
    """Event files beside the journals: tensorboard --logdir runs/<study>."""

    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        return _Events(source)


class _Events(Logbook):
    def __init__(self, source: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter
        self._source = source

    def begin(self, run: Tracked) -> Any:
        # What an earlier process wrote of this run gives way: a resumed run tells all its rounds again.
        page = self._writer(run.folder, purge_step=0, flush_secs=int(FLUSH))
        page.add_text("study", "    " + self._source.replace("\n", "\n    "))  # indented: as it is
        return page

    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            page.add_scalar(name, value, t)

    def end(self, page: Any, finished: bool) -> None:
        page.close()


@dataclass(frozen=True, kw_only=True)
class MLflow(Tracker):
    """An MLflow store: a server or database, or mlflow.db in the study's folder."""

    packages: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy", "alembic")
    uri: str = ""  # empty: mlflow.db in the study's folder

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        uri = self.uri or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        try:
            return _Store(uri, study, source, folder)
        except Exception as error:  # MLflow's, SQLAlchemy's, the network's
            reason = str(error).strip().split("\n")[0]
            raise ConfigError(
                f"track.uri must be a store that MLflow can open. Got {uri} ({reason}). Mend the address."
            ) from error


class _Store(Logbook):
    def __init__(self, uri: str, study: str, source: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"mlflow\.")
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient

            logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # of new tables
            self._metric = Metric
            self._client = MlflowClient(uri)
            found = self._client.get_experiment_by_name(study)
        artifacts = (folder / "mlflow").resolve().as_uri()
        note = {"mlflow.note.content": f"```toml\n{source}\n```"}
        self._experiment = (
            found.experiment_id
            if found
            else self._client.create_experiment(study, artifacts, tags=note)
        )
        self._waiting: dict[str, list[Any]] = {}
        self._written = monotonic()

    def begin(self, run: Tracked) -> Any:
        page = self._client.create_run(self._experiment, run_name=run.name).info.run_id
        for name, value in run.parameters.items():
            self._client.log_param(page, name, value)
        self._waiting[page] = []
        return page

    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time())
        waiting = self._waiting[page]
        waiting += [self._metric(name, value, now, t) for name, value in numbers.items()]
        if len(waiting) + len(numbers) > BATCH or monotonic() - self._written > FLUSH:
            for other in self._waiting:
                self._flush(other)

    def end(self, page: Any, finished: bool) -> None:
        self._flush(page)
        del self._waiting[page]
        self._client.set_terminated(page, "FINISHED" if finished else "FAILED")

    def _flush(self, page: str) -> None:
        """A database takes many numbers at once as quickly as one."""
        if self._waiting[page]:
            self._client.log_batch(page, metrics=self._waiting[page])
        self._waiting[page] = []
        self._written = monotonic()


@dataclass(frozen=True, kw_only=True)
class WandB(Tracker):
    """Weights & Biases, offline: wandb sync runs/<study>/<number>/wandb/offline-run-* sends it later."""

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    project: str = ""  # empty: the study's name

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        return _Offline(self.project or study, folder)


class _Offline(Logbook):
    def __init__(self, project: str, folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb = wandb
        self._project = project
        self._folder = folder

    def begin(self, run: Tracked) -> Any:
        return self._wandb.init(
            mode="offline",
            dir=self._folder,
            project=self._project,
            group=run.label[:128],
            name=run.name,
            config=run.parameters,
            reinit="create_new",  # runs of a study go on side by side
            settings=self._wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        page.log(dict(numbers), step=t)

    def end(self, page: Any, finished: bool) -> None:
        page.finish(exit_code=0 if finished else 1)

    def close(self) -> None:
        self._wandb.teardown()


TRACKERS = Kinds(
    "trackers",
    Tracker,
    {
        "tensorboard": TensorBoard,
        "mlflow": MLflow,
        "wandb": WandB,
    },
)
