-- requests: what users wanted, when they went on, and what it was worth, by each definition.
-- Grain:    session_id, request, definition_version, computed_at.
-- Order:    session_id, computed_at, request.
-- Current:  where superseded_at is null.
--
-- Columns:
--   session_id                      the session of its first message
--   request                         its number in the conversation, from 1
--   kind                            `code`, `tests`, `docs`, `deletion`, `question`, `terminal`, by the user's words
--   size                            its weight in the session, 1 to 4, by the user's words
--   started_at, ended_at            its first message; the first message of the next one, else null
--   verdict                         −1 to 0: the worst that was said of the work; null if nothing was
--   value                           its reward; null unless it is scored
--   checkpoint                      if one checkpoint alone served it
--   definition, definition_version  name and digest
--   computed_at, superseded_at      as in rewards
select session_id, try_cast(target_id as integer)                      as request,
       any_value(reason) filter (name = 'request_verdict')              as kind,
       any_value(weight) filter (name = 'request_verdict')              as size,
       to_timestamp(any_value(value) filter (name = 'request_start'))   as started_at,
       to_timestamp(any_value(value) filter (name = 'request_end'))     as ended_at,
       any_value(value) filter (name = 'request_verdict')               as verdict,
       any_value(value) filter (name = 'reward')                        as value,
       any_value(checkpoint)                                            as checkpoint,
       definition, definition_version, computed_at, superseded_at
from rewards
where target_kind = 'request'
group by session_id, target_id, definition, definition_version, computed_at, superseded_at
having bool_or(name = 'request_verdict')
