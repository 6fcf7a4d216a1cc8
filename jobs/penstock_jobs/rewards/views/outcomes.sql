-- outcomes: the outcome of each session by each definition, with a reason.
-- Grain:    session_id, definition_version, computed_at.
-- Order:    session_id, computed_at.
-- Current:  where superseded_at is null.
--
-- Columns:
--   session_id                      the session
--   outcome                         `scored`, `negative_by_rule`, `censored`, `excluded`, `pending`
--   reason                          why, unless it is scored
--   value                           null unless it is scored or negative
--   checkpoint                      if one checkpoint alone served it
--   chain                           the session that the work began with
--   first_ts, last_ts               its first and its latest event
--   requests                        those that began in it
--   edited_requests                 those with an edit
--   answered_requests               those with an edit or an answer
--   asking_requests                 those in which the agent asked instead of editing
--   tool_calls, invalid_tool_calls  calls, and those with invalid arguments
--   due_at                          when it will be computed again at the latest
--   definition, definition_version  name and digest
--   computed_at, superseded_at      as in rewards
--   listed                          sessions are shown by it where nobody names a definition
select session_id, outcome, reason, value, checkpoint, chain, first_ts, last_ts,
       requests, edited_requests, answered_requests, asking_requests, tool_calls, invalid_tool_calls,
       due_at, definition, definition_version, computed_at,
       lead(computed_at) over (
           partition by session_id, definition_version order by computed_at
       ) as superseded_at, listed
from stored_outcomes
where tenant = getvariable('tenant')
