"""Whether a checkpoint is one that a running server can take, found without loading it.

Engines do not look: vLLM and SGLang keep the weights that a checkpoint lacks, and the config.json
that they were started with; and where a reload fails half-way, what they have is of nobody.
"""

import json
import sys
from pathlib import Path
from typing import Any

#: Fields of config.json that do not matter to an engine, or differ by who wrote them.
MAY_DIFFER = {
    "_name_or_path", "dtype", "pad_token_id", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip

Shapes = dict[str, list[int]]


class Unfit(Exception):
    """Says why."""


def check(folder: Path, served: Path) -> None:
    """`served` is the folder that the server has. Raises Unfit."""
    new = shapes(folder)
    if not served.is_absolute() or not (served / "config.json").is_file():
        print(f"{served} is not here: whether {folder} suits it is not checked", file=sys.stderr)
        return
    config, known = settings(folder), settings(served)
    for name in sorted(config.keys() & known.keys() - MAY_DIFFER):
        if config[name] != known[name]:
            raise Unfit(
                f"{folder}: {name} is {config[name]} in its config.json, and {known[name]} in "
                f"that of {served}, which the server keeps; start it on the new one"
            )
    old = shapes(served)
    if config.get("tie_word_embeddings"):  # then it may be there, and is not looked at
        for one in (old, new):
            one.pop("lm_head.weight", None)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise Unfit(
                f"{folder}: {name} is {new.get(name, 'missing')} in it, and "
                f"{old.get(name, 'missing')} in {served}, which the server has"
            )


def settings(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise Unfit(f"{folder}/config.json: {error}") from error
    return found


def shapes(folder: Path) -> Shapes:
    """By the names of its tensors. Raises Unfit, also where files are cut off."""
    found: Shapes = {}
    for path in files(folder):
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                tensors = json.loads(file.read(min(length, path.stat().st_size)))
            tensors.pop("__metadata__", None)
            end = max((one["data_offsets"][1] for one in tensors.values()), default=0)
            found |= {name: one["shape"] for name, one in tensors.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unfit(f"{path} is no file of safetensors: {error}") from error
        if path.stat().st_size != 8 + length + end:
            raise Unfit(f"{path} is cut off")
    return found


def files(folder: Path) -> list[Path]:
    """Those of its index, where it has one, as engines read them."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        found = sorted(folder.glob("*.safetensors"))
    else:
        try:
            names = set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unfit(f"{index}: {error}") from error
        found = [folder / name for name in sorted(names)]
    if not found:
        raise Unfit(f"{folder} has no *.safetensors in it")
    return found
