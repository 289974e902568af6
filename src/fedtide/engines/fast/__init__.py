"""Fast paths of the engines: closed forms, compiled kernels, layers that work in place."""
