"""POST /v1/responses: OpenAI's newer API, without a memory: the conversation comes with each request."""
