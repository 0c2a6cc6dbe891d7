// The user's settings, kept in localStorage. An empty string means "the server's default", so
// nothing is sent that the user did not change.

import type { ChangedOptions, ServerProps } from './protocol';

const kStorageKey = 'spa.settings';

export class Settings {
  compare = $state(false);
  cache = $state('');
  left_cache = $state('');
  right_cache = $state('');
  // By cache, because no option of one cache means anything to another.
  cache_options: Record<string, string> = $state({});
  decoding: Record<string, string> = $state({}); // by request field
  panel_open = $state(true); // beside the conversation, where there is room for it

  constructor() {
    const saved = ReadStorage();
    this.compare = saved.compare === true;
    this.cache = Text(saved.cache);
    this.left_cache = Text(saved.left_cache);
    this.right_cache = Text(saved.right_cache);
    this.panel_open = saved.panel_open !== false;
    for (const [option, text] of Object.entries(saved.decoding ?? {})) {
      this.decoding[option] = Text(text);
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
    this.decoding = {};
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
    for (const [option, text] of Object.entries(this.decoding)) {
      if (text.trim() !== '') changed[option] = Value(text.trim());
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
    options[key] = Value(value);
  }
  return options;
}

// The same text with one option set, or left out for an empty value.
export function WithCacheOption(text: string, name: string, value: string): string {
  const options: Record<string, number | string> = { ...ReadCacheOptions(text), [name]: value };
  return Object.entries(options)
    .filter(([, shown]) => shown !== '')
    .map((pair) => pair.join('='))
    .join(' ');
}

// As far as they can be understood.
export function ReadCacheOptions(text: string): Record<string, number | string> {
  try {
    return ParseCacheOptions(text);
  } catch {
    return {};
  }
}

// The server checks values; numbers go as numbers.
function Value(text: string): number | string {
  return Number.isFinite(Number(text)) ? Number(text) : text;
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
