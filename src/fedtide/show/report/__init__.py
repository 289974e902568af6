"""The report of a study: one HTML page; page.py puts it together."""
