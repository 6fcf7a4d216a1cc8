-- What checkpoints scored at the suite.
-- Grain:  checkpoint.
-- Order:  checkpoint.
select checkpoint, avg(score) as score
from benchmark_scores
where status = 'scored'
group by checkpoint
order by checkpoint
