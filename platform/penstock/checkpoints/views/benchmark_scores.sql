-- benchmark_scores: what checkpoints did in suites, attempt by attempt.
-- Grain:  (checkpoint, suite, suite_version, task, attempt).
-- Order:  checkpoint, suite, suite_version, task, attempt.
-- An attempt with status 'error' says nothing about the model: its score is null.
--
-- Columns:
--   checkpoint          whose attempt
--   suite               the suite
--   suite_version       the digest of its content, or the name that an import gave
--   task                the task
--   attempt             0, 1, 2 …
--   status              `scored`, or `error`: then it says nothing about the model
--   score               from 0 to 1; null for an error
--   error               what went wrong outside the model
--   completion_tokens   tokens that the model wrote
--   prompt_tokens       tokens that it read
--   cost_usd            what it cost
--   latency_s           how long it took
--   steps               model calls
--   tool_calls          calls of tools
--   invalid_tool_calls  those that no tool could take
--   edited              whether it changed a file
--   asked               whether it asked the user something
--   retries             how often it was tried again for reasons outside the model
--   run                 the run or import that brought it
--   scored_at           when
select checkpoint, suite, suite_version, task, attempt, status, score, error,
       completion_tokens, prompt_tokens, cost_usd, latency_s, steps, tool_calls, invalid_tool_calls,
       edited, asked, retries, run, scored_at
from attempt_list
