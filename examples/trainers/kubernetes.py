"""Trains by a Job of Kubernetes, and finds it again after the loop's runner was killed.

    [trainer]
    command = "python3 {here}/../trainers/kubernetes.py {here}/../trainers/job.yaml"
    limit = "8h"                # activeDeadlineSeconds of the job is no longer

What PENSTOCK_WORK and the data directory name is the same here and in the job: a volume that both
have at the same path. A name is taken once, so that no job is there twice, whoever asks for it.
"""

import json
import sys
from pathlib import Path
from string import Template

from outside import ask, follow, job_environment, job_name


def look():
    found = ask("kubectl", "get", "job", job_name(), "--ignore-not-found", "--output", "json")
    if found is None or not found.strip():
        return None if found is None else "absent"
    conditions = json.loads(found).get("status", {}).get("conditions", [])
    true = {one["type"] for one in conditions if one["status"] == "True"}
    return "failed" if "Failed" in true else "ended" if "Complete" in true else "runs"


def submit():
    told = [{"name": name, "value": value} for name, value in job_environment().items()]
    template = Template(Path(sys.argv[1]).read_text())
    # JSON is YAML: texts need no other quotes.
    manifest = template.substitute(NAME=json.dumps(job_name()), ENVIRONMENT=json.dumps(told))
    if ask("kubectl", "create", "--filename", "-", given=manifest) is None and look() in (
        None,
        "absent",
    ):
        sys.exit("nothing was submitted")


def forget():
    """The next try begins anew, with what the job kept in PENSTOCK_WORK."""
    ask("kubectl", "delete", "job", job_name(), "--wait")


follow(look, submit, forget)
