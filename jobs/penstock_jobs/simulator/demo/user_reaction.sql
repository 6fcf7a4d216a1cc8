-- How users received what a checkpoint did, by the sessions that it served and that began in a period.
-- A margin is half of the 95 % interval, from session to session: edits of one session are alike.
-- Grain:  one row.
with by_session as (
  select session_id, name, sum(abs(value)) as hits, count(*) as tries
  from rewards
  join sessions using (session_id)
  where list_contains(checkpoints, $checkpoint)
    and first_ts >= make_timestamptz($from_us)
    and first_ts < make_timestamptz($until_us)
    and definition_version = $version
    and superseded_at is null
    and state = 'scored'
    and ((name = 'edit_persistence' and target_kind = 'edit')
      or (name = 'dissatisfied_follow_up' and target_kind = 'request'))
  group by all
),
shares as (
  select name, sum(hits) / sum(tries) as share, sum(tries) as tries, count(*) as sessions
  from by_session
  group by name
),
margins as (
  select name, 1.96 * sqrt(sum(power(hits - share * by_session.tries, 2)) * max(sessions)
                           / nullif(max(sessions) - 1, 0)) / max(shares.tries) as margin
  from by_session
  join shares using (name)
  group by name
)
select max(share)  filter (where name = 'edit_persistence')       as kept,
       max(share)  filter (where name = 'dissatisfied_follow_up') as dissatisfied,
       max(margin) filter (where name = 'edit_persistence')       as kept_margin,
       max(margin) filter (where name = 'dissatisfied_follow_up') as dissatisfied_margin
from shares
join margins using (name)
