-- promotions: every change of every channel, with the channel's state after it.
-- Grain:  (channel, version).
-- Order:  channel, version.
--
-- Columns:
--   channel        the channel
--   version        1, 2, 3 … without a gap
--   action         `promote`, `rollback`, `canary`, `release`, `policy`
--   checkpoint     what it points at
--   digest         that checkpoint's digest
--   previous       what it pointed at before
--   canary         the checkpoint that gets a share of the traffic
--   canary_share   that share
--   pinned         rolled back, and not released by a person yet
--   policy         the digest of the gate policy in force
--   verdict        the verdict that opened the gate
--   overridden     promoted without a PASS
--   actor          who did it
--   reason         why
--   at             when
--   previous_hash  the hash of the version before
--   hash           the hash of this one
select channel, version, action, checkpoint, digest, previous, canary, canary_share, pinned, policy,
       verdict, overridden, actor, reason, "at", previous_hash, hash
from promotion_list
