-- How users received what a checkpoint did, by the sessions that it served and that began in a period.
-- Grain:  one row.
select avg(value) filter (where name = 'edit_persistence' and target_kind = 'edit')          as kept,
       -avg(value) filter (where name = 'dissatisfied_follow_up' and target_kind = 'turn')   as dissatisfied
from rewards
join sessions using (session_id)
where list_contains(checkpoints, $checkpoint)
  and first_ts >= make_timestamptz($from_us)
  and first_ts < make_timestamptz($until_us)
  and definition_version = $version
  and superseded_at is null
  and state = 'scored'
