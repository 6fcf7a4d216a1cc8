-- benchmark_scores: what checkpoints did in suites, attempt by attempt.
-- Grain:  (checkpoint, suite, suite_version, task, attempt).
-- Order:  checkpoint, suite, suite_version, task, attempt.
-- An attempt with status 'error' says nothing about the model: its score is null.
select checkpoint, suite, suite_version, task, attempt, status, score, error,
       completion_tokens, prompt_tokens, cost_usd, latency_s, steps, tool_calls, invalid_tool_calls,
       edited, asked, retries, run, scored_at
from attempt_list
