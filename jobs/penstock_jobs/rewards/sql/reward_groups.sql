-- Counts by state and ranges of values of the chosen sessions' rewards. All rewards of an excluded
-- session have the state `excluded` here.
-- Grain:  name, horizon_s.
-- Reads stored_rewards. The table `chosen` says which are current.
select name, horizon_s,
       count(*) filter (outcome = 'excluded') as excluded,
       count(*) filter (outcome <> 'excluded' and state = 'scored') as scored,
       count(*) filter (outcome <> 'excluded' and state = 'pending') as pending,
       count(*) filter (outcome <> 'excluded' and state = 'censored') as censored,
       count(*) filter (outcome <> 'excluded' and state = 'invalid') as invalid,
       count(known) as sessions,
       min(known) as low, max(known) as high, avg(known) as mean, median(known) as median
from (
    select name, horizon_s, state, outcome,
           case when state = 'scored' and isfinite(rewards.value) then rewards.value end as known
    from stored_rewards as rewards
    join chosen using (session_id, computed_at)
    where tenant = getvariable('tenant')
      and definition_version = getvariable('version')
      and target_kind = 'session'
)
group by name, horizon_s
