-- The events of one segment of a made lake: some events of each of many sessions.
SELECT
    'default'                                           AS tenant,
    's-' || lpad(session_no::varchar, 9, '0')           AS session_id,
    $begins + to_seconds(session_no * $session_s + event_no * 7 + $segment * $segment_s) AS ts,
    ($segment * 100 + event_no)::bigint                 AS seq,
    CASE event_no % 5
        WHEN 0 THEN 'user_message'
        WHEN 1 THEN 'model_call'
        WHEN 2 THEN 'tool_result'
        WHEN 3 THEN 'edit'
        ELSE 'file_observed'
    END                                                 AS type,
    'e-' || ($segment * 100 + event_no)                 AS event_id,
    'made'                                              AS source,
    NULL::varchar                                       AS source_key,
    'ckpt-' || lpad((session_no // 5000)::varchar, 4, '0') AS checkpoint,
    'u-' || (session_no % 997)                          AS "user",
    'p' || (session_no % 50)                            AS project,
    'train'                                             AS consent,
    CASE event_no % 5
        WHEN 0 THEN '{"text":"please look at number ' || session_no || '"}'
        WHEN 1 THEN '{"text":"done","usage":{"prompt":1200,"completion":80}}'
        WHEN 2 THEN '{"tool":"read","ok":true,"output":"' || session_no * 7919 || '"}'
        WHEN 3 THEN '{"path":"a.py","before":"x = ' || event_no || '","after":"x = ' || session_no || '"}'
        ELSE '{"path":"a.py","text":"x = ' || session_no || '"}'
    END                                                 AS payload,
    NULL::varchar                                       AS extra,
    1::smallint                                         AS schema_version,
    $begins + to_seconds(session_no * $session_s + $segment * $segment_s) AS received_at,
    unhex(md5($segment || '-' || session_no || '-' || event_no)) AS key
FROM (SELECT unnest(range($first_session, $first_session + $sessions)) AS session_no)
CROSS JOIN (SELECT unnest(range(0, $events)) AS event_no)
ORDER BY tenant, session_id, ts, seq
