"""Sessions of strangers, in a folder that PENSTOCK_SAMPLE_SESSIONS names: what an import takes of
them is what a count by hand, which shared no code with the importers, found in their files."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.support.session_sources import events_of, report_of, stored, take

SAMPLES = Path(os.environ.get("PENSTOCK_SAMPLE_SESSIONS", "/nowhere"))
#: Prompts, calls of models and of tools, results, edits, tokens of prompts and answers, token ids.
#: Three answers of claude_code have a usage from their beginning, which is not believed.
COUNTS = {
    "atif": (7, 18, 8, 16, 1, 6942, 850, 0),
    "claude_code": (42, 75, 46, 44, 7, 376504, 5698, 0),
    "codex": (5, 8, 4, 3, 0, 87176, 580, 0),
    "copilot_cli": (2, 3, 2, 2, 0, 6150, 1360, 0),
    "mini_swe_agent": (2, 12, 0, 12, 1, 0, 0, 0),
    "nemo_gym": (43, 263, 204, 203, 68, 770134, 52741, 5725),
    "opencode": (7, 7, 3, 3, 1, 18616, 2405, 0),
    "openhands_v0": (6, 14, 11, 8, 3, 42730, 3704, 0),
    "openhands_v1": (4, 14, 12, 11, 0, 186763, 3762, 0),
    "qwen": (2, 5, 3, 3, 0, 10250, 2627, 0),
    "registry": (8, 8, 0, 0, 0, 22, 6, 0),
    "swe_agent": (15, 127, 44, 127, 21, 182614, 1938, 0),
}

pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="PENSTOCK_SAMPLE_SESSIONS names no folder"
)


@pytest.mark.parametrize("folder", sorted(COUNTS))
def test_an_import_takes_what_was_counted_by_hand(folder: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    events = events_of(SAMPLES / folder)
    for event in events:
        payload, kind = event["payload"], event["type"]
        usage = payload if kind == "x_run_usage" else payload.get("usage") or {}
        tokens = payload.get("tokens") if kind == "model_call" else None
        counts[kind] += 1
        counts["tool_call"] += len(payload.get("tool_calls") or ())
        counts["prompt"] += usage.get("prompt") or 0
        counts["completion"] += usage.get("completion") or 0
        counts["completion_id"] += len((tokens or {}).get("completion_ids") or ())
    names = ("user_message", "model_call", "tool_call", "tool_result", "edit", "prompt",
             "completion", "completion_id")  # fmt: skip
    assert tuple(counts[name] for name in names) == COUNTS[folder]
    assert report_of(SAMPLES / folder).unfit == []
    _report, summary = take(tmp_path / "data", [SAMPLES / folder])
    assert summary.rejected == 0
    kept = [row for row in stored(tmp_path / "data") if row[2] != "x_vendor_model"]
    assert len(kept) == len({(each["session_id"], each["event_id"]) for each in events})
