-- Sums of rewards of sessions by checkpoint, and how many nobody knows.
-- Grain: checkpoint, name, by one definition at one horizon each.
-- What is pending is merely young, and counts on neither side.
select outcomes.checkpoint, name, horizon_s,
       count(*) filter (state = 'scored')                as known,
       coalesce(sum(rewards.value) filter (state = 'scored'), 0.0) as total,
       count(*) filter (state in ('censored', 'invalid')) as unknown
from rewards
join outcomes using (session_id, definition_version)
where definition_version = $version
  and rewards.superseded_at is null
  and outcomes.superseded_at is null
  and outcomes.outcome <> 'excluded'
  and target_kind = 'session'
  and list_contains($names, name)
  and ($since_us is null or outcomes.last_ts >= make_timestamptz($since_us))
group by all
order by all
