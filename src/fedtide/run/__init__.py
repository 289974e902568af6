"""One run, many runs."""
