"""Directories that a power loss does not take back."""

import os
from pathlib import Path


def make_directory(path: Path) -> None:
    """With those above that are missing."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """The names in it, as they are now, are on disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
