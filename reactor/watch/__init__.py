"""Told when something in a directory changes: the trio side of watchfiles.

A directory is watched, never a file: a ConfigMap swap and a plain rename put another inode under the name, and a watch
on the old one hears nothing more. What changed is not told, for the kinds of events differ from one way of writing to
the next and arrive without order; whoever is woken looks for itself.
"""

from reactor.watch.directory import watch
from reactor.watch.mounts import is_mount_point

__all__ = ["is_mount_point", "watch"]
