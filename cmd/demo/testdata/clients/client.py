"""Talks to demo serve with OpenAI's own client for Python: client.py URL."""

import sys

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none")
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
first = [{"role": "user", "content": "My name is Anna."}]
said = client.chat.completions.create(model=model, messages=first, temperature=0)
assert said.choices[0].message.content == "Hello Anna!", said
assert said.choices[0].finish_reason == "stop"
assert said.usage.prompt_tokens_details.cached_tokens == 0

second = first + [{"role": "assistant", "content": said.choices[0].message.content}, {"role": "user", "content": "What is my name?"}]
text, usage, roles = "", None, []
for event in client.chat.completions.create(
    model=model, messages=second, temperature=0, stream=True, stream_options={"include_usage": True}
):
    if event.usage:
        usage = event.usage
    for choice in event.choices:
        text += choice.delta.content or ""
        roles.append(choice.delta.role)
assert text == "Your name is Anna.", text
assert roles[0] == "assistant" and usage.prompt_tokens_details.cached_tokens >= said.usage.prompt_tokens, usage

again = [
    client.chat.completions.create(model=model, messages=first, n=3, seed=5, max_completion_tokens=8, logprobs=True, top_logprobs=2)
    for _ in range(2)
]
assert [c.message.content for c in again[0].choices] == [c.message.content for c in again[1].choices]
assert len(again[0].choices) == 3 and len(again[0].choices[0].logprobs.content[0].top_logprobs) == 2
other = client.chat.completions.create(model=model, messages=first, max_tokens=1, extra_body={"cache_salt": "another"})
assert other.usage.prompt_tokens_details.cached_tokens == 0, other.usage

done = client.completions.create(model=model, prompt=["My name is", "What"], max_tokens=4, n=2, logprobs=1)
assert len(done.choices) == 4 and done.usage.completion_tokens == 16, done
parts = list(client.completions.create(model=model, prompt="My name is", max_tokens=4, stream=True, stop=["zzz"]))
assert parts[-1].choices[0].finish_reason == "length"
for wrong, kind in [({"model": "none"}, NotFoundError), ({"temperature": 9}, BadRequestError), ({"max_tokens": 0}, BadRequestError)]:
    try:
        client.chat.completions.create(**({"model": model, "messages": first} | wrong))
        raise SystemExit(f"{wrong} was not refused")
    except kind as e:
        assert e.body["type"] == "invalid_request_error", e.body
print("the Python client is served")
