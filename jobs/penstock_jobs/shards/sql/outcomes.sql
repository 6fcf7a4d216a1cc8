-- How sessions ended, by one definition, as it was known last.
-- Grain: session_id.
select session_id, outcome, reason, value, due_at
from outcomes
where definition_version = $version
  and superseded_at is null
  and session_id in (select session_id from wanted)
