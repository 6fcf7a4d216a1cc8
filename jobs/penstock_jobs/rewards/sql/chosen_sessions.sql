-- Sessions that a page chose, by the newest computation of one definition, with outcomes.
-- Grain:  session_id.
select session_id, computed_at, outcome, value, checkpoint, first_ts
from outcomes
where superseded_at is null
  and definition_version = getvariable('version')
  and (getvariable('since_us') = '' or last_ts >= make_timestamptz(try_cast(getvariable('since_us') as bigint)))
  and (getvariable('checkpoint') = '' or checkpoint = getvariable('checkpoint'))
  and (getvariable('project') = ''
       or session_id in (select session_id from sessions where project = getvariable('project')))
