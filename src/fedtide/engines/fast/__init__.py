"""Fast paths of the engines."""
