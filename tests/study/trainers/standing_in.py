"""Programs that stand in for trainers that want GPUs: they take the options that those take, read
the same files, wait for the same others and leave the same behind. What they learn is the digest of
what they read. They may be killed in a step.

    python standing_in.py skyrl|prime-rl FOLDER OPTIONS…

FOLDER has `asked`, a line for each call; `die` in it is the step to be killed in, once.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec


def main(program: str, folder: Path, arguments: list[str]) -> None:
    with (folder / "asked").open("a") as asked:
        asked.write(json.dumps(arguments) + "\n")
    {"skyrl": skyrl, "prime-rl": prime_rl}[program](folder, arguments)


def skyrl(folder: Path, arguments: list[str]) -> None:
    import pyarrow.parquet as pq

    told = dict(argument.split("=", 1) for argument in arguments)
    [data] = json.loads(told["pretokenized_dataset_paths"].replace("'", '"'))
    rows = [row for file in sorted(Path(data).iterdir()) for row in pq.read_table(file).to_pylist()]
    ckpt, every = Path(told["ckpt_path"]), int(told["ckpt_interval"])
    latest = ckpt / "latest_ckpt_global_step.txt"
    step, learned = 0, Path(told["model.path"], "model.safetensors").read_text()
    if told["resume_from"] == "latest" and latest.exists():
        step = int(latest.read_text())
        learned = (ckpt / f"global_step_{step}" / "policy").read_text()
    while step < len(rows):
        step += 1
        may_die(folder, step)
        learned = hashed(learned, rows[step - 1])
        if step % every == 0 or step == len(rows):
            (ckpt / f"global_step_{step}").mkdir(parents=True, exist_ok=True)
            (ckpt / f"global_step_{step}" / "policy").write_text(learned)
            latest.write_text(str(step))
    made = Path(told["export_path"], f"global_step_{step}", "policy")
    made.mkdir(parents=True, exist_ok=True)
    (made / "model.safetensors").write_text(learned)


def prime_rl(folder: Path, arguments: list[str]) -> None:
    assert arguments[0] == "@"
    assert Path(arguments[1]).is_file()
    told = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    run, steps = Path(told["--output-dir"]), int(told["--max-steps"])
    step, learned = 0, Path(told["--model.name"], "model.safetensors").read_text()
    if "--resume.step" in told:
        step = int(told["--resume.step"])
        learned = (run / f"checkpoints/step_{step}/trainer/all").read_text()
    offer(run, step, learned)
    while step < steps:
        step += 1
        ranks = sorted((run / f"batches/step_{step}").iterdir())
        found = [msgspec.msgpack.decode(rank.read_bytes()) for rank in ranks]
        assert len({len(batches) for batches in found}) == 1
        trained = [batch for batches in found for batch in batches if any(batch[1])]
        learned = hashed(learned, sorted(trained))
        offer(run, step, learned)
        save(folder, run / f"checkpoints/step_{step}/trainer", step, learned)


def offer(run: Path, step: int, learned: str) -> None:
    """An inference has to take it: this waits for that, and nobody else says so."""
    folder = run / f"broadcasts/step_{step}"
    folder.mkdir(parents=True)
    (folder / ".sender_ready").touch()
    while not (folder / ".receiver_ready").exists():
        time.sleep(0.01)
    (folder / "model.safetensors").write_text(learned)
    (folder / ".finished").touch()


def save(folder: Path, into: Path, step: int, learned: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    may_die(folder, step)
    (into / "all").write_text(learned)
    (into / ".metadata").touch()


def may_die(folder: Path, step: int) -> None:
    die = folder / "die"
    if die.exists() and int(die.read_text()) == step:
        die.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def hashed(learned: str, what: Any) -> str:
    return hashlib.sha256(f"{learned} {json.dumps(what)}".encode()).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
