"""How results are shown: terminal, report, tables, figures, notebooks, trackers, a live page."""
