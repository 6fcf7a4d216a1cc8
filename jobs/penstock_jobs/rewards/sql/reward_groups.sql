-- How many rewards of the chosen sessions have which state, and between which values they lie. What
-- a session has that is excluded counts nowhere: that is its state here.
-- Grain:  name, horizon_s.
-- Reads stored_rewards: which are current the table `chosen` says.
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
