"""A driver's half of the conversation: it trains as many rounds as it is asked for, then waits.

All drivers of a workload live side by side and take turns, so that a busy machine is busy for all of them.
"""

import json
import os
import sys
import time

from workloads import WORKLOADS, Workload


class Turns:
    """Call `done` after every round; it returns when another round is wanted."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a framework prints must not be taken for an answer
        self._seconds: list[float] = []
        self._wanted = 0

    @property
    def workload(self) -> Workload:
        """What this driver was asked to do."""
        return WORKLOADS[sys.argv[1]]

    def wait(self) -> None:
        """Until the next turn; at the end of all turns the process ends."""
        self._answers.write(json.dumps(self._seconds) + "\n")
        self._answers.flush()
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # some frameworks would take long to say goodbye
        self._wanted, self._seconds = int(line), []
        self._began = time.perf_counter()

    def done(self) -> None:
        """A round is over."""
        now = time.perf_counter()
        self._seconds.append(now - self._began)
        self._began = now
        if len(self._seconds) == self._wanted:
            self.wait()
