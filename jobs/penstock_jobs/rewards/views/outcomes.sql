-- outcomes: how each session ended, by each definition: one of scored, negative_by_rule,
--           censored, excluded, pending; with a reason.
-- Grain:    session_id, definition_version, computed_at.
-- Order:    session_id, computed_at.
-- Current:  where superseded_at is null.
--
-- Columns:
--   session_id          the session
--   outcome             `scored`, `negative_by_rule`, `censored`, `excluded`, `pending`
--   reason              why, unless it is scored
--   value               what the session is worth; null unless it is scored or negative
--   checkpoint          where the agent acted by one alone
--   chain               the session that the work began with; the session itself, unless it goes on with another
--   first_ts            when it was first heard of
--   last_ts             when it was last heard of
--   turns               turns in which the user asked or the agent acted
--   edited_turns        of these, those with an edit
--   answered_turns      those with an edit or an answer
--   asking_turns        those that ended in a question and without an edit
--   tool_calls          calls of tools
--   invalid_tool_calls  of these, those that the tool could not understand
--   due_at              when it will be computed again, even if nothing new comes
--   definition          the definition's name
--   definition_version  its digest
--   computed_at         as of when
--   superseded_at       when it was computed again by the same definition; null for what is known now
select session_id, outcome, reason, value, checkpoint, chain, first_ts, last_ts,
       turns, edited_turns, answered_turns, asking_turns, tool_calls, invalid_tool_calls,
       due_at, definition, definition_version, computed_at,
       lead(computed_at) over (
           partition by session_id, definition_version order by computed_at
       ) as superseded_at
from stored_outcomes
where tenant = getvariable('tenant')
