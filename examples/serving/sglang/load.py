"""Loads a checkpoint into a running SGLang server, for `penstock channels follow`.

    penstock channels follow production --exec 'python load.py' --check 'python load.py --check'

The server was started on a folder that is here too, by its absolute path. A whole checkpoint is a
folder of the same kind, with safetensors. A delta is a folder with a LoRA adapter; that takes
--enable-lora.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for fits.py beside this folder
import fits

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


def ask(path: str, body: object = None) -> dict[str, Any]:
    """What the server answers to a POST, or without a body to a GET. Raises Refused."""
    content = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("SGLANG_API_KEY"):  # where it has one, that of --admin-api-key
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


def load(whole: Path, deltas: list[Path]) -> None:
    if len(deltas) > 1:
        sys.exit(f"{WEIGHTS} is a delta on a delta, and SGLang applies one adapter to a request")
    for one in deltas:
        if not (one / "adapter_config.json").is_file():
            sys.exit(f"{one} is no LoRA adapter; this script knows no other deltas")
    fits.check(whole, Path(ask("/server_info")["model_path"]))
    unload_adapter()
    if str(whole) in os.environ["PENSTOCK_APPLY"].splitlines():
        update(whole)
    # By itself this ends what is being generated.
    ask("/update_weight_version", {"new_version": WEIGHTS, "abort_all_requests": False})
    for one in deltas:
        ask("/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": str(one)})


def update(folder: Path) -> None:
    """Where it fails and the server lives on, it is left paused: it may have a part of the weights.
    It does not go back to those before, whatever it says."""
    if PAUSE:
        ask("/pause_generation", {"mode": PAUSE})
    told = {"model_path": str(folder), "weight_version": WEIGHTS, "flush_cache": True}
    try:
        ask("/update_weights_from_disk", told)
    except Refused as error:
        if error.status:
            ask("/pause_generation", {"mode": "retract"})
        raise
    ask("/continue_generation", {})  # also after a try that ended in a pause


def unload_adapter() -> None:
    """First of all: whoever asks for it is to be refused, and not served by the one before, or by
    that on other weights. The server lets its requests end."""
    try:
        ask("/unload_lora_adapter", {"lora_name": ADAPTER})
    except Refused as error:
        if error.status != 200 and not 400 <= error.status < 500:  # there is none
            raise


def check(deltas: list[Path]) -> None:
    """Ends with 1 where the server says that it has something else, as after a restart."""
    found = ask("/model_info").get("weight_version")
    if found != WEIGHTS:
        sys.exit(f"the server has {found}, not {WEIGHTS}")
    cards = ask("/v1/models")["data"]
    adapter = next((one["root"] for one in cards if one["id"] == ADAPTER and one["parent"]), None)
    wanted = str(deltas[0]) if deltas else None
    if adapter != wanted:
        sys.exit(f"the server has {adapter} as {ADAPTER}, not {wanted}")


def main() -> None:
    whole, *deltas = [Path(one) for one in os.environ["PENSTOCK_CHAIN"].splitlines()]
    checking = "--check" in sys.argv[1:]
    try:
        if not checking:
            load(whole, deltas)
        check(deltas)
    except Refused as error:
        if checking and error.status in (0, 500, 502, 503):
            print(error, file=sys.stderr)  # it starts still, or hangs: to load would not help
            return
        sys.exit(str(error))
    except fits.Unfit as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
