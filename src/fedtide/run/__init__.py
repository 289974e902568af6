"""One run, and studies of many runs."""
