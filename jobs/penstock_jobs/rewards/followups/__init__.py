"""What the user wrote after the agent acted, and what it says about the agent's work.

`finding` finds the follow-ups of a bucket, a `Judge` labels them: `local` needs nothing but this
package, `llm` asks a model behind an OpenAI-compatible address. `evaluation` says how good one is.
"""
