"""A local web page that follows studies while they run; it reads their folders and writes nothing."""

from fedtide.show.watch.server import serve

__all__ = ["serve"]
