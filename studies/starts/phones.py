"""Writes phones.csv: in which hours of a week 30 phones had wifi, from one-minute recordings of their state.

    FEDTIDE_DATA=<folder> python studies/starts/phones.py

A round is an hour, counted from the first midnight (UTC) of each phone's recording, so hours of the day agree
between phones. A phone is there in an hour with at least 20 minutes of wifi. Recordings: Vaizman et al.,
"Recognizing Detailed Human Context in the Wild from Smartphones and Smartwatches" (IEEE Pervasive Computing
2017), as published with FLASH.
"""

import csv
import gzip
import os
from collections import Counter
from itertools import groupby
from pathlib import Path

DAY, HOUR, WEEK, MINUTES = 86400, 3600, 168, 20
source = Path(os.environ["FEDTIDE_DATA"]) / "device_traces/extrasensory_30users_device_state.csv.gz"
with gzip.open(source, "rt") as file:
    states = [
        (int(row["user"]), int(row["timestamp"]), row["wifi"] == "reachable_via_wifi")
        for row in csv.DictReader(file)
    ]
first = {}
for user, second, _ in states:
    first[user] = min(first.get(user, second), second)
minutes = Counter(
    (user, (second - first[user] // DAY * DAY) // HOUR) for user, second, wifi in states if wifi
)
there = sorted(key for key, count in minutes.items() if count >= MINUTES and key[1] < WEEK)

with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["client", "arrive", "leave"])
    for (user, _), hours in groupby(enumerate(there), lambda e: (e[1][0], e[1][1] - e[0])):
        visit = [hour for _, (_, hour) in hours]
        out.writerow([user, visit[0], visit[-1] + 1])
