// The protocol of the server: what GET /props returns, what a chat request holds, and what the events of
// an answer carry.

export interface ServerProps {
  version: string;
  // infills: it sees what follows a gap
  model: { id: string; family: string; layers: number; context: number; infills?: boolean };
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

// An option as the server describes it (GET /v1/options).
export interface OptionInfo {
  name: string; // with dashes; as a request field with underscores
  type: 'count' | 'number' | 'choice' | 'flag' | 'text';
  min?: number;
  max?: number;
  choices?: string[];
  default: string; // for people
  help: string;
}

export interface OptionTable {
  decode: OptionInfo[];
  caches: { name: string; help: string; options: OptionInfo[] }[];
}

export interface ModelEntry {
  id: string;
  single_turn?: boolean; // knows no second question: each is sent alone
  knows?: string; // the only questions it was taught
}

export interface Message {
  role: 'user' | 'assistant';
  content: string;
}

// What the user changed, and nothing else: the server fills in its own defaults.
export type ChangedOptions = Record<string, number | string | Record<string, number | string>> & {
  cache?: string;
  template?: string; // the answer, with gaps
  cache_options?: Record<string, number | string>;
};

// The canvas after one step. The lists have one entry per position of the answer.
export interface Frame {
  step: number;
  block: [number, number]; // half-open range of answer positions in work
  tokens: (string | null)[]; // null: nothing known; "": an end token
  settled: number[];
  given?: number[]; // of an answer with gaps: 1 where the text stood in the template
  confidence: (number | null)[];
  prompt_tokens: number;
  // Per layer, half-open runs [begin, end, begin, end, ...] over prompt and answer.
  rows: number[][];
}

// Progress of a long step.
export interface StepProgress {
  layer: number;
  layers: number;
}

export interface Stats {
  cache: string;
  steps: number;
  seconds: number;
  queue_seconds: number;
  first_text_seconds: number; // with the time in the queue
  tokens_per_second: number;
  rows_computed: number;
  rows_total: number;
  cache_bytes: number;
}

export interface Chunk {
  choices: { delta: { content?: string }; finish_reason: 'stop' | 'length' | null }[];
  dlm?: { frame?: Frame; progress?: StepProgress; stats?: Stats; gaps?: string[] };
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
  error?: { message: string };
}
