-- sessions: one row a session, from the summaries that upkeep puts beside every segment.
-- Grain:    session_id.
-- Order:    first_ts (when it began) or last_ts (when it was last heard of).
-- Reads:    session_parts only, never events.
--
-- `slim` merges the few columns that people filter and order by. The rest is merged after the join,
-- for the sessions that passed: a filter on a column of `slim` reaches it because those columns are
-- group keys above, and the join carries it over to the second scan of session_parts.
-- At the same time the greater hash wins, as in summary.sql; without it the result would depend on
-- the order in which parts are read.
--
-- Columns:
--   session_id                                the session
--   first_ts, last_ts                         its first and its latest event
--   duration_s                                seconds between the two
--   user, project, checkpoint, source         of the latest event that names one
--   checkpoints                               all that served the session, sorted
--   consent                                   the strongest that was said: `no_train`, then `train`, then `unknown`
--   events, user_messages, model_calls, edits, feedback, interrupts, errors  how many
--   tool_calls, failed_tool_calls             tool results, and those with `ok: false`; the view tool_calls also has calls without one
--   feedback_positive, feedback_negative      as in the view feedback
--   prompt_tokens, completion_tokens          sums; values below 0 or above 10⁹ are left out
--   model                                     that the latest `model_call` with one asked for
--   client, client_version, repo, branch, commit  from the latest `session_start`
--   task_id, group_id, arm                    likewise: task and group of attempts, for sessions run on purpose; arm of an experiment
--   parent_session, link                      likewise: what it continues, by `resume`, `fork`, `compaction`, `subagent`
--   chain                                     the session that the work began with: itself, unless a `compaction` or `subagent` of another
--   end_reason                                from the latest `session_end`; null while it is open
--   first_received_at, last_received_at       when its first and its last event were accepted
with slim as (
    select session_id,
           min(first_ts) as first_ts,
           max(last_ts)  as last_ts,
           arg_max("user", epoch_us(user_ts)::hugeint * 4294967296
                           + hash("user") % 4294967296)             as "user",
           arg_max(project, epoch_us(project_ts)::hugeint * 4294967296
                            + hash(project) % 4294967296)           as project,
           arg_max(checkpoint, epoch_us(checkpoint_ts)::hugeint * 4294967296
                               + hash(checkpoint) % 4294967296)     as checkpoint
    from session_parts
    group by session_id
),
merged as (
    select slim.session_id, slim.first_ts, slim.last_ts,
           slim."user", slim.project, slim.checkpoint,
           min(part.first_received_at) as first_received_at,
           max(part.last_received_at)  as last_received_at,
           arg_max(part.source, epoch_us(part.source_ts)::hugeint * 4294967296
                                + hash(part.source) % 4294967296) as source,
           -- Nearly every session has one checkpoint; only the others pay for a union of lists.
           case when min(part.checkpoints[1]) = max(part.checkpoints[-1])
                then [min(part.checkpoints[1])]
                else coalesce(list_sort(list_distinct(flatten(list(part.checkpoints)))), [])
           end as checkpoints,
           max(case part.consent when 'no_train' then 2 when 'train' then 1 else 0 end)
               as consent_rank,
           sum(part.events)::bigint            as events,
           sum(part.user_messages)::bigint     as user_messages,
           sum(part.model_calls)::bigint       as model_calls,
           sum(part.tool_calls)::bigint        as tool_calls,
           sum(part.failed_tool_calls)::bigint as failed_tool_calls,
           sum(part.edits)::bigint             as edits,
           sum(part.feedback)::bigint          as feedback,
           sum(part.feedback_positive)::bigint as feedback_positive,
           sum(part.feedback_negative)::bigint as feedback_negative,
           sum(part.interrupts)::bigint        as interrupts,
           sum(part.errors)::bigint            as errors,
           sum(part.prompt_tokens)::bigint     as prompt_tokens,
           sum(part.completion_tokens)::bigint as completion_tokens,
           max(struct_pack(ts := part.model_ts, model := part.model)) filter (
               where part.model_ts is not null
           ) as asked,
           -- The latest session_start as a whole: its fields belong together.
           max(struct_pack(
               ts             := part.start_ts,
               parent_session := part.parent_session,
               link           := part.link,
               client         := part.client,
               client_version := part.client_version,
               repo           := part.repo,
               branch         := part.branch,
               "commit"       := part."commit",
               task_id        := part.task_id,
               group_id       := part.group_id,
               arm            := part.arm
           )) filter (where part.start_ts is not null) as start,
           max(struct_pack(
               ts     := part.end_ts,
               reason := part.end_reason
           )) filter (where part.end_ts is not null) as "end"
    from slim
    join session_parts as part on part.session_id = slim.session_id
    group by slim.session_id, slim.first_ts, slim.last_ts,
             slim."user", slim.project, slim.checkpoint
)
select merged.session_id, first_ts, last_ts,
       epoch_us(last_ts - first_ts) / 1e6 as duration_s,
       "user", project, checkpoint, checkpoints,
       case consent_rank when 2 then 'no_train' when 1 then 'train' else 'unknown' end as consent,
       events, user_messages, model_calls, tool_calls, failed_tool_calls, edits,
       feedback, feedback_positive, feedback_negative, interrupts, errors,
       prompt_tokens, completion_tokens,
       asked.model          as model,
       start.client         as client,
       start.client_version as client_version,
       start.repo           as repo,
       start.branch         as branch,
       start."commit"       as "commit",
       start.task_id        as task_id,
       start.group_id       as group_id,
       start.arm            as arm,
       start.parent_session as parent_session,
       start.link           as link,
       coalesce(chains.chain, merged.session_id) as chain,
       "end".reason         as end_reason,
       source, first_received_at, last_received_at
from merged
left join (
    -- Each step doubles how far up `up` points; `least` is the least session on the way there. In a
    -- ring, which nobody should send, the chain has the name of its least session.
    with recursive links as materialized (
        select session_id, start.parent_session as parent
        from (
            select session_id,
                   max(struct_pack(ts := start_ts, parent_session, link)) as start
            from session_parts
            where start_ts is not null
              and session_id in (
                  select session_id from session_parts where parent_session is not null)
            group by session_id
        )
        where start.parent_session is not null and start.link in ('compaction', 'subagent')
    ),
    ups(session_id, up, least, steps) using key (session_id) as (
        select session_id, parent, session_id, 0 from links
        union
        select low.session_id, high.up, least(low.least, high.least), low.steps + 1
        from ups as low
        join recurring.ups as high on high.session_id = low.up
        where high.up <> low.up and low.steps < 32
    )
    select ups.session_id, coalesce(ring.least, ups.up) as chain
    from ups
    left join ups as ring on ring.session_id = ups.up
) as chains on chains.session_id = merged.session_id
