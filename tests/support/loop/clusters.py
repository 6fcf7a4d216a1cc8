"""Programs that stand in for a cluster's own: they take what those take, run jobs on this machine,
and forget nothing of what they were asked. They are no Slurm and no Kubernetes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

#: A folder with a folder for each job: `pid`, and `status` when it has ended.
JOBS = "CLUSTER_JOBS"
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def install(folder: Path) -> Path:
    """For the front of PATH."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("sbatch", "squeue", "kubectl"):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        path.chmod(0o755)
    return programs


def main(program: str, arguments: list[str]) -> None:
    jobs = Path(os.environ[JOBS])
    with (jobs / "asked").open("a") as asked:
        asked.write(f"{program} {' '.join(arguments)}\n")
    if (jobs / "away").exists():
        sys.exit("Unable to contact the controller")
    {"sbatch": sbatch, "squeue": squeue, "kubectl": kubectl}[program](jobs, arguments)


def sbatch(jobs: Path, arguments: list[str]) -> None:
    options, script = arguments[:-1], arguments[-1]
    told = dict(zip(options[1::2], options[2::2], strict=True))
    assert options[0] == "--parsable"
    assert (told["--dependency"], told["--export"]) == ("singleton", "ALL")
    name = told["--job-name"]
    start(jobs / name, ["sh", script], Path(told["--output"]), {})
    sys.stdout.write("4711\n")


def squeue(jobs: Path, arguments: list[str]) -> None:
    assert arguments[:2] == ["--me", "--noheader"]
    name = arguments[arguments.index("--name") + 1]
    if (jobs / name).exists() and not (jobs / name / "status").exists():
        sys.stdout.write("4711 RUNNING\n")


def kubectl(jobs: Path, arguments: list[str]) -> None:
    if arguments[0] == "create":
        return create(jobs)
    verb, _kind, name = arguments[:3]
    if verb == "delete":
        (jobs / name).rename(jobs / f"deleted-{len(list(jobs.iterdir()))}")
    elif (jobs / name).exists():
        sys.stdout.write(json.dumps({"status": {"conditions": conditions(jobs / name)}}))
    return None


def create(jobs: Path) -> None:
    import yaml

    job = yaml.safe_load(sys.stdin)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    name = job["metadata"]["name"]
    assert _DNS_LABEL.fullmatch(name)
    if (jobs / name).exists():
        sys.exit("Error from server (AlreadyExists)")
    [container] = job["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"]}
    start(jobs / name, container["command"], jobs / f"{name}.log", told)


def conditions(job: Path) -> list[dict[str, str]]:
    if not (job / "status").exists():
        return []
    well = (job / "status").read_text().strip() == "0"
    return [{"type": "Complete" if well else "Failed", "status": "True"}]


def start(job: Path, command: list[str], log: Path, told: dict[str, str]) -> None:
    """It outlives whoever submitted it, and all of that one's process group."""
    if job.exists():
        (job / "status").unlink()
    job.mkdir(exist_ok=True)
    run = '"$@"; status=$?; echo $status > "$0.part"; mv "$0.part" "$0"'
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["sh", "-c", run, str(job / "status"), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | told,
            start_new_session=True,
        )
    (job / "pid").write_text(str(child.pid))


def end_all(jobs: Path) -> None:
    for pid in jobs.glob("*/pid"):
        if not (pid.parent / "status").exists():
            os.killpg(int(pid.read_text()), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
