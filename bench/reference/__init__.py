"""The pages of docs/reference, made from the code: `make docs`."""

from pathlib import Path


def template(name: str) -> str:
    """What people wrote of a page: its beginning, or all but its lists."""
    return (Path(__file__).parent / f"{name}.template").read_text(encoding="utf-8")
