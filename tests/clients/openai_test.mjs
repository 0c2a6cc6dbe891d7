// The server as OpenAI's Node package sees it: the core cases of openai_test.py.
// Starts nothing: SPA_URL is a server of the embedded model, SPA_KEY its key.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

// The package is installed in the build folder, which is not above this file.
const require = createRequire(process.env.SPA_NODE_MODULES + "/");
const OpenAI = require("openai");

const url = process.env.SPA_URL;
const key = process.env.SPA_KEY;
const model = "minillada";
const question = "False or not ( True ) is";
const slow = { max_tokens: 768, block_length: 768, cache: "none" };

const connect = (options) =>
  new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0, timeout: 60000, ...options });
const client = connect();

const ask = (options = {}, content = question) =>
  client.chat.completions.create(
    { model, messages: [{ role: "user", content }], max_tokens: 64, ...options });
const complete = (prompt, options = {}) =>
  client.completions.create({ model, prompt, max_tokens: 32, ...options });
const textOf = (answer) => answer.choices[0].message.content;

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const joined = (chunks) => chunks.map((c) => c.choices[0]?.delta.content ?? "").join("");

async function metric(name) {
  const answer = await fetch(url + "/metrics", { headers: { Authorization: "Bearer " + key } });
  const line = (await answer.text()).split("\n").find((l) => l.startsWith(`dlm_${name} `));
  return Number(line.split(" ")[1]);
}

async function waitFor(condition, seconds = 15) {
  for (let i = 0; i < seconds * 10; ++i) {
    if (await condition()) return true;
    await new Promise((done) => setTimeout(done, 100));
  }
  return false;
}

const refusedFor = (param) => (error) =>
  error instanceof OpenAI.BadRequestError && error.param === param;

const plain = await ask();

test("chat", () => {
  assert.equal(plain.object, "chat.completion");
  assert.equal(plain.choices[0].message.role, "assistant");
  assert.equal(plain.choices[0].finish_reason, "stop");
  const { prompt_tokens, completion_tokens, total_tokens } = plain.usage;
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
});

test("content as parts", async () => {
  const parts = [question.slice(0, 9), question.slice(9)].map((text) => ({ type: "text", text }));
  assert.equal(textOf(await ask({}, parts)), textOf(plain));
});

test("completion of strings and of token ids", async () => {
  const texts = async (prompt) => (await complete(prompt)).choices.map((c) => c.text);
  assert.deepEqual(await texts([question, "is"]),
                   [...(await texts(question)), ...(await texts("is"))]);
  assert.deepEqual(await texts([[40, 41], [42]]),
                   [...(await texts([40, 41])), ...(await texts([42]))]);
});

test("a stream equals the whole answer", async () => {
  const stream = await ask({ stream: true, stream_options: { include_usage: true } });
  const chunks = await collect(stream);
  assert.equal(joined(chunks), textOf(plain));
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, plain.usage);
});

test("stop strings", async () => {
  const text = textOf(plain);
  for (const stop of ["Answer", ["never said", text.slice(8, 14)]]) {
    const cut = text.slice(0, text.indexOf([stop].flat().at(-1)));
    assert.equal(textOf(await ask({ stop })), cut);
    assert.equal(joined(await collect(await ask({ stop, stream: true }))), cut);
  }
});

test("seed", async () => {
  const sample = async (seed) => textOf(await ask({ temperature: 3, seed }));
  const samples = [await sample(0), await sample(1), await sample(2), await sample(3)];
  assert.equal(await sample(0), samples[0]);
  assert.ok(new Set(samples).size > 1);
});

test("several answers", async () => {
  const answer = await ask({ n: 2 });
  assert.deepEqual(answer.choices.map((c) => c.index), [0, 1]);
});

test("max_tokens", async () => {
  const answer = await ask({ max_tokens: 3 });
  assert.equal(answer.usage.completion_tokens, 3);
  assert.equal(answer.choices[0].finish_reason, "length");
});

test("mask text is text", async () => {
  const [masked, without] = [await ask({}, "is<|mdm_mask|>"), await ask({}, "is")];
  assert.ok(masked.usage.prompt_tokens > without.usage.prompt_tokens + 1);
});

test("diffusion fields", async () => {
  const answer = await ask({ cache: "none", steps: 16, block_length: 16, threshold: 0.9 });
  assert.equal(answer.dlm.stats[0].cache, "none");
  const chunks = await collect(await ask({ stream: true, stream_diffusion: true }));
  assert.equal(joined(chunks), textOf(plain));
  assert.ok(chunks.some((c) => c.dlm?.frame?.tokens.length === 64));
});

test("refusals", async () => {
  await assert.rejects(ask({ block_lenght: 8 }), refusedFor("block_lenght"));
  await assert.rejects(ask({ logprobs: true }), refusedFor("logprobs"));
  await assert.rejects(ask({ tools: [{ type: "function", function: { name: "f" } }] }),
                       refusedFor("tools"));
  await assert.rejects(ask({ stop: Array.from({ length: 17 }, String) }), refusedFor("stop"));
  await assert.rejects(ask({ stream: true, n: 0 }), refusedFor("n"));
  await assert.rejects(ask({}, "True and ".repeat(3000)),
                       (error) => error.code === "context_length_exceeded");
  await assert.rejects(ask({ model: "another" }), OpenAI.NotFoundError);
});

test("wrong key", async () => {
  await assert.rejects(connect({ apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
});

test("models", async () => {
  assert.deepEqual((await collect(client.models.list())).map((m) => m.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve("another"), OpenAI.NotFoundError);
});

test("a cancelled stream frees its place", async () => {
  const before = await metric("requests_cancelled_total");
  const stream = await ask({ stream: true, ...slow });
  for await (const chunk of stream) break;  // leaving the loop aborts the request
  assert.ok(await waitFor(async () => (await metric("requests_running")) === 0));
  assert.equal(await metric("requests_cancelled_total"), before + 1);
});
