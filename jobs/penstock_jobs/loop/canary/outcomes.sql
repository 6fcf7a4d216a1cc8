-- How sessions ended by one definition, and what happened in them.
-- Grain:  session_id, the newest computation.
select session_id, checkpoint, outcome, reason, requests, edited_requests, answered_requests, asking_requests,
       tool_calls, invalid_tool_calls
from outcomes
where definition_version = $version
  and superseded_at is null
  and first_ts >= make_timestamptz($from_us)
