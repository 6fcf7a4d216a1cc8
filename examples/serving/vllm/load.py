"""Loads a checkpoint into a running vLLM server, for `penstock channels follow`.

    penstock channels follow production --exec 'python load.py' --check 'python load.py --check'

The server runs with VLLM_SERVER_DEV_MODE=1, reachable from nowhere but here: its development
endpoints let anyone do anything. A whole checkpoint is a folder as the server was started on. A
delta is a folder with a LoRA adapter; that takes --enable-lora and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

SERVER = os.environ.get("VLLM_URL", "http://127.0.0.1:8000")
#: `wait` lets what is being generated end with the old weights; `keep` freezes it, and it goes on
#: with the new ones; `abort` cuts it off.
PAUSE = os.environ.get("VLLM_PAUSE", "wait")
#: What requests call the adapter of a delta.
ADAPTER = os.environ.get("VLLM_ADAPTER", "policy")
#: What the server calls its weights: the version of the channel, which only grows, and the name.
WEIGHTS = f"{os.environ['PENSTOCK_VERSION']}:{os.environ['PENSTOCK_CHECKPOINT']}"
SECONDS_MAX = float(os.environ.get("VLLM_SECONDS_MAX", "1800"))


class Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def ask(path: str, body: object = None, method: str = "POST", **query: str) -> dict[str, object]:
    """What the server answers, where that is JSON. Raises Refused."""
    url = f"{SERVER}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    content = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("VLLM_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, content, headers, method=method)
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
    return found if isinstance(found, dict) else {}


def load() -> None:
    """Whatever goes wrong after the pause, the server stays paused: it may have a part of the
    weights, and the next try goes on from there."""
    whole, *deltas = [Path(one) for one in os.environ["PENSTOCK_CHAIN"].splitlines()]
    missing = os.environ["PENSTOCK_APPLY"].splitlines()
    if len(deltas) > 1:
        sys.exit(f"{WEIGHTS} is a delta on a delta, and vLLM applies one adapter to a request")
    for one in deltas:
        if not (one / "adapter_config.json").is_file():
            sys.exit(f"{one} is no LoRA adapter; this script knows no other deltas")
    if str(whole) in missing:
        ask("/pause", mode=PAUSE)
        ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(whole)}})
        ask("/reset_prefix_cache", reset_running_requests="true")
        name_weights()
        ask("/resume")
    if not deltas:
        unload_adapter()
    for one in deltas:
        ask(
            "/v1/load_lora_adapter",
            {"lora_name": ADAPTER, "lora_path": str(one), "load_inplace": True},
        )
        name_weights()


def unload_adapter() -> None:
    """Whoever asks for it is to be refused, and not served by the checkpoint before."""
    try:
        ask("/v1/unload_lora_adapter", {"lora_name": ADAPTER})
    except Refused as error:
        if not 400 <= error.status < 500:  # there is none, or the server takes none
            raise


def name_weights() -> None:
    """So that whoever asks the server hears which checkpoint it has."""
    try:
        ask("/update_weight_version", {"new_version": WEIGHTS})
    except Refused as error:
        if error.status != 404:
            raise
        print("this vLLM cannot be told the name of its weights", file=sys.stderr)


def check() -> None:
    """Ends with 1 where the server has something else: it was restarted."""
    try:
        found = ask("/weight_info", method="GET").get("weight_version")
    except Refused as error:
        if error.status != 404:  # it starts still, or hangs: to load would not help
            print(error, file=sys.stderr)
        return
    if found != WEIGHTS:
        sys.exit(f"the server has {found}")


if __name__ == "__main__":
    try:
        check() if "--check" in sys.argv[1:] else load()
    except Refused as error:
        sys.exit(str(error))
