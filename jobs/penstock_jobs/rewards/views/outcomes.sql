-- outcomes: how each session ended, by each definition: one of scored, negative_by_rule,
--           censored, excluded, pending; with a reason.
-- Grain:    session_id, definition_version, computed_at.
-- Order:    session_id, computed_at.
-- Current:  where superseded_at is null.
select session_id, outcome, reason, value, checkpoint, chain, first_ts, last_ts,
       turns, edited_turns, answered_turns, asking_turns, tool_calls, invalid_tool_calls,
       due_at, definition, definition_version, computed_at,
       lead(computed_at) over (
           partition by session_id, definition_version order by computed_at
       ) as superseded_at
from stored_outcomes
where tenant = getvariable('tenant')
