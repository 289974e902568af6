"""Writes phones.csv: when 30 phones took part in a study, with the real dates of their recordings.

    FEDTIDE_DATA=<folder> python studies/populations/phones.py

A visit is a stretch of recorded minutes without a gap of more than a day; those of less than ten minutes are
left out. Recordings: Vaizman et al., "Recognizing Detailed Human Context in the Wild from Smartphones and
Smartwatches" (IEEE Pervasive Computing 2017), as published with FLASH.
"""

import csv
import gzip
import os
from datetime import UTC, datetime
from pathlib import Path

GAP, LEAST = 86400, 600  # seconds
source = Path(os.environ["FEDTIDE_DATA"]) / "device_traces/extrasensory_30users_device_state.csv.gz"
seconds: dict[int, list[int]] = {}
with gzip.open(source, "rt") as file:
    for row in csv.DictReader(file):
        seconds.setdefault(int(row["user"]), []).append(int(row["timestamp"]))

visits = []
for user, times in seconds.items():
    times.sort()
    begin = last = times[0]
    for time in [*times[1:], float("inf")]:
        if time - last > GAP:
            visits.append((begin, last + 60, f"phone-{user:02}"))
            begin = time
        last = time

with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["client", "arrive", "leave"])
    for begin, end, phone in sorted(visits):
        if end - begin >= LEAST:
            dates = (f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}" for t in (begin, end))
            out.writerow([phone, *dates])
