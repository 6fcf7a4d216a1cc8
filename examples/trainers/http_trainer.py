"""Makes a command that trains into one that a loop can ask by HTTP, on the machine with the GPUs.

    TRAINER_TOKEN=… python3 http_trainer.py 8700 jobs 'python3 train.py'

and in the loop file, where Penstock runs:

    [trainer]
    url = "http://gpu-1:8700/"
    token_env = "TRAINER_TOKEN"

The command is told what one in a loop file is told, and answers in the same way; only PENSTOCK_DATA
is another machine's, so it reads its shard from PENSTOCK_LAKE. A job is a folder,
named by its key, and all that is known of it is there: whether it runs is whether its lock is held,
which its process holds, not this one. So this server may be killed and started again, while a job
goes on. One job runs at a time. Needs nothing but Python.
"""

import fcntl
import hmac
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, FOLDER, COMMAND = int(sys.argv[1]), Path(sys.argv[2]).absolute(), sys.argv[3]
TOKEN = os.environ.get("TRAINER_TOKEN", "")
TOLD = (
    "shard", "shard_folder", "lake", "parent", "parent_uri", "parent_digest", "checkpoint", "loop",
    "cycle",
)  # fmt: skip
BODY_BYTES_MAX = 1 << 20
RETRY_AFTER_S = os.environ.get("RETRY_AFTER_S", "10")
#: The status of the command is the last that is written: who finds it finds the answer too.
RUN = '( %s\n); status=$?; echo "$status" > status.part && mv status.part status'
one_at_a_time = threading.Lock()


class Job:
    def __init__(self, key):
        self.folder = FOLDER / key

    def state(self):
        if (self.folder / "status").exists():
            answered = (self.folder / "answer.json").exists()
            return "done" if self.status() == "0" and answered else "failed"
        if not self.folder.exists():
            return "unknown"
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return "running"
        # It may have ended between the two looks.
        return self.state() if (self.folder / "status").exists() else "lost"

    def status(self):
        return (self.folder / "status").read_text().strip()

    def begin(self, task):
        """Anew where it failed or was lost. `work` stays, for the trainer's own snapshots."""
        work = self.folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.folder / "output", ignore_errors=True)
        (self.folder / "output").mkdir()
        for name in ("status", "answer.json"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "task.json").write_text(json.dumps(task))
        told = {name: task[name] for name in TOLD if name in task}
        told |= {"output": self.folder / "output", "work": work}
        told |= {"answer": self.folder / "answer.json"}
        with (self.folder / "lock").open("a") as lock, (self.folder / "log").open("wb") as log:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            child = subprocess.Popen(
                ["sh", "-c", RUN % COMMAND],
                cwd=self.folder,
                env=os.environ | {f"PENSTOCK_{name.upper()}": str(told[name]) for name in told},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],  # the lock is the child's
                start_new_session=True,
            )
            (self.folder / "pid").write_text(str(child.pid))
        threading.Thread(target=child.wait, daemon=True).start()

    def end(self):
        if self.state() == "running":
            os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)
            (self.folder / "log").open("a").write("it was told to end\n")
            (self.folder / "status").write_text("137\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        key = self.headers.get("Idempotency-Key") or ""
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            return self.problem(413, f"the body has more than {BODY_BYTES_MAX} bytes")
        try:
            task = json.loads(self.rfile.read(length))
        except ValueError as error:
            return self.problem(400, f"the body is no JSON: {error}")
        if not self.may():
            return self.problem(401, "the token is not the one that is known here")
        if not re.fullmatch(r"\w[\w.-]{0,199}", key, re.ASCII):
            return self.problem(400, "Idempotency-Key is letters, digits and any of - _ .")
        if not isinstance(task, dict) or not {"shard", "checkpoint"} <= task.keys():
            return self.problem(422, "the body names no shard and checkpoint")
        with one_at_a_time:
            job = Job(key)
            state = job.state()
            if state not in ("done", "running") and not self.begin(job, task):
                return self.later(429, "another job runs", {})
        return self.tell(job)

    def begin(self, job, task):
        """Whether it could: one runs at a time."""
        if any(Job(path.name).state() == "running" for path in FOLDER.iterdir()):
            return False
        job.begin(task)
        return True

    def do_GET(self):
        return self.with_job(self.tell)

    def do_DELETE(self):
        def end(job):
            job.end()
            self.answer(204)

        return self.with_job(end)

    def with_job(self, act):
        found = re.fullmatch(r"/jobs/(\w[\w.-]*)", self.path, re.ASCII)
        if not self.may():
            return self.problem(401, "the token is not the one that is known here")
        with one_at_a_time:
            if found is None or Job(found[1]).state() == "unknown":
                return self.problem(404, "there is no such job")
            return act(Job(found[1]))

    def tell(self, job):
        state = job.state()
        if state == "lost":  # with the machine that it ran on
            task = json.loads((job.folder / "task.json").read_text())
            if not self.begin(job, task):
                return self.later(429, "another job runs", {})
        if state == "done":
            return self.answer(200, (job.folder / "answer.json").read_bytes())
        if state == "failed":
            log = (job.folder / "log").read_bytes()[-2000:].decode(errors="replace")
            ended = f"it ended with status {job.status()}"
            if job.status() == "0":
                ended += ", and left no answer"
            return self.problem(500, f"{ended}: {log}")
        return self.later(202, "it runs", {"Location": f"/jobs/{job.folder.name}"})

    def may(self):
        given = self.headers.get("Authorization") or ""
        return not TOKEN or hmac.compare_digest(given.encode(), f"Bearer {TOKEN}".encode())

    def later(self, status, detail, headers):
        headers |= {"Retry-After": RETRY_AFTER_S}
        self.answer(status, json.dumps({"detail": detail}).encode(), headers)

    def problem(self, status, detail):
        self.answer(status, json.dumps({"status": status, "detail": detail}).encode())

    def answer(self, status, content=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), PORT), Handler)
    print(f"listening at port {server.server_port}", flush=True)
    server.serve_forever()
