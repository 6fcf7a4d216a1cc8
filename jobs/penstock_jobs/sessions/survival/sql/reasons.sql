-- Why lines are unknown after a week.
-- Grain:  reason.
select reason, sum(lines)::double as lines
from written
where fate = 'unknown' and horizon_s = cast(getvariable('week_s') as bigint)
group by reason
order by lines desc, reason
