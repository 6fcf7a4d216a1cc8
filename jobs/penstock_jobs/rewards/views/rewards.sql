-- rewards: what sessions, turns, edits and model calls were worth, by each definition.
-- Grain:    session_id, target_kind, target_id, name, horizon_s, definition_version, computed_at.
-- Order:    session_id, computed_at, target_kind, target_id, name, horizon_s.
-- Current:  where superseded_at is null. Sessions are computed again when they change or mature,
--           and what was known before stays, with the time from which it was not the newest.
select rewards.session_id, target_kind, target_id, name, horizon_s, value, state,
       rewards.reason, rewards.definition, rewards.definition_version,
       rewards.checkpoint, rewards.computed_at, computed.superseded_at, weight, rewards.due_at
from stored_rewards as rewards
join (select session_id, definition_version, computed_at, superseded_at from outcomes) as computed
    on  computed.session_id = rewards.session_id
    and computed.definition_version = rewards.definition_version
    and computed.computed_at = rewards.computed_at
where rewards.tenant = getvariable('tenant')
