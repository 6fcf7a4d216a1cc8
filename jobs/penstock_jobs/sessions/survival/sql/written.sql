-- Lines that agents wrote, by what became of them; each resume is counted once.
-- Grain:  session_id, model, language, horizon_s, fate, reason.
-- Reads stored_rewards by the definition `survival`, where a weight is a number of lines. The table
-- `chosen` says which are current, `placed` what edits they are about.
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
)
select session_id, model, language, horizon_s,
       case when wrote_nothing then 'nothing_written'
            when state in ('scored', 'pending') then state
            when reason = 'self_rework' then reason
            else 'unknown' end             as fate,
       reason, count(*)                    as edits,
       sum(case when fate = 'unknown' and weight = 0 then coalesce(lines_at_least, 1)
                else weight end)           as lines,
       sum(coalesce(value * weight, 0))    as standing
from fates
left join empty using (session_id, target_id)
left join placed using (session_id, target_id)
group by all
