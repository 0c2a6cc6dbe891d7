// The words of the server: what GET /props says, what a chat request holds, and what the events of
// an answer carry.

export interface ServerProps {
  version: string;
  model: { id: string; family: string; layers: number; context: number };
  defaults: Partial<Record<DecodingOption, number | string>> & { cache: string };
  caches: { name: string; summary: string }[];
  remasking: string[];
  limits: { max_tokens: number; parallel: number; queue: number };
  examples: string[];
}

export type DecodingOption =
  | 'max_tokens'
  | 'steps'
  | 'block_length'
  | 'remasking'
  | 'temperature'
  | 'threshold'
  | 'seed';

export interface Message {
  role: 'user' | 'assistant';
  content: string;
}

// What the user changed, and nothing else: the server fills in its own defaults.
export type ChangedOptions = Partial<Record<DecodingOption, number | string>> & {
  cache?: string;
  cache_options?: Record<string, number | string>;
};

// The canvas after one step. The lists have one entry per position of the answer.
export interface Frame {
  step: number;
  block: [number, number]; // half-open range of answer positions in work
  tokens: (string | null)[]; // null: nothing known; "": an end token
  settled: number[];
  confidence: (number | null)[];
  prompt_tokens: number;
  // Per layer, half-open runs [begin, end, begin, end, ...] over prompt and answer.
  rows: number[][];
}

export interface Stats {
  cache: string;
  steps: number;
  seconds: number;
  queue_seconds: number;
  tokens_per_second: number;
  rows_computed: number;
  rows_total: number;
  cache_bytes: number;
}

export interface Chunk {
  choices: { delta: { content?: string }; finish_reason: 'stop' | 'length' | null }[];
  dlm?: { frame?: Frame; stats?: Stats };
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
  error?: { message: string };
}
