-- Two definitions compared on sessions that both have computed, reward by reward.
-- Grain: name, horizon_s. `before` and `after` are means over sessions that both have scored.
-- `sums_…` are the sum, the number of known sessions and that of unknown ones.
with current as (
    select session_id, name, horizon_s, value, state, definition_version
    from rewards
    where superseded_at is null
      and target_kind = 'session'
      and definition_version in ($before, $after)
),
paired as (
    select name, a.horizon_s,
           a.value as before, b.value as after, a.state as state_before, b.state as state_after
    from (select * from current where definition_version = $before) as a
    join (select * from current where definition_version = $after) as b
        using (session_id, name)
    where a.horizon_s is not distinct from b.horizon_s
)
select name,
       horizon_s,
       count(*)                                                   as sessions,
       count(*) filter (where before is not null and after is not null) as both_scored,
       count(*) filter (where state_before <> state_after)        as other_state,
       avg(before) filter (where after is not null)               as before,
       avg(after)  filter (where before is not null)              as after,
       -- For bounds: each definition over all these sessions.
       [sum(before), count(before), count(*) filter (state_before in ('censored', 'invalid'))]
                                                                  as sums_before,
       [sum(after), count(after), count(*) filter (state_after in ('censored', 'invalid'))]
                                                                  as sums_after,
       avg(after - before)                                        as difference,
       max(abs(after - before))                                   as difference_max,
       case when count(distinct before) > 1 and count(distinct after) > 1
            then corr(before, after) end                          as correlation
from paired
group by name, horizon_s
order by name, horizon_s
