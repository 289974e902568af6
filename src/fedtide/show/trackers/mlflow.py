"""MLflow: a store in a database or on a server."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar

from fedtide.core.errors import ConfigError
from fedtide.show.trackers.base import Logbook, Tracked, Tracker

FLUSH = 2.0  # seconds after which waiting numbers are written
BATCH = 900  # numbers written at once; MLflow takes at most 1000


@dataclass(frozen=True, kw_only=True)
class MLflow(Tracker):
    """An MLflow store: a server or database, or mlflow.db in the study's folder."""

    packages: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy", "alembic")
    uri: str = ""  # empty: mlflow.db in the study's folder

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        uri = self.uri or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        try:
            return _Store(uri, study, source, folder)
        except Exception as error:  # of MLflow, SQLAlchemy or the network: they share no base class
            reason = str(error).strip().split("\n")[0]
            raise ConfigError(
                f"track.uri must be a store that MLflow can open. Got {uri} ({reason}). "
                "Correct the address."
            ) from error


class _Store(Logbook):
    def __init__(self, uri: str, study: str, source: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"mlflow\.")
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient

            # MLflow logs every table that it creates in a new database.
            logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
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
        """Write the waiting numbers of a run; a database takes many at once as quickly as one."""
        if self._waiting[page]:
            self._client.log_batch(page, metrics=self._waiting[page])
        self._waiting[page] = []
        self._written = monotonic()
