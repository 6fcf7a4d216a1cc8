-- What production traffic did with the agent, whatever came of it. How fresh it has to be is said
-- in the recipe, against the snapshot: now() would make another shard each time.
--
-- Sessions without an edit stay in. A model that is trained only where it edited learns to ask
-- instead when an edit is risky; and one whose broken tool calls are left out learns to break
-- them. The reward says what they are worth.
select
    session_id,
    coalesce(project, '') as stratum        -- what a session is measured against: keep it coarse
from sessions
where task_id is null                       -- runs on purpose have recipes of their own
  and model_calls > 0
order by session_id
