-- Counts of the chosen sessions' rewards by state.
-- Grain:  name, state.
select name, state, sum(rewards)::bigint as rewards
from (
    unpivot reward_groups
    on scored, pending, censored, invalid, excluded
    into name state value rewards
)
where rewards > 0
group by name, state
order by name <> 'reward', name, state
limit 1000
