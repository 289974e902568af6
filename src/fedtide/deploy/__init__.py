"""A study on real clients: our loop inside a Flower ServerApp, our local round inside a ClientApp."""
