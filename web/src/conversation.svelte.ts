// The turns of a conversation and the one request that may be under way. Questions, answers and
// numbers are stored across reloads; the steps take megabytes and are not.

import type { Message, ServerProps } from './protocol';
import { Run, type SavedRun } from './run.svelte';
import type { Settings } from './settings.svelte';
import { Turn } from './turn.svelte';

// The steps of a long answer take megabytes; those of older turns are let go.
const kMaxTurnsWithFrames = 12;

const kStorageKey = 'spa.conversation';

interface SavedTurn {
  question: string;
  template?: string;
  runs: SavedRun[];
}

export class Conversation {
  turns: Turn[] = $state.raw([]);
  busy = $state(false);
  announcement = $state(''); // for screen readers: whole answers, never single tokens

  private abort = new AbortController();

  constructor() {
    this.turns = ReadTurns().map(({ question, template = '', runs }, i) => {
      const turn = new Turn(i, question, template, runs.map(Run.Restore));
      turn.is_restored = true;
      turn.expanded = false;
      return turn;
    });
  }

  // Throws what the settings refuse, and the server's refusal of the key. A model that knows a single
  // turn gets the question alone. A template is the answer with gaps, or empty.
  async Ask(
    question: string,
    template: string,
    settings: Settings,
    props: ServerProps,
    key: string,
    is_single_turn: boolean,
  ) {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const runs = settings.Caches(props).map((cache) => {
      const options = settings.Changed(cache, props);
      // Two caches are compared on the same random choices.
      if (settings.compare && Number(options.temperature ?? 0) > 0) options.seed ??= seed;
      if (template !== '') {
        // Its gaps have their lengths.
        delete options.max_tokens;
        delete options.block_length;
        delete options.steps;
        options.template = template;
      }
      return new Run(cache, options);
    });
    const history = is_single_turn ? [] : this.History();
    const messages: Message[] = [...history, { role: 'user', content: question }];
    const turn = new Turn(Date.now(), question, template, runs);
    for (const old of this.turns) {
      old.Skip();
      old.expanded = false;
    }
    this.turns.at(-kMaxTurnsWithFrames)?.runs.forEach((run) => run.DropFrames());
    this.turns = [...this.turns, turn];

    this.busy = true;
    this.abort = new AbortController();
    this.announcement = 'Answering.';
    turn.Watch();
    this.Save();
    try {
      // One after the other, or they would slow each other down.
      for (const run of runs) {
        await run.Start(messages, key, this.abort.signal);
        if (run.status === 'done') this.announcement = `${run.cache} answered: ${run.text}`;
        if (run.status === 'stopped') {
          turn.Skip();
          this.announcement = `Stopped: ${run.text}`;
          break;
        }
      }
    } finally {
      this.busy = false;
      this.Save();
    }
  }

  Stop() {
    this.abort.abort();
  }

  Clear() {
    this.Stop();
    for (const turn of this.turns) turn.Pause();
    this.turns = [];
    this.Save();
    this.announcement = 'New conversation.';
  }

  private Save() {
    const saved: SavedTurn[] = this.turns.map(({ question, template, runs }) => ({
      question,
      template,
      runs: runs.map((run) => run.Saved()),
    }));
    try {
      localStorage.setItem(kStorageKey, JSON.stringify(saved));
    } catch {
      // Storage may be full or switched off; the conversation then lives as long as the page.
    }
  }

  // Of two answers the first is the one that the conversation goes on with. Questions without an
  // answer are left out: most models have never seen two questions in a row.
  private History(): Message[] {
    return this.turns
      .filter((turn) => turn.runs[0].text !== '')
      .flatMap((turn): Message[] => [
        { role: 'user', content: turn.question },
        { role: 'assistant', content: turn.runs[0].text },
      ]);
  }
}

function ReadTurns(): SavedTurn[] {
  try {
    return JSON.parse(localStorage.getItem(kStorageKey) ?? '[]') ?? [];
  } catch {
    return [];
  }
}
