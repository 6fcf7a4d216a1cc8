-- promotions: every change of every channel, with the channel's state after it.
-- Grain:  (channel, version).
-- Order:  channel, version.
select channel, version, action, checkpoint, digest, previous, canary, canary_share, pinned, policy,
       verdict, overridden, actor, reason, "at", previous_hash, hash
from promotion_list
