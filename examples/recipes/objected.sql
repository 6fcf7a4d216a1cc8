-- Sessions in which the user spoke again, a tool failed, or tests did.
select session_id from sessions where user_messages > 1
union
select session_id from tool_calls where not ok
union
select session_id from events where type = 'test_result'
