"""Agents as in production, of whose sessions the simulator knows the truth."""

import json
import random
from contextlib import closing

from penstock_jobs.simulator.production import Production, SimulatedSession
from penstock_jobs.simulator.truth import SessionTruth
from tests.support.producers import BATCH, Identity, Looping, Sender, keep

_AGAIN = 0.2


class Simulated(Looping):
    """Sends one session after another, each batch until it is acknowledged, some again on purpose.
    `truths` are those of the sessions of which every event was acknowledged."""

    def __init__(self, name: str, sender: Sender, seed: int, *, pause_s: float) -> None:
        super().__init__(name)
        self.acknowledged: set[Identity] = set()
        self.truths: list[SessionTruth] = []
        self._production = Production(seed)
        self._sender = sender
        self._dice = random.Random(f"{seed}-{name}")
        self._pause_s = pause_s
        self._kept: list[list[bytes]] = []

    def loop(self) -> None:
        index = 0
        with closing(self._sender):
            while True:
                for lived in self._production.session(index):
                    if not self._send_whole(lived):
                        return
                    self.truths.append(lived.truth)
                index += 1

    def _send_whole(self, lived: SimulatedSession) -> bool:
        """False where the end came first."""
        lines = [line for _, _, line in lived.lines]
        for start in range(0, len(lines), BATCH):
            if not self.going_on(self._pause_s):
                return False
            batch = lines[start : start + BATCH]
            self._send(batch)
            events = map(json.loads, batch)
            self.acknowledged |= {(event["session_id"], event["event_id"]) for event in events}
            keep(self._kept, batch, self._dice)
            if self._dice.random() < _AGAIN:
                self._send(self._dice.choice(self._kept))
        return True

    def _send(self, batch: list[bytes]) -> None:
        answer = self._sender.send_events(b"\n".join(batch))
        assert answer == {"accepted": len(batch), "rejected": []}
