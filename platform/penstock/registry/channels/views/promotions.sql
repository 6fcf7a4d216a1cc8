-- promotions: every change of every channel, with the channel's state after it.
-- Grain:  (channel, version).
-- Order:  channel, version.
--
-- Columns:
--   channel                       the channel
--   version                       1, 2, 3 … without a gap
--   action                        `promote`, `rollback`, `canary`, `release`, `policy`
--   checkpoint, digest, previous  what it points at, and pointed at before
--   canary                        the checkpoint that gets a share of the traffic
--   canary_share                  that share
--   checkpoint_version            the number of its weights: the version since which it serves, as a
--   canary_version                canary or whole; engines and tokens name it
--   pinned                        rolled back, and not released by a person yet
--   policy, verdict               digests of the gate policy in force and of the verdict
--   overridden                    promoted without a PASS
--   actor, reason                 who did it, and why
--   at                            when
--   previous_hash, hash           of the version before, and of this one
select channel, version, action, checkpoint, digest, previous, canary, canary_share,
       checkpoint_version, canary_version, pinned, policy, verdict, overridden, actor, reason, "at",
       previous_hash, hash
from promotion_list
