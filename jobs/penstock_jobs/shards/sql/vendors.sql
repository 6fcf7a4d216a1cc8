-- Which of these sessions a vendor's model wrote in, as importers marked them.
-- Grain: session_id.
select session_id, min(payload ->> '$.model') as model, min(payload ->> '$.vendor') as vendor
from events
where type = 'x_vendor_model' and session_id in (select session_id from wanted)
group by session_id
order by session_id
