"""A study on real clients over Flower: the run is a ServerApp, a client's local round a ClientApp."""
