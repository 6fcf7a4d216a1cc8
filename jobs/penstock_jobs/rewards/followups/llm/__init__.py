"""The judge that asks a language model behind an OpenAI-compatible address."""
