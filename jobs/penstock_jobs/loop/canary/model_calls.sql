-- Mean latencies of a session's model calls, without values that nobody can have measured.
-- Grain:  session_id.
select session_id,
       avg(latency_ms) filter (isfinite(latency_ms) and latency_ms >= 0) as latency_ms,
       avg(ttft_ms) filter (isfinite(ttft_ms) and ttft_ms >= 0)          as ttft_ms
from model_calls
where ts >= make_timestamptz($from_us)
  and checkpoint in ($candidate, $incumbent)
group by session_id
