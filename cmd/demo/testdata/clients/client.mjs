// Talks to demo serve with OpenAI's own client for JavaScript: client.mjs URL.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "My name is Anna." }];
const said = await client.chat.completions.create({ model, messages, temperature: 0 });
assert.equal(said.choices[0].message.content, "Hello Anna!");
messages.push(said.choices[0].message, { role: "user", content: "What is my name?" });
let text = "", usage;
for await (const event of await client.chat.completions.create({
  model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
})) {
  usage = event.usage ?? usage;
  text += event.choices[0]?.delta.content ?? "";
}
assert.equal(text, "Your name is Anna.");
assert.ok(usage.prompt_tokens_details.cached_tokens >= said.usage.prompt_tokens);
const done = await client.completions.create({ model, prompt: "My name is", max_tokens: 4, n: 2, seed: 1 });
assert.equal(done.choices.length, 2);
await assert.rejects(client.chat.completions.create({ model: "none", messages }), OpenAI.NotFoundError);
console.log("the JavaScript client is served");
