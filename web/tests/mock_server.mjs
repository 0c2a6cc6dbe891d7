// Stands in for `spa serve` where there is no binary: serves the built page and speaks its API,
// with answers from a table and made-up rows. `node tests/mock_server.mjs [PORT [KEY]]`.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const kPage = fileURLToPath(new URL('../dist/index.html', import.meta.url));
const kLayers = 10;
const kBlockLength = 32;
const kQueueSeconds = 60; // told, not spent
const kStepMs = { none: 12, spa: 5, 'fast-dual': 6 };

const kAnswers = {
  'False or not ( True ) is': 'False or not True => False or True => True. Answer: True',
  'not ( True and False ) or False is':
    'not ( True and False ) or False => not False or False => True or False => True. Answer: True',
  'Close the brackets: [ < ( )': 'Open: [ <. Answer: > ]',
};

const kProps = {
  version: '0.1.0',
  model: { id: 'minillada', family: 'llada', layers: kLayers, context: 1024, infills: true },
  defaults: {
    max_tokens: 128,
    block_length: kBlockLength,
    remasking: 'low_confidence',
    temperature: 0,
    cache: 'spa',
  },
  caches: [
    { name: 'none', summary: 'every row, every layer, every step: exact' },
    { name: 'spa', summary: 'rows whose low-rank value proxy moved most, up to a budget per layer' },
    { name: 'fast-dual', summary: 'all rows once per block, then the block alone' },
  ],
  remasking: ['low_confidence', 'random', 'entropy', 'leftmost'],
  limits: { max_tokens: 1024, parallel: 4, queue: 64 },
  examples: Object.keys(kAnswers),
};

const kOptions = {
  decode: [
    { name: 'gen-length', type: 'count', default: '128', help: 'Length of the canvas', min: 1, max: 1024 },
    { name: 'steps', type: 'count', default: 'one per token', help: 'Steps', min: 1, max: 1024 },
    { name: 'top-k', type: 'count', default: '0: all', help: 'Keep the K likeliest', min: 0, max: 1e9 },
    { name: 'early-stop', type: 'flag', default: 'on', help: 'Stop when the answer has ended' },
  ],
  caches: [
    { name: 'none', help: '', options: [] },
    {
      name: 'spa',
      help: '',
      options: [
        { name: 'rank', type: 'count', default: 'the model\u2019s', help: 'Of the proxy', min: 1, max: 512 },
        { name: 'scope', type: 'choice', default: 'gen', help: 'Rows', choices: ['gen', 'all'] },
        { name: 'profile', type: 'text', default: 'auto', help: 'A file, auto or off' },
      ],
    },
    { name: 'fast-dual', help: '', options: [] },
  ],
};

const kFields = new Set([
  ...['messages', 'stream', 'stream_options', 'stream_diffusion', 'max_tokens', 'steps'],
  ...['block_length', 'remasking', 'temperature', 'threshold', 'seed', 'cache', 'cache_options'],
  ...['top_k', 'early_stop', 'template'],
]);

