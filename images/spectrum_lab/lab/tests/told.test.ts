import assert from 'node:assert/strict';
import { test } from 'node:test';

import { findEnd, readMessages, type Standing, tellStanding, type Told } from '../src/told.js';

// 18:14 in Tokyo
const NOW = new Date('2026-01-31T09:14:00Z');
const END = '2026-01-31T10:05:00Z';

const STANDING: Standing = {
  gpus: 1,
  utilisation: 42.6,
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
