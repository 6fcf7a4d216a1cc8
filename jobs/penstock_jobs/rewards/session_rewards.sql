-- Rewards of a session by one version of a definition, and rewards of sessions and requests of the
-- rest of its chain: together they make the session's reward.
-- Grain:  session_id, target_kind, target_id, name, horizon_s.
-- Order:  rewards of sessions and requests first, so that the limit cuts them last.
-- Reads rewards_in. The table `chain` says which rewards are current, and their files.
select session_id, target_kind, target_id, name, horizon_s, value, state, reason, weight,
       epoch_us(due_at) as due_us, checkpoint
from rewards_in(getvariable('chain_files'))
semi join chain using (session_id, definition_version, computed_at)
where tenant = getvariable('tenant')
  and (session_id = getvariable('session') or target_kind in ('session', 'request'))
order by target_kind <> 'session', target_kind <> 'request', target_kind, target_id, name, horizon_s
limit cast(getvariable('rewards_max') as bigint)
