-- The sessions beside one in a list: the next that is newer, and the next that is older.
-- Grain:  side.
-- The conditions are those of the list.
(select 'newer' as side, session_id
 from sessions
 where {conditions} and {ahead}
 order by last_ts, session_id
 limit 1)
union all
(select 'older' as side, session_id
 from sessions
 where {conditions} and {behind}
 order by last_ts desc, session_id desc
 limit 1)
