"""Memory is bounded by settings, not by what there is to do."""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.lakes import hand_lake, make_event

BACKLOG = """
    import resource, sys
    from pathlib import Path
    from tests.support.lakes import hand_lake
    limits = {"flush_bytes_max": 1_000_000, "flush_rows_max": 1_000, "known_bytes_max": 1_000_000}
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    with hand_lake(Path(sys.argv[1]), **limits) as lake:
        start = peak()
        lake.writer().drain()
        print(peak() - start)
"""


def test_a_backlog_much_larger_than_a_flush_is_taken_in_pieces(tmp_path: Path) -> None:
    """60 MB wait in the log; 1 MB is flushed at once. Coarse: a leak or a whole backlog in
    memory, decoded, is several times the bound."""
    text = "".join(chr(33 + n * n % 90) for n in range(10_000))
    with hand_lake(tmp_path) as lake:
        for batch in range(60):
            lake.send(
                [
                    make_event(f"s{batch}", n, payload={"text": text[n:] + text[:n]})
                    for n in range(batch * 100, batch * 100 + 100)
                ]
            )
    command = [sys.executable, "-c", textwrap.dedent(BACKLOG), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60, "MB more than at the start"
    with hand_lake(tmp_path) as lake:
        assert lake.rows("select count(*) as n from events") == [{"n": 6_000}]
