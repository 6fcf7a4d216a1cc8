-- model_calls: what the model was asked for and what it cost.
-- Grain:  one model_call event.
-- Order:  session_id, ts, seq.
-- The small fields are read in one pass over the JSON (`f`); each text is read only when asked for.
--
-- Columns:
--   session_id, ts, seq, checkpoint, user, project, consent, event_id  [shared](#shared-columns)
--   call_id                                   its id
--   model                                     the model that was asked for
--   text, thinking                            what it said and thought
--   tool_calls                                a JSON array; the view tool_calls has a row each
--   tool_call_count                           how many
--   prompt_tokens, completion_tokens          read and written
--   thinking_tokens, cached_tokens            of those written, in thinking; of those read, from a cache
--   latency_ms, ttft_ms                       until the last and the first token
--   finish_reason                             why it stopped
--   sampling                                  settings, a JSON object
--   tokenizer, template                       from `tokens`
--   tokens                                    token ids, log-probabilities and the rest, a JSON object; large
select session_id, ts, seq, checkpoint, "user", project, consent, event_id,
       f[1]                                                   as call_id,
       f[2]                                                   as model,
       json_extract_string(payload, '$.text')                 as text,
       json_extract_string(payload, '$.thinking')             as thinking,
       json_extract(payload, '$.tool_calls')::varchar         as tool_calls,
       coalesce(json_array_length(payload, '$.tool_calls'), 0)::bigint as tool_call_count,
       try_cast(f[3] as bigint)                               as prompt_tokens,
       try_cast(f[4] as bigint)                               as completion_tokens,
       try_cast(f[5] as bigint)                               as thinking_tokens,
       try_cast(f[6] as bigint)                               as cached_tokens,
       try_cast(f[7] as double)                               as latency_ms,
       try_cast(f[8] as double)                               as ttft_ms,
       f[9]                                                   as finish_reason,
       f[10]                                                  as sampling,
       f[11]                                                  as tokenizer,
       f[12]                                                  as template,
       json_extract(payload, '$.tokens')::varchar             as tokens
from (
    select *,
           json_extract_string(payload, [
               '$.call_id', '$.model', '$.usage.prompt', '$.usage.completion',
               '$.usage.thinking', '$.usage.cached', '$.latency_ms', '$.ttft_ms',
               '$.finish_reason', '$.sampling', '$.tokens.tokenizer', '$.tokens.template']) as f
    from event_rows
    where type = 'model_call'
)
