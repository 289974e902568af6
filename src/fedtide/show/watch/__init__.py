"""A local web page that follows studies while they run; it only reads their folders."""

from fedtide.show.watch.server import serve

__all__ = ["serve"]
