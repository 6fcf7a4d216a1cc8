-- Edits with the fates of their lines, each resume counted once.
-- Grain:  session_id, target_id, horizon_s.
-- Reads stored_rewards by the definition `survival`, where a weight is a number of lines. The table
-- `chosen` says which are current, `willing` in which sessions a person is named.
with fates as (
    select session_id, target_id, horizon_s, state, reason, stored_rewards.value, weight
    from stored_rewards
    join chosen using (session_id, computed_at)
    where tenant = getvariable('tenant')
      and definition_version = getvariable('version')
      and name = 'line_survival' and target_kind = 'edit'
),
empty as (
    select distinct session_id, target_id, true as wrote_nothing
    from fates
    where reason = 'nothing_written'
),
numbered as (
    select session_id, ts, path, after_lines, before_lines,
           coalesce(nullif(edit_id, ''), nullif(event_id, ''),
                    epoch_us(ts) || ':' || coalesce(seq::varchar, '')) as name,
           row_number() over (partition by session_id, name order by ts, seq) as nth
    from edits
    where session_id in (select session_id from chosen)
),
placed as (
    select edited.session_id, edited.ts, path, call.ts as call_ts, model, prompt_tokens,
           completion_tokens,
           name || case when nth > 1 then '#' || nth else '' end   as target_id,
           greatest(after_lines - coalesce(before_lines, 0), 1)    as lines_at_least,
           count(*) over (partition by edited.session_id, call.ts) as edits_of_call
    from numbered as edited
    asof left join (
        select session_id, ts, model, prompt_tokens, completion_tokens from model_calls
        where session_id in (select session_id from chosen)
    ) as call
        on call.session_id = edited.session_id and call.ts <= edited.ts
),
owners as (
    select session_id, client as tool, project,
           case when session_id in (select session_id from willing) then "user" end as person
    from sessions
    where session_id in (select session_id from chosen)
)
select session_id, target_id, horizon_s, ts, path, tool, model, project, person,
       lower(regexp_extract(path, '\.([A-Za-z0-9_]+)$', 1)) as language,
       prompt_tokens / edits_of_call     as prompt_tokens,
       completion_tokens / edits_of_call as completion_tokens,
       reason,
       case when wrote_nothing then 'nothing_written'
            when state in ('scored', 'pending') then state
            when reason = 'self_rework' then reason
            else 'unknown' end           as fate,
       case when fate = 'unknown' and weight = 0 then coalesce(lines_at_least, 1) else weight end
           as lines,
       coalesce(value * weight, 0)       as standing
from fates
left join empty using (session_id, target_id)
left join placed using (session_id, target_id)
left join owners using (session_id)
