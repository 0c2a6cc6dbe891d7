// The user's settings, kept in localStorage. An empty string means "the server's default", so
// nothing is sent that the user did not change.

import type { ChangedOptions, DecodingOption, ServerProps } from './protocol';

const kStorageKey = 'spa.settings';

export const kDecodingOptions: DecodingOption[] = [
  'max_tokens',
  'steps',
  'block_length',
  'remasking',
  'temperature',
  'threshold',
  'seed',
];

export class Settings {
  compare = $state(false);
  cache = $state('');
  left_cache = $state('');
  right_cache = $state('');
  // By cache, because no option of one cache means anything to another.
  cache_options: Record<string, string> = $state({});
  decoding: Record<DecodingOption, string> = $state({
    max_tokens: '',
    steps: '',
    block_length: '',
    remasking: '',
    temperature: '',
    threshold: '',
    seed: '',
  });
  panel_open = $state(true); // beside the conversation, where there is room for it

  constructor() {
    const saved = ReadStorage();
    this.compare = saved.compare === true;
    this.cache = Text(saved.cache);
    this.left_cache = Text(saved.left_cache);
    this.right_cache = Text(saved.right_cache);
    this.panel_open = saved.panel_open !== false;
    for (const option of kDecodingOptions) {
      this.decoding[option] = Text(saved.decoding?.[option]);
    }
    for (const [cache, text] of Object.entries(saved.cache_options ?? {})) {
      this.cache_options[cache] = Text(text);
    }
  }

  Save() {
    const { compare, cache, left_cache, right_cache, cache_options, decoding, panel_open } = this;
    const saved = { compare, cache, left_cache, right_cache, cache_options, decoding, panel_open };
    try {
      localStorage.setItem(kStorageKey, JSON.stringify(saved));
    } catch {
      // Storage may be switched off; the settings then live as long as the page.
    }
  }

  Reset() {
    this.cache = this.left_cache = this.right_cache = '';
    this.cache_options = {};
    for (const option of kDecodingOptions) this.decoding[option] = '';
  }

  // A saved cache may be one that this server lacks: then the fallback counts.
  Cache(side: 'cache' | 'left_cache' | 'right_cache', props: ServerProps): string {
    const has_cache = (name: string) => props.caches.some((cache) => cache.name === name);
    if (has_cache(this[side])) return this[side];
    return side === 'left_cache' && has_cache('none') ? 'none' : props.defaults.cache;
  }

  // The caches of the next answer, one or two.
  Caches(props: ServerProps): string[] {
    return this.compare
      ? [this.Cache('left_cache', props), this.Cache('right_cache', props)]
      : [this.Cache('cache', props)];
  }

  // Throws an Error with a sentence for the user when a field cannot be understood.
  Changed(cache: string, props: ServerProps): ChangedOptions {
    const changed: ChangedOptions = {};
    for (const option of kDecodingOptions) {
      const text = this.decoding[option].trim();
      if (text === '') continue;
      changed[option] = option === 'remasking' ? text : ParseNumber(option, text);
    }
    if (cache !== props.defaults.cache) changed.cache = cache;
    const options = ParseCacheOptions(this.cache_options[cache] ?? '');
    if (Object.keys(options).length > 0) changed.cache_options = options;
    return changed;
  }
}

// "rank=16, scope=all" -> { rank: 16, scope: 'all' }
export function ParseCacheOptions(text: string): Record<string, number | string> {
  const options: Record<string, number | string> = {};
  for (const pair of text.split(/[\s,;]+/).filter(Boolean)) {
    const [, key, value] = /^([^=]+)=(.+)$/.exec(pair) ?? [];
    if (key === undefined) {
      throw new Error(`Cache options are key=value pairs; "${pair}" is not one.`);
    }
    options[key] = Number.isFinite(Number(value)) ? Number(value) : value;
  }
  return options;
}

function ParseNumber(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error(`${name} must be a number, not "${text}".`);
  return value;
}

function Text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function ReadStorage() {
  try {
    return JSON.parse(localStorage.getItem(kStorageKey) ?? '{}') ?? {};
  } catch {
    return {};
  }
}
