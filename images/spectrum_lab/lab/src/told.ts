// What the server says of itself, and the sentences that people read of it.

import { localize, showTime } from './times.js';

/** What this server has coming. */
export interface Notice {
  text: string;
  ends_at?: string | null;
  keep?: boolean;
  continue?: boolean;
}

/** How this server stands at the service; `utilisation` is of its busiest GPU, in percent. */
export interface Standing {
  gpus: number;
  utilisation: number | null;
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
  const end = findEnd([standing?.ends_at, ...notices.map(notice => notice.ends_at)]);
  const parts = [
    tellGpus(standing),
    ...(end !== null ? [`ends ${showTime(new Date(end), now)}`] : []),
    ...(end === null && standing?.held_until
      ? [`held until ${showTime(new Date(standing.held_until), now)}`]
      : [])
  ];
  const known = standing ? standing.sentence : told.silence || 'Nothing is known of this server yet.';
  return { text: parts.join(' · '), meaning: localize(known) };
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
