"""An example trainer, killed at each of its snapshots. Run by itself: it forks, so that libraries
are loaded once.

    python -m tests.study.trainers.dying FOLDER PROGRAM [OPTION…]: prints the digests that it made
    as JSON. FOLDER has `work`, with the export in it; the environment says the rest of what a
    trainer is told.
"""

import json
import os
import runpy
import shutil
import signal
import sys
from functools import partial, partialmethod
from pathlib import Path
from typing import Any


def main(folder: Path, program: Path) -> None:
    sys.path.insert(0, str(program.parent))
    from trl import GRPOTrainer, SFTTrainer  # noqa: F401

    # Cut off in the second snapshot; right behind the third; when all is learned and not answered.
    kills = [(2, "before"), (2, "after"), (1, "after")]
    found = [_made(program, folder, "once", []), _made(program, folder, "killed", kills)]
    sys.stdout.write(json.dumps(found))


def _made(program: Path, folder: Path, name: str, kills: list[tuple[int, str]]) -> Any:
    here = folder / name
    shutil.copytree(folder / "work", here / "work")
    for number, kill in enumerate([*kills, None]):
        output = here / f"output-{number}"
        output.mkdir()
        child = os.fork()
        if child == 0:
            _run(program, here, output, kill)
        _, status = os.waitpid(child, 0)
        if kill is not None:
            assert os.WIFSIGNALED(status), f"it was not killed: {status}"
            assert os.WTERMSIG(status) == signal.SIGKILL
        else:
            assert status == 0, f"it ended with {status}"
    begun = json.loads((here / "begun.json").read_text())
    return {"digest": json.loads((here / "answer.json").read_text())["digest"], "begun": begun}


def _run(program: Path, here: Path, output: Path, kill: tuple[int, str] | None) -> None:
    os.environ |= {
        "PENSTOCK_WORK": str(here / "work"),
        "PENSTOCK_OUTPUT": str(output),
        "PENSTOCK_ANSWER": str(here / "answer.json"),
    }
    sys.stdout = sys.stderr
    sys.argv = sys.argv[2:]
    _look_where_it_begins(here / "begun.json")
    if kill:
        _die(*kill)
    runpy.run_path(str(program), run_name="__main__")
    sys.stderr.flush()
    os._exit(0)


def _look_where_it_begins(path: Path) -> None:
    """Writes down which snapshot each try begins with: a step, or a place in the shard."""
    from transformers import Trainer

    from penstock.shards.torch import ShardDataset

    begun = [*(json.loads(path.read_text()) if path.exists() else []), None]
    path.write_text(json.dumps(begun))

    def begins(at: Any) -> None:
        begun[-1] = at
        path.write_text(json.dumps(begun))

    train, load = Trainer.train, ShardDataset.load_state_dict

    def watched_train(self: Any, *, resume_from_checkpoint: str | None = None) -> Any:
        begins(resume_from_checkpoint and int(resume_from_checkpoint[-1]))
        return train(self, resume_from_checkpoint=resume_from_checkpoint)

    def watched_load(self: Any, state: Any) -> None:
        begins(state["sources"][0]["samples_consumed"])
        load(self, state)

    Trainer.train = watched_train
    ShardDataset.load_state_dict = watched_load  # type: ignore[method-assign]


def _die(number: int, when: str) -> None:
    """Right before or after the n-th snapshot of this try takes its place, or has its mark."""
    left = number

    def dying(do: Any, path: Path, *target: Any) -> Any:
        nonlocal left
        left -= path.name == "whole" or path.suffix == ".part"
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = do(path, *target)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    for name, do in (("touch", Path.touch), ("rename", Path.rename)):
        setattr(Path, name, partialmethod(partial(dying, do)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
