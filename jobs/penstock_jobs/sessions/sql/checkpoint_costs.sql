-- What sessions of two checkpoints cost.
-- Inputs: the variables `before` and `after`.
-- Grain:  checkpoint.
select checkpoint, count(*) as sessions,
       avg(user_messages) as user_messages, avg(model_calls) as model_calls, avg(edits) as edits,
       avg(prompt_tokens) as prompt_tokens, avg(completion_tokens) as completion_tokens,
       sum(failed_tool_calls)::double / nullif(sum(tool_calls), 0) as failed
from sessions
where checkpoint in (getvariable('before'), getvariable('after'))
group by checkpoint
