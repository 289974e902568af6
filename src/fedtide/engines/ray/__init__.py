"""The Ray engine."""
