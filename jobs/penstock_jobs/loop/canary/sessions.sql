-- Sessions that began within a period and that one of two checkpoints served.
-- Grain:  session_id.
-- Order:  first_us, session_id.
-- `left_out` is why a session says nothing about either checkpoint. `who` is the user. Without a
-- user it is the session, or the session that it continues.
select session_id,
       epoch_us(first_ts)                          as first_us,
       epoch_us(last_ts)                           as last_us,
       coalesce('user ' || "user", 'session ' || coalesce(parent_session, session_id)) as who,
       list_contains(checkpoints, $candidate)      as candidate,
       end_reason is not null or last_ts < make_timestamptz($quiet_us) as over,
       case when len(checkpoints) > 1 then 'mixed'
            when link in ('resume', 'fork') then 'copy'
            when task_id is not null then 'on_purpose'
            when $split and arm in ('canary', 'current')
                 and (arm = 'canary') <> list_contains(checkpoints, $candidate) then 'other_arm'
       end                                         as left_out,
       user_messages + model_calls + tool_calls + edits + feedback + interrupts + errors = 0 as silent,
       duration_s, events, user_messages, model_calls, tool_calls, failed_tool_calls, edits,
       feedback_positive, feedback_negative, interrupts, errors, prompt_tokens, completion_tokens
from sessions
where first_ts >= make_timestamptz($from_us)
  and first_ts < make_timestamptz($until_us)
  and list_has_any(checkpoints, [$candidate, $incumbent])
order by first_us, session_id
