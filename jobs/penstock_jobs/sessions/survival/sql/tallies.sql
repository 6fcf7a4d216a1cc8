-- Sums of lines by horizon: of all, and by each of five properties.
-- Grain:  kind, label, horizon_s.
-- Reads the table `written`; `willing` says in which sessions a person is named.
with owners as (
    select session_id, client as tool, project,
           case when session_id in (select session_id from willing) then "user" end as person
    from sessions
    where session_id in (select session_id from chosen)
),
grouped as (
    select tool, model, project, language, person, horizon_s,
           coalesce(sum(edits) filter (fate <> 'nothing_written'), 0) as edits,
           coalesce(sum(lines) filter (fate = 'scored'), 0)      as known,
           coalesce(sum(standing), 0)                            as standing,
           coalesce(sum(lines) filter (fate = 'unknown'), 0)     as unknown,
           coalesce(sum(lines) filter (fate = 'pending'), 0)     as pending
    from written
    left join owners using (session_id)
    group by all
)
select case when grouping(tool) = 0 then 'tool' when grouping(model) = 0 then 'model'
            when grouping(project) = 0 then 'project' when grouping(language) = 0 then 'language'
            when grouping(person) = 0 then 'person' else 'all' end as kind,
       coalesce(tool, model, project, language, person)             as label,
       horizon_s, sum(edits)::bigint as edits, sum(known)::double as known,
       sum(standing)::double as standing, sum(unknown)::double as unknown,
       sum(pending)::double as pending
from grouped
group by grouping sets (
    (horizon_s), (horizon_s, tool), (horizon_s, model), (horizon_s, project),
    (horizon_s, language), (horizon_s, person)
)
