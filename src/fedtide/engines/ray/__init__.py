"""The Ray engine: clients in actors of a Ray cluster."""
