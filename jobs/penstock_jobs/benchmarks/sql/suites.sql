-- The suites that attempts were made at, the latest first.
-- Grain: one suite.
select suite, count(distinct task) as tasks, count(distinct checkpoint) as checkpoints,
       count(*) as attempts, max(scored_at) as scored_at
from benchmark_scores
group by suite
order by scored_at desc
limit 200
