-- Outcomes and counts of sessions with their checkpoints, by one definition.
-- Grain: session, the newest computation.
select checkpoint, outcome, reason, epoch_us(first_ts) as start_us, requests, edited_requests, answered_requests, asking_requests,
       tool_calls, invalid_tool_calls
from outcomes
where definition_version = $version
  and superseded_at is null
  and ($since_us is null or last_ts >= make_timestamptz($since_us))
