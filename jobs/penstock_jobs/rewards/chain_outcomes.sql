-- Outcomes of the sessions in one session's chain, by the definition that computed it last or by a
-- named version.
-- Grain:  session_id.
-- `rewards_file` is the file with its rewards.
-- Reads stored_outcomes, since the view `outcomes` sorts the whole lake to find current rows.
with own_rows as materialized (
    select *
    from stored_outcomes
    where tenant = getvariable('tenant')
      and session_id = getvariable('session')
      and (definition_version = getvariable('version')
           or getvariable('version') = '' and listed)
),
own as (
    select chain, definition_version
    from own_rows
    order by computed_at desc, definition_version
    limit 1
),
-- Other members of the chain when it was computed; they may be in another chain now. Most chains
-- have one session, and then nothing more is read.
others as (
    select distinct session_id, definition_version
    from stored_outcomes
    join own using (chain, definition_version)
    where tenant = getvariable('tenant')
      and session_id <> getvariable('session')
),
members as (
    select own_rows.* from own_rows semi join own using (definition_version)
    union all
    select stored_outcomes.*
    from stored_outcomes
    semi join others using (session_id, definition_version)
    where tenant = getvariable('tenant')
),
current as (
    select session_id, chain, outcome, reason, value, checkpoint, definition, definition_version,
           computed_at, first_ts,
           getvariable('stored_rewards_files')[
               list_position(getvariable('stored_outcomes_files'), filename)] as rewards_file
    from members
    qualify row_number() over (partition by session_id order by computed_at desc) = 1
)
select current.*
from current
join own using (chain)
