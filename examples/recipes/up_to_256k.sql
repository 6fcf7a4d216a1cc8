-- As up_to_32k.sql, above its bound.
with calls as (
    select
        session_id,
        max(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)) as counted,
        sum(coalesce(length(text), 0) + coalesce(length(thinking), 0)) // 4 as estimated
    from model_calls
    group by session_id
)

select session_id
from calls
where case when counted > 0 then counted else estimated end between 32769 and 262144
order by session_id
