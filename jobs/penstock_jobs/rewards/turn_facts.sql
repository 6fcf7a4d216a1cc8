-- Counts of what happened in each turn.
-- Grain:  (session_id, turn), as in the view `turns`.
-- Order:  session_id, turn.
-- Everything belongs to the last turn that began before it or with it. Sums over unreported values
-- (tokens without usage) are null, since unknown is not none. Impossible usage counts as unreported:
-- more thinking than completion, or more than the bound of the view `turns`, so that no sum can
-- overflow.
with began as (
    select session_id, turn, ts, last_ts, checkpoint, text from bucket_turns
),
happened as (
    select 'call' as kind, session_id, ts, seq, text, tool_call_count,
           case when thinking_tokens between 0 and 1_000_000_000
                then thinking_tokens end                                    as thinking_tokens,
           case when completion_tokens between coalesce(thinking_tokens, 0) and 1_000_000_000
                then completion_tokens end                                  as completion_tokens,
           ts as last_ts
    from bucket_model_calls
    union all by name
    select 'tool' as kind, session_id, ts, error_class = 'invalid_arguments' as invalid,
           list_contains($terminal_tools, lower(tool)) as terminal, length(output) as output_chars,
           coalesce(result_ts, ts) as last_ts
    from bucket_tool_calls
    union all by name
    select 'edit' as kind, session_id, ts, ts as last_ts from bucket_edits
),
counted as (
    select b.session_id, b.turn,
           count(*) filter (kind = 'call')                                  as model_calls,
           max(h.last_ts)                                                   as last_ts,
           sum(thinking_tokens)                                             as thinking_tokens,
           sum(completion_tokens - coalesce(thinking_tokens, 0))
               filter (where tool_call_count > 0)                           as calling_tokens,
           count(*) filter (kind = 'call' and completion_tokens is null)    as without_usage,
           arg_max(completion_tokens - coalesce(thinking_tokens, 0), (h.ts, h.seq))
               filter (where tool_call_count = 0)                           as final_tokens,
           arg_max(h.text, (h.ts, h.seq)) filter (where coalesce(h.text, '') <> '') as final_text,
           count(*) filter (kind = 'tool')                                  as tool_calls,
           count(*) filter (invalid)                                        as invalid_tool_calls,
           count(*) filter (terminal)                                       as terminal_calls,
           coalesce(sum(output_chars), 0)                                   as output_chars,
           count(*) filter (kind = 'edit')                                  as edits
    from happened h
    asof join began b on h.session_id = b.session_id and h.ts >= b.ts
    group by all
)
select began.session_id,
       began.turn,
       began.checkpoint,
       began.text is not null                                          as asked,
       coalesce(model_calls, 0)                                        as model_calls,
       date_diff('microsecond', began.ts, counted.last_ts) / 1e6       as answer_seconds,
       thinking_tokens::bigint                                         as thinking_tokens,
       calling_tokens::bigint                                          as calling_tokens,
       final_tokens::bigint                                            as final_tokens,
       coalesce(without_usage, 0) > 0                                  as without_usage,
       final_text,
       coalesce(tool_calls, 0)                                         as tool_calls,
       coalesce(invalid_tool_calls, 0)                                 as invalid_tool_calls,
       coalesce(terminal_calls, 0)                                     as terminal_calls,
       coalesce(output_chars, 0)::bigint                               as output_chars,
       coalesce(edits, 0)                                              as edits
from began
left join counted using (session_id, turn)
order by session_id, turn
