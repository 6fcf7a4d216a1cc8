-- Histograms of the rewards of the chosen sessions.
-- Grain:  name, horizon_s, bin: 24 of equal width from the least to the greatest value.
-- Order:  the combined reward comes first.
-- Reads stored_rewards. The table `chosen` says which are current.
with binned as (
    select bounds.*,
           coalesce(least(floor((rewards.value - low) / nullif(high - low, 0) * 24), 23), 0)::integer as bin
    from stored_rewards as rewards
    join chosen using (session_id, computed_at)
    join reward_groups as bounds
        on bounds.name = rewards.name and bounds.horizon_s is not distinct from rewards.horizon_s
    where tenant = getvariable('tenant')
      and definition_version = getvariable('version')
      and target_kind = 'session'
      and state = 'scored'
      and isfinite(rewards.value)
      and (getvariable('name') = '' or rewards.name = getvariable('name'))
)
select name, horizon_s, low, high, sessions, mean, median, bin, count(*) as in_bin
from binned
group by name, horizon_s, low, high, sessions, mean, median, bin
order by name <> 'reward', name, horizon_s, bin
limit 2000
