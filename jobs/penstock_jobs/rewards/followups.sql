-- The local judge's verdict on each follow-up, by the newest computation of one definition.
-- Grain:  session_id, turn: the turn that begins with the message; null where the user stopped.
-- Order:  conversations; within each, in the order of its messages.
-- `drawn_at` is the message's random place, as in `draw`: 56 bits of a digest.
-- Sessions that refuse training are left out: nobody may see their messages.
with said as (
  select session_id, computed_at, name = 'request_stopped' as stopped,
         if(stopped, null, try_cast(target_id as bigint)) as turn,
         any_value(value)  filter (name <> 'follow_up_answers') as judged,
         any_value(reason) filter (name = 'judged_follow_up') as label,
         bool_or(name = 'follow_up_answers') as answers
  from rewards
  where definition_version = $version
    and name in ('judged_follow_up', 'follow_up_answers', 'request_stopped')
    and target_kind = 'turn'
    and state = 'scored'
    and superseded_at is null
    and ($computed_us is null or computed_at >= make_timestamptz($computed_us))
  group by all
)
select said.session_id, turn, judged, outcomes.checkpoint, epoch_us(outcomes.first_ts) as first_us,
       epoch_us(outcomes.last_ts) as last_us, label, answers, outcomes.chain,
       ('0x' || left(sha256(concat(getvariable('tenant'), chr(0), said.session_id, chr(0),
                                   turn::varchar)), 14))::ubigint
           / 72057594037927936.0::double as drawn_at
from said
join outcomes
    on  outcomes.session_id = said.session_id
    and outcomes.definition_version = $version
    and outcomes.computed_at = said.computed_at
where outcomes.reason is distinct from 'no_train'
  and ($since_us is null or outcomes.last_ts >= make_timestamptz($since_us))
order by outcomes.chain, first_us, said.session_id, turn nulls last
