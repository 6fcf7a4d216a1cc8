-- benchmark_scores: what checkpoints did in suites, attempt by attempt.
-- Grain:  (checkpoint, suite, suite_version, task, attempt).
-- Order:  checkpoint, suite, suite_version, task, attempt.
-- An attempt with status 'error' says nothing about the model: its score is null.
--
-- Columns:
--   checkpoint, suite, task                whose attempt, at what
--   suite_version                          the digest of its content, or the name that an import gave
--   attempt                                0, 1, 2 …
--   status                                 `scored`, or `error`: then it says nothing about the model
--   score                                  from 0 to 1; null for an error
--   error                                  what went wrong outside the model
--   completion_tokens, prompt_tokens       written and read
--   cost_usd, latency_s                    cost and duration
--   steps, tool_calls, invalid_tool_calls  model calls, calls of tools, and those that no tool could take
--   edited, asked                          whether it changed a file; whether it asked the user
--   bits_per_byte                          of a held-out file of a text shard: less is better
--   retries                                how often it was repeated for reasons outside the model
--   run                                    the run or import that brought it
--   scored_at                              when
--   isolated                               false: made without a sandbox; null: of an import, nobody knows
select checkpoint, suite, suite_version, task, attempt, status, score, error,
       completion_tokens, prompt_tokens, cost_usd, latency_s, steps, tool_calls, invalid_tool_calls,
       edited, asked, bits_per_byte, retries, run, scored_at,
       try_cast(json_extract_string(conditions, '$.isolated') as boolean) as isolated
from attempt_list
left join run_list on run_list.id = attempt_list.run
