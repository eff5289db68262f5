import assert from 'node:assert/strict';
import { test } from 'node:test';

import { findEnd, readMessages, type Standing, tellStanding, type Told } from '../src/told.js';

// 18:14 in Tokyo
const NOW = new Date('2026-01-31T09:14:00Z');
const END = '2026-01-31T10:05:00Z';
const GIB = 2 ** 30;

const STANDING: Standing = {
  gpus: 1,
  utilisation: 42.6,
  memory: null,
  ends_at: null,
  held_until: null,
  sentence: 'It works since 2026-01-31 09:14 UTC.'
};

function make(told: Partial<Told>): Told {
  return {
    warnings: [],
    notices: [],
    own: true,
    page: '/services/spectrum/gpus/alice/',
    board: '/services/spectrum/',
    home: '/hub/home',
    standing: STANDING,
    silence: '',
    ...told
  };
}

function tell(standing: Partial<Standing>, told: Partial<Told> = {}): string | undefined {
  return tellStanding(make({ standing: { ...STANDING, ...standing }, ...told }), NOW)?.text;
}

test('the status names the GPUs and what the busiest of them does', () => {
  assert.equal(tell({}), 'GPU 43\u00a0%');
  assert.equal(tell({ gpus: 4, utilisation: 0 }), '4 GPUs 0\u00a0%');
  assert.equal(tell({ utilisation: null }), 'GPU');
  assert.equal(tell({ gpus: 0, utilisation: null }), 'No GPU');
  assert.equal(tellStanding(make({}), NOW)?.meaning, 'It works since 31 Jan 2026, 18:14.');
});

test('the status has what of the memory of all GPUs is in use, where that is known', () => {
  const memory = { used: 12.3 * GIB, total: 79.6 * GIB };
  assert.deepEqual(tellStanding(make({ standing: { ...STANDING, memory } }), NOW), {
    text: 'GPU 43\u00a0% · 12\u00a0/\u00a080\u00a0GiB',
    meaning: "It works since 31 Jan 2026, 18:14.\n12 of 80 GiB of its GPU's memory are in use."
  });
  const standing = { ...STANDING, gpus: 4, memory: { used: 0, total: 320 * GIB }, ends_at: END };
  assert.deepEqual(tellStanding(make({ standing }), NOW), {
    text: '4 GPUs 43\u00a0% · 0\u00a0/\u00a0320\u00a0GiB · ends 19:05',
    meaning:
      'It works since 31 Jan 2026, 18:14.\n0 of 320 GiB of the memory of its 4 GPUs are in use.'
  });
});

test('little memory is told with a decimal', () => {
  const tellMemory = (used: number, total: number): string | undefined =>
    tell({ memory: { used: used * GIB, total: total * GIB } });
  assert.equal(tellMemory(0.42, 4.75), 'GPU 43\u00a0% · 0.4\u00a0/\u00a04.8\u00a0GiB');
  assert.equal(tellMemory(9.94, 9.96), 'GPU 43\u00a0% · 9.9\u00a0/\u00a010\u00a0GiB');
});

test('the status has the nearest end, or else the end of a hold', () => {
  assert.equal(tell({ ends_at: END }), 'GPU 43\u00a0% · ends 19:05');
  const notices = [{ text: 'Idle.', ends_at: '2026-01-31T09:30:00Z' }];
  assert.equal(tell({ ends_at: END }, { notices }), 'GPU 43\u00a0% · ends 18:30');
  assert.equal(tell({ held_until: END }), 'GPU 43\u00a0% · held until 19:05');
});

test('the status says what is not known, and nothing without a service', () => {
  const told = make({ standing: null, silence: 'The service does not answer.' });
  assert.deepEqual(tellStanding(told, NOW), {
    text: 'GPU not known',
    meaning: 'The service does not answer.'
  });
  assert.match(tellStanding(make({ standing: null }), NOW)?.meaning ?? '', /^Nothing is known/);
  assert.equal(tellStanding(make({ page: '' }), NOW), null);
});

test('a notice is a message with its end and what it offers, and a warning one without', () => {
  const notices = [
    { text: 'Idle.', ends_at: END, keep: true },
    { text: 'bob asks for it.', ends_at: null, continue: true }
  ];
  assert.deepEqual(readMessages(make({ notices, warnings: ['Your home is full.'] }), NOW), [
    { text: 'This server ends at 19:05. Idle.', keep: true, release: true, without: false },
    { text: 'bob asks for it.', keep: false, release: true, without: true },
    { text: 'Your home is full.' }
  ]);
});

test('of several ends the nearest counts, and of none there is none', () => {
  assert.equal(findEnd([null, '2026-01-31T11:00:00Z', END]), Date.parse(END));
  assert.equal(findEnd([null, undefined]), null);
});
