"""What may go wrong, and what is done about it? Faults, attacks, robust aggregation, privacy."""
