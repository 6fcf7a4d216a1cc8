"""Loads a checkpoint into a running vLLM server, for `penstock channels follow`.

    penstock channels follow production --exec 'python load.py' --check 'python load.py --check'

The server runs with VLLM_SERVER_DEV_MODE=1, reachable from nowhere but here: its development
endpoints let anyone do anything, and ask for no key. It was started on a folder that is here too,
by its absolute path. A whole checkpoint is a folder of the same kind, with safetensors. A delta is
a folder with a LoRA adapter; that takes --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for fits.py beside this folder
import fits

SERVER = os.environ.get("VLLM_URL", "http://127.0.0.1:8000")
#: `wait` lets what is being generated end with the old weights; `keep` freezes it, and it goes on
#: with the new ones, which is not for adapters; `abort` cuts it off. Newer servers answer 503 to
#: what comes meanwhile, but not with `keep`.
PAUSE = os.environ.get("VLLM_PAUSE", "wait")
#: What requests call the adapter of a delta.
ADAPTER = os.environ.get("VLLM_ADAPTER", "policy")
#: What the server calls its weights: the version of the channel, which only grows, and the name.
WEIGHTS = f"{os.environ['PENSTOCK_VERSION']}:{os.environ['PENSTOCK_CHECKPOINT']}"
#: What it calls them after a reload that failed.
BROKEN = "broken"
SECONDS_MAX = float(os.environ.get("VLLM_SECONDS_MAX", "1800"))


class Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def ask(path: str, body: object = None, method: str = "POST", **query: str) -> dict[str, Any]:
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
        hint = " (is VLLM_SERVER_DEV_MODE=1 set for it?)" if error.code == 404 else ""
        raise Refused(error.code, f"{path}: {error.code} {why}{hint}") from error
    except OSError as error:
        raise Refused(0, f"{path}: {error}") from error
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def load(whole: Path, deltas: list[Path]) -> None:
    """Whatever goes wrong after the pause, the server stays paused: it may have a part of the
    weights, and the next try goes on from there."""
    if len(deltas) > 1:
        sys.exit(f"{WEIGHTS} is a delta on a delta, and vLLM applies one adapter to a request")
    if deltas and PAUSE == "keep":
        sys.exit("VLLM_PAUSE=keep is not for adapters: requests would go on with old and new ones")
    for one in deltas:
        if not (one / "adapter_config.json").is_file():
            sys.exit(f"{one} is no LoRA adapter; this script knows no other deltas")
    if str(ask("/weight_info", method="GET").get("weight_version")).startswith(BROKEN):
        sys.exit("a reload failed in this server, and it takes no other one rightly: restart it")
    served, _ = models()
    fits.check(whole, served)
    ask("/pause", mode=PAUSE)
    if not deltas or str(whole) in os.environ["PENSTOCK_APPLY"].splitlines():
        unload_adapter()  # nobody is to be served by it on other weights
    if str(whole) in os.environ["PENSTOCK_APPLY"].splitlines():
        reload(whole)
    for one in deltas:
        body = {"lora_name": ADAPTER, "lora_path": str(one), "load_inplace": True}
        ask("/v1/load_lora_adapter", body)
    reset = ask("/reset_prefix_cache", reset_running_requests="true", reset_external="true")
    if not reset.get("success"):
        sys.exit("/reset_prefix_cache: what was computed with the old weights is in its caches")
    ask("/update_weight_version", {"new_version": WEIGHTS})
    ask("/resume")


def reload(folder: Path) -> None:
    try:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        ask("/collective_rpc", body)
    except Refused as error:
        if error.status:
            ask("/update_weight_version", {"new_version": f"{BROKEN} by {WEIGHTS}"})
        raise


def unload_adapter() -> None:
    try:
        ask("/v1/unload_lora_adapter", {"lora_name": ADAPTER})
    except Refused as error:
        if not 400 <= error.status < 500:  # there is none, or the server takes none
            raise


def models() -> tuple[Path, dict[str, str]]:
    """The folder that the server was started on, and those of its adapters."""
    cards = ask("/v1/models", method="GET")["data"]
    [served] = {one["root"] for one in cards if one.get("parent") is None}
    return Path(served), {one["id"]: one["root"] for one in cards if one.get("parent")}


def check(deltas: list[Path]) -> None:
    """Ends with 1 where the server says that it has something else, as after a restart."""
    found = ask("/weight_info", method="GET").get("weight_version")
    if found != WEIGHTS:
        sys.exit(f"the server has {found}, not {WEIGHTS}")
    _, adapters = models()
    wanted = str(deltas[0]) if deltas else None
    if adapters.get(ADAPTER) != wanted:
        sys.exit(f"the server has {adapters.get(ADAPTER)} as {ADAPTER}, not {wanted}")


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
