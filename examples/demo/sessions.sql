-- All sessions in which the agent said something. Each is compared with all others.
select session_id, 'all' as stratum
from sessions
where model_calls > 0
order by session_id
