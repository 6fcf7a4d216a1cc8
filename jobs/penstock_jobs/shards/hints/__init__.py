"""Hints for teachers, and the sources that recipes turn on."""

from penstock_jobs.shards.hints import (
    follow_up,
    label,
    left_text,
    test_failure,
    tool_error,
    written,
)

SOURCES = {
    module.SOURCE.name: module.SOURCE
    for module in (label, follow_up, left_text, test_failure, tool_error, written)
}
