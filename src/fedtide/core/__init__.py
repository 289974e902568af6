"""The types and helpers that all other rooms share; imports no other room."""
