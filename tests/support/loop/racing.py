"""A runner of the loop in a process of its own, which begins when it is told, and says which stages
it did, and how often it found another one at work."""

import json
import sys
import time
from pathlib import Path

from tests.support.lakes import hand_lake
from tests.support.loop_world import World


def main(folder: Path) -> None:
    did: list[str] = []
    met: list[str] = []
    with hand_lake(folder, loop_poll_seconds=0.05) as hand:

        def look(point: str) -> None:
            stage, _, at = point.partition(":")
            if at == "worked":
                did.append(stage)

        def tell(text: str) -> None:
            if " does " in text:
                met.append(text)

        runner = World(hand, folder / "files").runner(wait=pause, crash_point=look, tell=tell)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        cycle = runner.run_once()
        found = {"cycle": cycle.number, "outcome": cycle.outcome, "did": did, "met": len(met)}
        sys.stdout.write(json.dumps(found))


def pause(seconds: float) -> bool:
    time.sleep(min(seconds, 0.05))
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
