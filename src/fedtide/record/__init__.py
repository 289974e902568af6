"""What is kept of a run and of a study: journals, checkpoints, settings, folders."""
