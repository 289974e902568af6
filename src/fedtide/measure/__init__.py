"""Numbers about rounds, runs and studies: metrics, probes, results."""
