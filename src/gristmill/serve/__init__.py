"""The HTTP server: OpenAI's and Anthropic's APIs over an `LLM`. The only folder that imports an HTTP stack."""
