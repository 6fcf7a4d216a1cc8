"""A job of another system, followed by a trainer's command that may be killed.

The job outlives the command. The next command finds it by its name, which begins with the
checkpoint's, and what it made in a folder that stays from one try to the next. Needs nothing but
Python; slurm.py and kubernetes.py use it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PAUSE_S = float(os.environ.get("LOOK_SECONDS", "15"))
#: Disks that are shared show a file a moment after it was written elsewhere.
SETTLE_S = float(os.environ.get("SETTLE_SECONDS", "60"))
_TOLD = ("DATA", "LAKE", "SHARD", "SHARD_FOLDER", "PARENT", "PARENT_URI", "PARENT_DIGEST",
         "CHECKPOINT", "LOOP", "CYCLE")  # fmt: skip


def job_name():
    """The same for the same checkpoint, shard and parent, and fit for a label of DNS."""
    told = os.environ
    what = "\0".join(told[f"PENSTOCK_{name}"] for name in ("SHARD", "PARENT_DIGEST", "DATA"))
    readable = re.sub(r"[^a-z0-9]+", "-", told["PENSTOCK_CHECKPOINT"].lower()).strip("-")[:40]
    return f"job-{readable}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def job_folder():
    folder = Path(os.environ["PENSTOCK_WORK"], job_name())
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    return folder


def job_environment():
    """What the job is told: as a command of the loop is, with folders that stay."""
    folder = job_folder()
    return {f"PENSTOCK_{name}": os.environ[f"PENSTOCK_{name}"] for name in _TOLD} | {
        "PENSTOCK_OUTPUT": str(folder / "checkpoint"),
        "PENSTOCK_WORK": str(folder / "work"),
        "PENSTOCK_ANSWER": str(folder / "answer.json"),
    }


def ask(*command, given=None, told=None):
    """The output of a program; None where it failed, for it may be away for a while."""
    environment = os.environ | (told or {})
    done = subprocess.run(
        command, input=given, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"{command[0]} failed: {done.stderr.strip()}", flush=True)
        return None
    return done.stdout


def follow(look, submit, forget=lambda: None):
    """Until the answer of the job is there. `look` says that it runs, ended, failed or is absent,
    and None where nobody can tell. `forget` makes room for another try."""
    answer, known, silent_since = job_folder() / "answer.json", False, None
    while not answer.exists():
        state = look()
        if state == "absent" and not known and not answer.exists():
            print(f"submitting {job_name()}", flush=True)
            submit()
            known = True
        elif state == "runs":
            known, silent_since = True, None
        elif state is not None:
            silent_since = silent_since or time.monotonic()
            if state == "failed" or time.monotonic() > silent_since + SETTLE_S:
                forget()
                sys.exit(f"{job_name()} {state}, and there is no answer")
        time.sleep(PAUSE_S)
    shutil.copyfile(answer, os.environ["PENSTOCK_ANSWER"])
