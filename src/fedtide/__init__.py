"""FedTide: federated learning for populations of clients that come and go."""
