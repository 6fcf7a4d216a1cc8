-- The local judge's verdict on each follow-up, by the newest computation of one definition.
-- Grain:  session_id, turn: the turn that begins with the message.
-- Order:  session_id, turn.
-- `drawn_at` is the message's random place, as in `draw`: 56 bits of a digest.
-- Sessions that refuse training are left out: nobody may see their messages.
select rewards.session_id, try_cast(target_id as bigint) as turn, rewards.value as judged,
       outcomes.checkpoint, epoch_us(outcomes.first_ts) as first_us,
       epoch_us(outcomes.last_ts) as last_us,
       ('0x' || left(sha256(concat(getvariable('tenant'), chr(0), rewards.session_id, chr(0),
                                   try_cast(target_id as bigint)::varchar)), 14))::ubigint
           / 72057594037927936.0::double as drawn_at
from rewards
join outcomes
    on  outcomes.session_id = rewards.session_id
    and outcomes.definition_version = rewards.definition_version
    and outcomes.computed_at = rewards.computed_at
where rewards.definition_version = $version
  and rewards.name = 'judged_follow_up'
  and rewards.target_kind = 'turn'
  and rewards.state = 'scored'
  and rewards.superseded_at is null
  and outcomes.reason is distinct from 'no_train'
  and ($since_us is null or outcomes.last_ts >= make_timestamptz($since_us))
  and ($computed_us is null or rewards.computed_at >= make_timestamptz($computed_us))
order by rewards.session_id, turn
