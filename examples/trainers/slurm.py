"""Trains by a Slurm job, and finds it again after the loop's runner was killed.

    [trainer]
    command = "python3 {here}/../trainers/slurm.py {here}/../trainers/slurm.sh"
    limit = "8h"                # --time of the script is no longer

What PENSTOCK_WORK and the data directory name is the same here and where the job runs: a disk that
both have.
"""

import sys

from outside import ask, follow, job_environment, job_folder, job_name


def look():
    found = ask("squeue", "--me", "--noheader", "--name", job_name(), "--format", "%i %T")
    if found is None:
        return None
    return "runs" if found.strip() else "absent"  # it waits, runs, or has ended


def submit():
    # Of two jobs with one name Slurm runs one after the other, and the second finds the answer.
    made = ask(
        "sbatch", "--parsable", "--dependency", "singleton", "--export", "ALL",
        "--job-name", job_name(), "--output", str(job_folder() / "job.log"),
        "--open-mode", "append", *sys.argv[1:],
        told=job_environment(),
    )  # fmt: skip
    if made is None:
        sys.exit("nothing was submitted")


follow(look, submit)