export function StartMock({
  port = 0,
  key = '',
  has_options = true,
  single_turn = false,
  knows = undefined,
} = {}) {
  const server = createServer(async (request, response) => {
    try {
      if (request.url === '/') {
        response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' });
        response.end(readFileSync(kPage));
      } else if (key && request.headers.authorization !== `Bearer ${key}`) {
        Refuse(response, 401, 'Give the key that the server was started with.');
      } else if (request.url === '/props') {
        response.writeHead(200, { 'Content-Type': 'application/json' });
        response.end(JSON.stringify(kProps));
      } else if (request.url === '/v1/models') {
        response.writeHead(200, { 'Content-Type': 'application/json' });
        const model = { id: kProps.model.id, object: 'model', single_turn, knows };
        response.end(JSON.stringify({ object: 'list', data: [model] }));
      } else if (request.url === '/v1/options' && has_options) {
        response.writeHead(200, { 'Content-Type': 'application/json' });
        response.end(JSON.stringify(kOptions));
      } else if (request.url === '/v1/chat/completions' && request.method === 'POST') {
        await Complete(JSON.parse(await ReadBody(request)), response);
      } else {
        Refuse(response, 404, `There is nothing at ${request.url}.`);
      }
    } catch (error) {
      Refuse(response, 400, error.message);
    }
  });
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

function Refuse(response, status, message) {
  response.writeHead(status, { 'Content-Type': 'application/json' });
  const type = 'invalid_request_error';
  response.end(JSON.stringify({ error: { message, type, param: null, code: null } }));
}

async function ReadBody(request) {
  let body = '';
  for await (const part of request) body += part;
  return body;
}

async function Complete(query, response) {
  for (const field of Object.keys(query)) {
    if (!kFields.has(field)) throw new Error(`There is no field "${field}".`);
  }
  if (query.max_tokens < 1) throw new Error('max_tokens must be at least 1.');
  const cache = query.cache ?? kProps.defaults.cache;
  if (!(cache in kStepMs)) throw new Error(`There is no cache "${cache}".`);
  for (const option of Object.keys(query.cache_options ?? {})) {
    if (!['rank', 'scope', 'profile'].includes(option)) throw new Error(`Cache ${cache} has no option "${option}".`);
  }
  const question = query.messages.at(-1).content;

  let gone = false;
  response.on('close', () => (gone = true));
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  const Say = (value) => response.write(`data: ${JSON.stringify(value)}\n\n`);
  const SayChunk = (delta, finish_reason, dlm) => {
    const choices = [{ index: 0, delta, finish_reason }];
    const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1 };
    Say({ ...head, model: kProps.model.id, choices, ...(dlm && { dlm }) });
  };

  const start_ms = performance.now();
  const step_ms = kStepMs[cache] * (question.startsWith('slowly: ') ? 60 : 1);
  const run = new Denoiser(query, cache, question);
  const gaps = run.Gaps();
  let first_text_seconds = 0;
  SayChunk({ role: 'assistant', content: '' }, null);
  response.write(': a comment\n\n');
  while (!gone && run.Step()) {
    if (question.startsWith('slowly: ') && run.step === 1) {
      for (let layer = 1; layer < kLayers && !gone; ++layer) {
        await Sleep(2 * step_ms);
        SayChunk({}, null, { progress: { layer, layers: kLayers } });
      }
    }
    await Sleep(step_ms);
    if (question === 'fail in the middle' && run.step === 8) {
      Say({ error: { message: 'The model ran out of memory.', type: 'server_error' } });
      return response.end();
    }
    if (query.stream_diffusion) SayChunk({}, null, { frame: run.Frame() });
    const text = run.NewText();
    if (text) first_text_seconds ||= (performance.now() - start_ms) / 1000;
    if (text) SayChunk({ content: text }, null);
  }
  if (gone) return;
  const seconds = (performance.now() - start_ms) / 1000;
  SayChunk({}, 'stop', {
    stats: {
      cache,
      steps: run.step,
      seconds,
      queue_seconds: kQueueSeconds,
      first_text_seconds: kQueueSeconds + first_text_seconds,
      tokens_per_second: run.answer.length / seconds,
      rows_computed: run.rows_computed,
      rows_total: run.rows_total,
      cache_bytes: cache === 'none' ? 0 : 2479400,
    },
    ...(gaps && { gaps }),
  });
  const usage = { prompt_tokens: run.num_prompt, completion_tokens: run.answer.length };
  Say({ choices: [], usage: { ...usage, total_tokens: run.num_prompt + run.answer.length } });
  response.end('data: [DONE]\n\n');
}

// Settles one known token per step in a random order, block by block.
class Denoiser {
  step = 0;
  rows_computed = 0;
  rows_total = 0;
  sent = 0;

  constructor(query, cache, question) {
    this.cache = cache;
    this.random = Random(query.seed ?? 1);
    const text = kAnswers[question] ?? `No answer is known to this question: ${question}`;
    this.answer = text.match(/\s*\S+/g);
    // Other than exact caches may answer otherwise; this one does when asked to.
    if (query.cache_options?.rank === 1) this.answer = [...this.answer.slice(0, -1), ' False'];
    // Of a template, words are tokens and every gap is filled with counted ones.
    this.pieces = query.template?.split(/(\{\{mask(?::\d+)?\}\})/) ?? null;
    this.given = null;
    if (this.pieces) {
      const words = this.pieces.flatMap((piece) => {
        const [, length] = /^\{\{mask:?(\d*)\}\}$/.exec(piece) ?? [];
        if (length === undefined) return (piece.match(/\s*\S+\s*$|\s*\S+/g) ?? []).map((text) => ({ text, given: 1 }));
        return Array.from({ length: Number(length || 16) }, (_, i) => ({ text: `<${i}>`, given: 0 }));
      });
      this.answer = words.map((word) => word.text);
      this.given = words.map((word) => word.given);
      query.max_tokens = this.answer.length;
    }
    this.num_canvas = query.max_tokens ?? kProps.defaults.max_tokens;
    this.num_prompt = query.messages.map((m) => m.content).join(' ').split(/\s+/).length + 8;
    this.tokens = Array.from({ length: this.num_canvas }, (_, pos) => this.answer[pos] ?? '');
    this.settled = this.given ? [...this.given] : new Array(this.num_canvas).fill(0);
    this.confidence = new Array(this.num_canvas).fill(null);
    this.block_length = query.block_length ?? kBlockLength;
    if (this.given) this.block_length = this.num_canvas;
    this.block = [0, Math.min(this.block_length, this.num_canvas)];
  }

