-- samples: what the shards hold, without their tokens: where each came from, and what it weighs.
-- Grain:  (shard, sample_id).
-- Order:  shard, group_id, rollout_id, chain_pos, branch_index.
-- Reads:  what `views.py` binds: columns of the parts of shards (`schema.py`).
--
-- Columns:
--   shard                                   the shard
--   sample_id                               digest of session, branch, tokens and mask
--   session_id, rollout_id                  where it came from: a session, or a repository at a commit; the session that the work began with
--   group_id, task_id                       what it is compared with; the task, if any
--   branch_index, chain_pos                 which branch of its session, which session of its chain
--   n_tokens, n_trainable                   all tokens, and those that the model wrote
--   min_policy_version, max_policy_version  the oldest and the newest version that wrote in it
--   reward                                  what its session is worth
--   advantage                               how much better than what it is compared with
--   loss_weight                             what it weighs in the loss
--   status                                  `completed`, `truncated`, `aborted`, `failed`, `masked`
--   token_source                            `engine`, `renderer` or `text`
--   tokenizer_id                            what the engine, or the recipe, called the tokenizer
--   checkpoint_id                           the checkpoint that wrote last
--   license                                 of the code, as the session's start said
--   split                                   `train` or `eval`
--   consent                                 when the shard was built
--   created_at                              when it was written
--   documents                               the files of a text: `path`, `sha256`, `bytes`
select paths.shard, sample_id, session_id, rollout_id, group_id, task_id, branch_index, chain_pos,
       n_tokens, n_trainable, min_policy_version, max_policy_version, reward, advantage,
       loss_weight, status, token_source, tokenizer_id, checkpoint_id, license, split, consent,
       created_at, documents
from stored_samples
join shard_paths as paths on paths.filename = stored_samples.filename
