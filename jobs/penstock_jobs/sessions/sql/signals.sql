-- A row a message of a user: what the newest definition makes of it, beside what people said.
with newest as (
    select arg_max(definition_version, computed_at) as version from outcomes
    where listed
),
signals as (
    select session_id, target_id as turn,
           list({{'name': name, 'horizon_s': horizon_s, 'value': value}}
                order by name, horizon_s) as rewards
    from rewards
    where target_kind = 'turn' and state = 'scored' and superseded_at is null
      and definition_version = (select version from newest)
    group by session_id, target_id
),
said as (
    select session_id, turn,
           arg_max(label, labelled_at) filter (where not is_model) as label,
           arg_max(label, labelled_at) filter (where is_model)     as label_of_model
    from labels
    where superseded_at is null and label is not null
    group by session_id, turn
)
select turns.session_id, turns.turn, turns.text, said.label, said.label_of_model,
       signals.rewards, outcomes.outcome, outcomes.value as session_value
from turns
left join said    on said.session_id = turns.session_id and said.turn = turns.turn
left join signals on signals.session_id = turns.session_id and signals.turn = turns.turn::varchar
left join outcomes on outcomes.session_id = turns.session_id and outcomes.superseded_at is null
                  and outcomes.definition_version = (select version from newest)
where turns.turn > 0 and turns.session_id in ({sessions})
order by turns.session_id, turns.turn
