"""What the user wrote after the agent acted, and what it says about the agent's work.

`follow_ups` finds the follow-ups of a bucket, a judge labels them: `local_judge` needs nothing but
this package, `llm_judge` asks a model behind an OpenAI-compatible address. `judge` has the labels,
and says how good a judge is on labelled examples.
"""
