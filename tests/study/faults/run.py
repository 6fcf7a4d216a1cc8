"""A round of faults: `make faults SECONDS=600`."""

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.study.faults import checks
from tests.study.faults.clients import DirectProducer, Reader, Simulated
from tests.study.faults.cluster import LEASE_SECONDS, Cluster
from tests.study.faults.doing import Doer
from tests.study.faults.schedule import cards, schedule
from tests.study.faults.serving import Serving, each
from tests.support.producers import Identity, Looping, Producer, Sender

_CLIENTS, _DIRECT = 4, 2
_CLIENT_PAUSE_SECONDS = 0.03
_ANSWER_SECONDS_MAX, _QUERY_SECONDS_MAX = 5.0, 30.0
#: Longer than any fault with what it leaves behind takes on a busy machine.
_STALL_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1

Tell = Callable[[str], None]


class Load:
    """Everyone who uses the cluster."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        gateways = [one.url for one in cluster.gateways]
        how = {"timeout_s": _ANSWER_SECONDS_MAX, "pause_s": _CLIENT_PAUSE_SECONDS}
        self.clients = [
            Producer(f"p{number}", gateways, cluster.key, seed, **how) for number in range(_CLIENTS)
        ]
        self.direct = [
            DirectProducer(f"d{number}", cluster.broker_address, cluster.topic, seed)
            for number in range(_DIRECT)
        ]
        dice = random.Random(f"{seed}-simulated")
        sender = Sender(gateways, cluster.key, dice, _ANSWER_SECONDS_MAX)
        self.simulated = Simulated("simulated", sender, seed, pause_s=_CLIENT_PAUSE_SECONDS)
        everyone = [one.url for one in cluster.servings]  # writers answer queries too
        asking = Sender(everyone, cluster.key, random.Random(seed), _QUERY_SECONDS_MAX)
        self.reader = Reader(asking, cluster.database(), self.count, seed)
        self._all: list[Looping] = [*self.clients, *self.direct, self.simulated, self.reader]

    def count(self) -> int:
        """How many events were acknowledged."""
        return sum(len(some) for some in self._acknowledged())

    def acknowledged(self) -> set[Identity]:
        return set().union(*self._acknowledged())

    def sent(self) -> set[Identity]:
        """What may be there without having been acknowledged."""
        return set().union(*(one.sent for one in self.direct))

    def _acknowledged(self) -> list[set[Identity]]:
        of_clients = [one.acknowledged for one in self.clients]
        of_direct = [one.acknowledged for one in self.direct]
        return [*of_clients, *of_direct, self.simulated.acknowledged]

    def start(self) -> None:
        for one in self._all:
            one.start()

    def end(self) -> None:
        threads = [threading.Thread(target=one.end) for one in self._all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check(self) -> None:
        """Raises what any of them raised."""
        for one in self._all:
            if one.failure is not None:
                raise one.failure


class Progress:
    """Something has to be acknowledged now and then, whatever goes on."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._count = 0
        self._since_s = time.monotonic()
        self.longest_s = 0.0

    def check(self) -> None:
        count, now_s = self._load.count(), time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._since_s)
        if count != self._count:
            self._count, self._since_s = count, now_s
        assert now_s - self._since_s < _STALL_SECONDS_MAX, "nothing was acknowledged for too long"


def run_round(
    directory: Path, seed: int, seconds: float, *, store: str = "files", tell: Tell
) -> str:
    """Raises AssertionError, or whatever went wrong. What it found, as a text."""
    started_s = time.monotonic()

    def tell_when(text: str) -> None:
        tell(f"{time.monotonic() - started_s:8.2f} s  {text}")

    with Cluster(directory, store=store) as cluster:
        try:
            return _run(cluster, seed, seconds, tell_when)
        except BaseException:
            tell(cluster.tails())
            raise


def _run(cluster: Cluster, seed: int, seconds: float, tell: Tell) -> str:
    tell("all is up")
    load, doer = Load(cluster, seed), Doer(cluster, tell)
    progress = Progress(load)
    gateways = [one.name for one in cluster.gateways]
    writers = [one.name for one in cluster.writers]
    plan = schedule(seed, seconds, cards(gateways, writers, LEASE_SECONDS))
    load.start()
    try:
        start_s = time.monotonic()
        while (now_s := time.monotonic() - start_s) < seconds:
            while plan and plan[0].at_s <= now_s:
                doer.begin(plan.pop(0))
            load.check()
            progress.check()
            if doer.failures:
                raise doer.failures[0]
            time.sleep(_LOOK_SECONDS)
        doer.finish()
        if doer.failures:
            raise doer.failures[0]
        tell("all is healed")
    finally:
        load.end()
        doer.finish()
    load.check()
    return _check(cluster, load, doer, progress, tell)


def _check(cluster: Cluster, load: Load, doer: Doer, progress: Progress, tell: Tell) -> str:
    acknowledged, sent = load.acknowledged(), load.sent()
    with cluster.lake() as lake:
        for one in cluster.servings:
            checks.ready(one)
        checks.drained(lake, cluster.writers, tell)
        tell("the writers have stored everything")
        each(cluster.gateways, Serving.stop)
        each(cluster.writers, Serving.stop)
        checks.is_exact(lake, acknowledged, sent)
        edits = checks.is_as_simulated(lake, load.simulated.truths)
        checks.snapshots_hold(lake, load.reader.counts)
        checks.nothing_is_left_over(lake)
        facts = checks.facts(lake)
    findings = [finding for one in cluster.servings for finding in one.findings]
    findings += [finding for one in cluster.servings for finding in one.tracebacks()]
    assert findings == [], "\n".join(findings)
    ends: Counter[str] = sum((one.ends for one in cluster.servings), Counter())
    return "\n".join(
        [
            f"{len(acknowledged)} events acknowledged, each is there once",
            f"{len(sent - acknowledged)} sent and never acknowledged",
            f"{len(load.simulated.truths)} simulated sessions, {edits} edits, as the truth is",
            f"{load.reader.answers} queries answered",
            f"{progress.longest_s:.1f} s at most without an acknowledgement",
            *(f"{count} {name}" for name, count in facts.items()),
            *(f"{count} × {name}" for name, count in sorted((doer.done + ends).items())),
        ]
    )


@contextmanager
def kept_after_failure(tell: Tell, seed: int) -> Iterator[Path]:
    """A directory that is gone afterwards, but where something went wrong. PostgreSQL's user has
    to be able to enter it."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
    directory.chmod(0o711)
    try:
        yield directory
    except pytest.skip.Exception:
        shutil.rmtree(directory)
        raise
    except BaseException:
        tell(f"the seed was {seed}; everything is kept in {directory}")
        raise
    shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description="Faults at random, under load; then a count.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one by default")
    parser.add_argument("--store", choices=["files", "s3"], default="files")
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    tell(f"seed {seed}, {given.seconds:g} s of faults")
    try:
        with kept_after_failure(tell, seed) as directory:
            tell(run_round(directory, seed, given.seconds, store=given.store, tell=tell))
    except pytest.skip.Exception as error:
        sys.exit(f"A round needs Java, Maven and PostgreSQL: {error}")


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
