-- What each checkpoint scored at each suite, at the version that it was tried at last.
-- Inputs: the variable `checkpoint`: one alone, or all where it is empty.
-- Grain:  (checkpoint, suite). Means are over tasks; `spread` is the standard error of the score's.
with newest as (
    select checkpoint, suite, arg_max(suite_version, scored_at) as suite_version
    from benchmark_scores
    where getvariable('checkpoint') = '' or checkpoint = getvariable('checkpoint')
    group by all
),
by_task as (
    select checkpoint, suite, suite_version, task,
           avg(score) as score, avg(completion_tokens) as completion_tokens,
           avg(cost_usd) as cost_usd, avg(latency_s) as latency_s,
           count(*) filter (status = 'scored') as scored,
           count(*) filter (status = 'error') as errors,
           max(scored_at) as scored_at
    from benchmark_scores
    semi join newest using (checkpoint, suite, suite_version)
    group by all
)
select checkpoint, suite, suite_version, count(score) as tasks, avg(score) as score,
       stddev_samp(score) / sqrt(count(score)) as spread,
       avg(completion_tokens) as completion_tokens, avg(cost_usd) as cost_usd,
       avg(latency_s) as latency_s, sum(scored)::bigint as scored, sum(errors)::bigint as errors,
       max(scored_at) as scored_at
from by_task
group by all
order by checkpoint, suite
