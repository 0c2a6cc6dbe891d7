// Talks to the server. Addresses are relative, so the page also works behind a proxy's subfolder.

import type {
  ChangedOptions,
  Chunk,
  Message,
  ModelEntry,
  OptionTable,
  ServerProps,
} from './protocol';

export class ServerError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export async function FetchProps(key: string): Promise<ServerProps> {
  const response = await Send('props', { headers: AuthHeaders(key) });
  return response.json();
}

export async function FetchModel(id: string, key: string): Promise<ModelEntry | undefined> {
  const response = await Send('v1/models', { headers: AuthHeaders(key) });
  const { data } = (await response.json()) as { data: ModelEntry[] };
  return data.find((model) => model.id === id);
}

// Null from a server that has no table.
export async function FetchOptions(key: string): Promise<OptionTable | null> {
  try {
    return await (await Send('v1/options', { headers: AuthHeaders(key) })).json();
  } catch (error) {
    if (error instanceof ServerError && error.status === 404) return null;
    throw error;
  }
}

// Yields the chunks of one answer as they arrive.
export async function* StreamAnswer(
  messages: Message[],
  options: ChangedOptions,
  key: string,
  signal: AbortSignal,
): AsyncGenerator<Chunk> {
  const response = await Send('v1/chat/completions', {
    method: 'POST',
    headers: { ...AuthHeaders(key), 'Content-Type': 'application/json' },
    body: JSON.stringify({
      messages,
      stream: true,
      stream_options: { include_usage: true },
      stream_diffusion: true,
      ...options,
    }),
    signal,
  });
  for await (const data of ReadEvents(response.body!)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new ServerError(chunk.error.message, response.status);
    yield chunk;
  }
  // Without this an answer cut by a dying server would pass for a finished one.
  throw new ServerError('The connection ended before the answer did.', response.status);
}

function AuthHeaders(key: string): Record<string, string> {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function Send(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ServerError('The server does not answer. Is it still running?', 0);
  }
  if (!response.ok) throw new ServerError(await ErrorMessage(response), response.status);
  return response;
}

async function ErrorMessage(response: Response): Promise<string> {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim() + '.';
  }
}

// The data of server-sent events. Comments and fields other than `data` are skipped.
async function* ReadEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop()!;
      for (const raw_line of lines) {
        const line = raw_line.replace(/\r$/, '');
        if (line.startsWith('data:')) {
          data.push(line.slice(5).trimStart());
        } else if (line === '' && data.length > 0) {
          yield data.join('\n');
          data = [];
        }
      }
    }
  } finally {
    // Reached early when the reader of the answer leaves: the server then stops computing.
    reader.cancel().catch(() => {});
  }
}
