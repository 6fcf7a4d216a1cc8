-- The rewards of a session by one version of a definition, and those of the other sessions of its
-- chain as wholes: together they make up what the session is worth.
-- Grain:  session_id, target_kind, target_id, name, horizon_s.
-- Order:  what is about sessions first, since no limit may cut it off.
-- Reads rewards_in: which are current, and in which files, the table `chain` says.
select session_id, target_kind, target_id, name, horizon_s, value, state, reason, weight,
       epoch_us(due_at) as due_us, checkpoint
from rewards_in(getvariable('chain_files'))
semi join chain using (session_id, definition_version, computed_at)
where tenant = getvariable('tenant')
  and (session_id = getvariable('session') or target_kind = 'session')
order by target_kind <> 'session', target_kind, target_id, name, horizon_s
limit cast(getvariable('rewards_max') as bigint)
