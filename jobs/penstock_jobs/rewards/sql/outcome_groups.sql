-- Outcomes and values of the chosen sessions, by checkpoint, project and day.
-- Grain:  kind (`checkpoint`, `project`, `day`), label.
-- Order:  kind, newest first, at most 30 per kind. `of_all` counts sessions of all labels.
with grouped as (
    select 'checkpoint' as kind, checkpoint as label, * from chosen
    union all
    select 'project' as kind, project as label, chosen.*
    from chosen left join sessions using (session_id)
    union all
    select 'day' as kind, strftime(first_ts at time zone 'UTC', '%Y-%m-%d') as label, * from chosen
)
select kind, label, count(*) as sessions,
       sum(count(*)) over (partition by kind)::bigint as of_all,
       count(*) filter (outcome = 'scored') as scored,
       count(*) filter (outcome = 'negative_by_rule') as negative_by_rule,
       count(*) filter (outcome = 'censored') as censored,
       count(*) filter (outcome = 'excluded') as excluded,
       count(*) filter (outcome = 'pending') as pending,
       quantile_cont(value, 0.1) as low, median(value) as median, quantile_cont(value, 0.9) as high,
       avg(value) as mean
from grouped
group by kind, label
qualify row_number() over (partition by kind order by max(first_ts) desc, label) <= 30
order by kind, max(first_ts) desc, label
