-- samples: what the shards hold, without their tokens: where each came from, and what it weighs.
-- Grain:  (shard, sample_id).
-- Order:  shard, group_id, rollout_id, chain_pos, branch_index.
select paths.shard, sample_id, session_id, rollout_id, group_id, task_id, branch_index, chain_pos,
       n_tokens, n_trainable, min_policy_version, max_policy_version, reward, advantage,
       loss_weight, status, token_source, checkpoint_id, split, consent, created_at
from stored_samples
join shard_paths as paths on paths.filename = stored_samples.filename
