-- samples: what the shards hold, without their tokens: where each came from, and what it weighs.
-- Grain:  (shard, sample_id).
-- Order:  shard, group_id, rollout_id, chain_pos, branch_index.
--
-- Columns:
--   shard               the shard
--   sample_id           the digest of its session, branch, tokens and mask
--   session_id          where it came from
--   rollout_id          the session that the work began with
--   group_id            what it is compared with
--   task_id             the task, if there is one
--   branch_index        which branch of its session
--   chain_pos           which session of its chain
--   n_tokens            its tokens
--   n_trainable         those that the model wrote
--   min_policy_version  the oldest version that wrote in it
--   max_policy_version  the newest
--   reward              what its session is worth
--   advantage           how much better than what it is compared with
--   loss_weight         what it weighs in the loss
--   status              `completed`, `truncated`, `aborted`, `failed`, `masked`
--   token_source        `engine` or `renderer`
--   checkpoint_id       the checkpoint that wrote last
--   split               `train` or `eval`
--   consent             the session's consent when the shard was built
--   created_at          when it was written
select paths.shard, sample_id, session_id, rollout_id, group_id, task_id, branch_index, chain_pos,
       n_tokens, n_trainable, min_policy_version, max_policy_version, reward, advantage,
       loss_weight, status, token_source, checkpoint_id, split, consent, created_at
from stored_samples
join shard_paths as paths on paths.filename = stored_samples.filename
