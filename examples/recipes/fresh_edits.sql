-- What production traffic did with the agent, whatever came of it. How fresh it has to be is said
-- in the recipe, against the snapshot: now() would make another shard each time.
--
-- Sessions without an edit stay in. A model that is trained only where it edited learns to ask
-- instead when an edit is risky; and one whose broken tool calls are left out learns to break
-- them. The reward says what they are worth.
with kinds as (                             -- docs are compared with docs, tests with tests
    select session_id, arg_max(kind, size) as kind
    from requests
    where definition = 'default' and superseded_at is null
    group by session_id
)
select
    session_id,
    coalesce(project, '') || ' ' || coalesce(kind, '') as stratum    -- keep it coarse
from sessions left join kinds using (session_id)
where task_id is null                       -- runs on purpose have recipes of their own
  and model_calls > 0
order by session_id
