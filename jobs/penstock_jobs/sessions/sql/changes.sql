-- The newest changes of channels.
-- Grain:  channel, version.
-- Order:  at, the newest first.
select channel, action, checkpoint, canary, actor, reason, "at"
from promotions
where action <> 'policy'
order by "at" desc, version desc
limit 5
