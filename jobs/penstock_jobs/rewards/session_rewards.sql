-- The rewards of a session by one version of a definition, and those of the other sessions of its
-- chain as wholes: together they make up what the session is worth.
-- Grain:  session_id, target_kind, target_id, name, horizon_s.
-- Order:  what is about sessions first, since no limit may cut it off.
select session_id, target_kind, target_id, name, horizon_s, value, state, reason, weight,
       epoch_us(due_at) as due_us, checkpoint
from rewards
where superseded_at is null
  and definition_version = getvariable('version')
  and (session_id = getvariable('session')
       or (target_kind = 'session'
           and session_id in (select session_id from outcomes
                              where superseded_at is null and chain = getvariable('chain'))))
order by target_kind <> 'session', target_kind, target_id, name, horizon_s
limit cast(getvariable('rows_max') as bigint)
