"""What one client does in a round."""