  // What fills the gaps of the template.
  Gaps() {
    if (!this.given) return null;
    const gaps = [];
    this.given.forEach((given, pos) => {
      if (given) return;
      if (pos === 0 || this.given[pos - 1]) gaps.push('');
      gaps[gaps.length - 1] += this.answer[pos];
    });
    return gaps;
  }

  // False once the block with the answer's end is complete.
  Step() {
    const open = this.Open();
    if (open.length === 0) {
      if (this.block[1] > this.answer.length || this.block[1] === this.num_canvas) return false;
      this.block = [this.block[1], Math.min(this.block[1] + this.block_length, this.num_canvas)];
      return this.Step();
    }
    ++this.step;
    for (const pos of open) this.confidence[pos] = Round(0.2 + 0.79 * this.random());
    const best = open.reduce((a, b) => (this.confidence[a] >= this.confidence[b] ? a : b));
    this.settled[best] = 1;
    const is_answered = this.block[1] > this.answer.length && this.Open().length === 0;
    if (is_answered) this.settled.fill(1); // with end tokens
    this.rows = Array.from({ length: kLayers }, (_, layer) => this.Rows(layer));
    for (const runs of this.rows) {
      for (let i = 0; i < runs.length; i += 2) this.rows_computed += runs[i + 1] - runs[i];
    }
    this.rows_total += kLayers * (this.num_prompt + this.num_canvas);
    return true;
  }

  Open() {
    const open = [];
    for (let pos = this.block[0]; pos < this.block[1]; ++pos) {
      if (!this.settled[pos]) open.push(pos);
    }
    return open;
  }

  Rows(layer) {
    const end = this.num_prompt + this.num_canvas;
    if (this.cache === 'none' || this.step % this.block_length === 1) return [0, end];
    if (this.cache === 'fast-dual') {
      return this.block.map((pos) => pos + this.num_prompt);
    }
    const share = 0.25 * Math.exp(-(((layer - 5) / 3) ** 2));
    const runs = [];
    for (let row = this.num_prompt; row < end; ++row) {
      const is_near = row - this.num_prompt < this.block[1] ? 2 : 0.5;
      if (this.random() >= share * is_near) continue;
      if (runs.at(-1) === row) runs[runs.length - 1] = row + 1;
      else runs.push(row, row + 1);
    }
    return runs;
  }

  Frame() {
    const IsKnown = (pos) => this.settled[pos] || (pos >= this.block[0] && pos < this.block[1]);
    const kGuesses = [' True', ' False', ' =>', ' or', ''];
    return {
      step: this.step,
      block: this.block,
      tokens: this.tokens.map((token, pos) => {
        if (!IsKnown(pos)) return null;
        const is_sure = this.settled[pos] || this.confidence[pos] > 0.5;
        return is_sure ? token : kGuesses[(pos + this.step) % kGuesses.length];
      }),
      settled: [...this.settled],
      confidence: this.confidence.map((value, pos) => (IsKnown(pos) ? value : null)),
      ...(this.given && { given: this.given }),
      prompt_tokens: this.num_prompt,
      rows: this.rows,
    };
  }

  NewText() {
    const begin = this.sent;
    while (this.sent < this.num_canvas && this.settled[this.sent]) ++this.sent;
    return this.tokens.slice(begin, this.sent).join('');
  }
}

function Random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function Round(value) {
  return Math.round(value * 1e4) / 1e4;
}

function Sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [port = 8080, key] = process.argv.slice(2);
  const server = await StartMock({ port: Number(port), key });
  console.log(`http://127.0.0.1:${server.address().port}`);
}
