-- rewards: rewards of sessions, requests, turns, edits and model calls, by each definition.
-- Grain:    session_id, target_kind, target_id, name, horizon_s, definition_version, computed_at.
-- Order:    session_id, computed_at, target_kind, target_id, name, horizon_s.
-- Current:  where superseded_at is null. Sessions are computed again when they change or mature.
--           Earlier rows stay, with the time of the next computation.
--
-- Columns:
--   session_id                      the session
--   target_kind                     `edit`, `file`, `turn`, `request`, `session`, `model_call`
--   target_id                       id of the edit or call (or of its event), path, number of the turn or request, session
--   name                            the reward; `reward` is the combined one
--   horizon_s                       seconds after the edit; null for rewards without horizons
--   value                           null unless it is scored
--   state                           `scored`, `pending`, `censored`, `invalid`
--   reason                          why there is no value or only a judge's; for `reward`, the missing rewards; for `request_verdict`, the kind
--   definition, definition_version  its name and its digest
--   checkpoint                      if the target had only one
--   computed_at                     as of when
--   superseded_at                   when the session was computed again; null for current rows
--   weight                          its weight in the whole
--   due_at                          when a pending row is decided at the latest
select rewards.session_id, target_kind, target_id, name, horizon_s, value, state,
       rewards.reason, rewards.definition, rewards.definition_version,
       rewards.checkpoint, rewards.computed_at, computed.superseded_at, weight, rewards.due_at
from stored_rewards as rewards
join (select session_id, definition_version, computed_at, superseded_at from outcomes) as computed
    on  computed.session_id = rewards.session_id
    and computed.definition_version = rewards.definition_version
    and computed.computed_at = rewards.computed_at
where rewards.tenant = getvariable('tenant')
