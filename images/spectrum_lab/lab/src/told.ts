// What the server says of itself, and the sentences that people read of it.

import { localize, showTime } from './times.js';

/** What this server has coming. */
export interface Notice {
  text: string;
  ends_at?: string | null;
  keep?: boolean;
  continue?: boolean;
}

/** Memory of GPUs, in bytes. */
export interface Memory {
  used: number;
  total: number;
}

/**
 * How this server stands at the service; `utilisation` is of its busiest GPU, in percent, `memory`
 * of all its GPUs together. null is what nobody measures.
 */
export interface Standing {
  gpus: number;
  utilisation: number | null;
  memory: Memory | null;
  ends_at: string | null;
  held_until: string | null;
  sentence: string;
}

/**
 * The server's answer. `page`, `board` and `home` are addresses, '' where there is no service or no
 * hub. `standing` is null while nobody knows it, and `silence` is why.
 */
export interface Told {
  warnings: string[];
  notices: Notice[];
  own: boolean;
  page: string;
  board: string;
  home: string;
  standing: Standing | null;
  silence: string;
}

/** A sentence of the banner, and what it offers. */
export interface Message {
  text: string;
  keep?: boolean;
  release?: boolean;
  without?: boolean;
  failed?: boolean;
}

export function readMessages({ warnings, notices }: Told, now: Date): Message[] {
  return [
    ...notices.map(notice => ({
      text: (notice.ends_at ? tellEnd(notice.ends_at, now) : '') + localize(notice.text),
      keep: Boolean(notice.keep),
      release: true,
      without: Boolean(notice.continue)
    })),
    ...warnings.map(text => ({ text: localize(text) }))
  ];
}

/** The nearest end, in milliseconds since 1970; null where nothing ends. */
export function findEnd(moments: (string | null | undefined)[]): number | null {
  const ends = moments.map(each => Date.parse(each ?? '')).filter(end => !Number.isNaN(end));
  return ends.length ? Math.min(...ends) : null;
}

/** A line for the status bar, and what it means; null where there is no service. */
export function tellStanding(told: Told, now: Date): { text: string; meaning: string } | null {
  if (!told.page) {
    return null;
  }
  const { standing, notices } = told;
  const memory = readMemory(standing);
  const end = findEnd([standing?.ends_at, ...notices.map(notice => notice.ends_at)]);
  const parts = [
    tellGpus(standing),
    ...(memory ? [`${memory.used} / ${memory.total} GiB`.replaceAll(' ', '\u00a0')] : []),
    ...(end !== null ? [`ends ${showTime(new Date(end), now)}`] : []),
    ...(end === null && standing?.held_until
      ? [`held until ${showTime(new Date(standing.held_until), now)}`]
      : [])
  ];
  const known = standing ? standing.sentence : told.silence || 'Nothing is known of this server yet.';
  const meaning = [localize(known), ...(memory ? [memory.sentence] : [])].join('\n');
  return { text: parts.join(' · '), meaning };
}

function tellEnd(endsAt: string, now: Date): string {
  return `This server ends at ${showTime(new Date(endsAt), now)}. `;
}

function tellGpus(standing: Standing | null): string {
  if (!standing) {
    return 'GPU not known';
  }
  if (!standing.gpus) {
    return 'No GPU';
  }
  const name = standing.gpus === 1 ? 'GPU' : `${standing.gpus} GPUs`;
  const busy = standing.utilisation;
  return busy === null ? name : `${name} ${Math.round(busy)}\u00a0%`;
}

/** What of their memory is in use, in GiB and in a sentence; null where nobody knows. */
function readMemory(
  standing: Standing | null
): { used: string; total: string; sentence: string } | null {
  if (!standing?.memory) {
    return null;
  }
  const { gpus, memory } = standing;
  const [used, total] = [showGibibytes(memory.used), showGibibytes(memory.total)];
  const whose = gpus === 1 ? "its GPU's memory" : `the memory of its ${gpus} GPUs`;
  return { used, total, sentence: `${used} of ${total} GiB of ${whose} are in use.` };
}

/** Below ten with a decimal: a slice of a GPU has few. */
function showGibibytes(bytes: number): string {
  const gibibytes = bytes / 2 ** 30;
  return String(Number(gibibytes.toFixed(gibibytes < 9.95 ? 1 : 0)));
}
