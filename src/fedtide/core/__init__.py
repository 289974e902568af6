"""The nouns of the house; imports nothing of ours."""
