"""Loads a checkpoint into a running SGLang server, for `penstock channels follow`.

    penstock channels follow production --exec 'python load.py' --check 'python load.py --check'

A whole checkpoint is a folder as the server was started on. A delta is a folder with a LoRA
adapter; that takes --enable-lora.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

SERVER = os.environ.get("SGLANG_URL", "http://127.0.0.1:30000")
#: Without one the server lets what is being generated end with the old weights. `retract` puts it
#: back into the queue, and it goes on with the new ones; `abort` cuts it off.
PAUSE = os.environ.get("SGLANG_PAUSE", "")
#: What requests call the adapter of a delta.
ADAPTER = os.environ.get("SGLANG_ADAPTER", "policy")
#: What the server calls its weights: the version of the channel, which only grows, and the name.
WEIGHTS = f"{os.environ['PENSTOCK_VERSION']}:{os.environ['PENSTOCK_CHECKPOINT']}"
SECONDS_MAX = float(os.environ.get("SGLANG_SECONDS_MAX", "1800"))


class Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def ask(path: str, body: object = None) -> dict[str, object]:
    """What the server answers to a POST, or without a body to a GET. Raises Refused."""
    content = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("SGLANG_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{SERVER}{path}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        why = error.read().decode(errors="replace")[:500]
        raise Refused(error.code, f"{path}: {error.code} {why}") from error
    except OSError as error:
        raise Refused(0, f"{path}: {error}") from error
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    if isinstance(found, dict) and found.get("success") is False:
        raise Refused(200, f"{path}: {found.get('message')}")
    return found if isinstance(found, dict) else {}


def load() -> None:
    whole, *deltas = [Path(one) for one in os.environ["PENSTOCK_CHAIN"].splitlines()]
    missing = os.environ["PENSTOCK_APPLY"].splitlines()
    if len(deltas) > 1:
        sys.exit(f"{WEIGHTS} is a delta on a delta, and SGLang applies one adapter to a request")
    for one in deltas:
        if not (one / "adapter_config.json").is_file():
            sys.exit(f"{one} is no LoRA adapter; this script knows no other deltas")
    if str(whole) in missing:
        update(whole)
    unload_adapter()
    for one in deltas:
        ask("/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": str(one)})
        # By itself this ends what is being generated.
        ask("/update_weight_version", {"new_version": WEIGHTS, "abort_all_requests": False})


def update(folder: Path) -> None:
    """Where it fails while the server is paused, it stays so: it may have a part of the weights."""
    if PAUSE:
        ask("/pause_generation", {"mode": PAUSE})
    ask(
        "/update_weights_from_disk",
        {"model_path": str(folder), "weight_version": WEIGHTS, "flush_cache": True},
    )
    if PAUSE:
        ask("/continue_generation", {})


def unload_adapter() -> None:
    """Whoever asks for it is to be refused, and not served by the checkpoint before."""
    try:
        ask("/unload_lora_adapter", {"lora_name": ADAPTER})
    except Refused as error:
        if error.status != 200 and not 400 <= error.status < 500:  # there is none
            raise


def check() -> None:
    """Ends with 1 where the server has something else: it was restarted."""
    try:
        found = ask("/model_info").get("weight_version")
    except Refused as error:  # it starts still, or hangs: to load would not help
        print(error, file=sys.stderr)
        return
    if found != WEIGHTS:
        sys.exit(f"the server has {found}")


if __name__ == "__main__":
    try:
        check() if "--check" in sys.argv[1:] else load()
    except Refused as error:
        sys.exit(str(error))
