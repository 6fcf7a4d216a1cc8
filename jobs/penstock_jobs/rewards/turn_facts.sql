-- What happened in each turn, counted.
-- Grain:  (session_id, turn), as in the view `turns`.
-- Order:  session_id, turn.
-- Everything belongs to the last turn that began before it or with it. Sums of what nobody told
-- (tokens without usage) are null: not known is not none.
with began as (
    select session_id, turn, ts, last_ts, checkpoint, text from bucket_turns
),
called as (
    select b.session_id, b.turn, m.*
    exclude (session_id)
    from bucket_model_calls m
    asof join began b on m.session_id = b.session_id and m.ts >= b.ts
),
of_calls as (
    select session_id, turn,
           count(*)                                                         as model_calls,
           max(ts)                                                          as last_call_ts,
           sum(thinking_tokens)                                             as thinking_tokens,
           sum(completion_tokens - coalesce(thinking_tokens, 0))
               filter (where tool_call_count > 0)                           as calling_tokens,
           count(*) filter (where completion_tokens is null)                as without_usage,
           arg_max(completion_tokens - coalesce(thinking_tokens, 0), (ts, seq))
               filter (where tool_call_count = 0)                           as final_tokens,
           arg_max(text, (ts, seq)) filter (where coalesce(text, '') <> '') as final_text
    from called
    group by all
),
of_tools as (
    select b.session_id, b.turn,
           count(*)                                                   as tool_calls,
           count(*) filter (where t.error_class = 'invalid_arguments') as invalid_tool_calls,
           count(*) filter (where list_contains($terminal_tools, lower(t.tool))) as terminal_calls,
           coalesce(sum(length(t.output)), 0)                         as output_chars,
           max(coalesce(t.result_ts, t.ts))                           as last_tool_ts
    from bucket_tool_calls t
    asof join began b on t.session_id = b.session_id and t.ts >= b.ts
    group by all
),
of_edits as (
    select b.session_id, b.turn, count(*) as edits, max(e.ts) as last_edit_ts
    from bucket_edits e
    asof join began b on e.session_id = b.session_id and e.ts >= b.ts
    group by all
),
of_feedback as (
    select b.session_id, b.turn,
           count(*) filter (where f.positive)     as liked,
           count(*) filter (where not f.positive) as disliked
    from bucket_feedback f
    asof join began b on f.session_id = b.session_id and f.ts >= b.ts
    group by all
),
of_tests as (
    select b.session_id, b.turn,
           arg_max(json_extract_string(t.payload, ['$.passed', '$.failed', '$.ok']), (t.ts, t.seq))
               as last_test
    from bucket_events t
    asof join began b on t.session_id = b.session_id and t.ts >= b.ts
    where t.type = 'test_result'
    group by all
)
select began.session_id,
       began.turn,
       began.checkpoint,
       began.text is not null                                          as asked,
       coalesce(model_calls, 0)                                        as model_calls,
       date_diff('microsecond', began.ts,
                 greatest(last_call_ts, last_tool_ts, last_edit_ts)) / 1e6 as answer_seconds,
       thinking_tokens::bigint                                         as thinking_tokens,
       calling_tokens::bigint                                          as calling_tokens,
       final_tokens::bigint                                            as final_tokens,
       coalesce(without_usage, 0) > 0                                  as without_usage,
       final_text,
       coalesce(tool_calls, 0)                                         as tool_calls,
       coalesce(invalid_tool_calls, 0)                                 as invalid_tool_calls,
       coalesce(terminal_calls, 0)                                     as terminal_calls,
       coalesce(output_chars, 0)::bigint                               as output_chars,
       coalesce(edits, 0)                                              as edits,
       coalesce(liked, 0)                                              as liked,
       coalesce(disliked, 0)                                           as disliked,
       last_test is not null                                           as tested,
       try_cast(last_test[1] as bigint)                                as tests_passed,
       try_cast(last_test[2] as bigint)                                as tests_failed,
       try_cast(last_test[3] as boolean)                               as tests_ok
from began
left join of_calls using (session_id, turn)
left join of_tools using (session_id, turn)
left join of_edits using (session_id, turn)
left join of_feedback using (session_id, turn)
left join of_tests using (session_id, turn)
order by session_id, turn
