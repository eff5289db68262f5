import assert from 'node:assert/strict';
import { test } from 'node:test';

import { afterHours, fromField, localize, showTime, toField } from '../src/times.js';

// 18:14 in Tokyo
const NOW = new Date('2026-01-31T09:14:00Z');

test('a sentence has its times in the zone of the reader', () => {
  assert.equal(
    localize('Idle since 2026-01-31 09:14 UTC, ends 2026-01-31 16:00 UTC.'),
    'Idle since 31 Jan 2026, 18:14, ends 1 Feb 2026, 01:00.'
  );
  assert.equal(localize('Your home is full.'), 'Your home is full.');
});

test('a time of another day says which', () => {
  assert.equal(showTime(new Date('2026-01-31T10:05:00Z'), NOW), '19:05');
  assert.match(showTime(new Date('2026-01-31T16:05:00Z'), NOW), /^Sunday.* 01:05$/);
  // of the same weekday, a week from now
  assert.match(showTime(new Date('2026-02-07T10:05:00Z'), NOW), /^7 Feb.* 19:05$/);
});

test('a field has the moment in the zone of the reader', () => {
  assert.equal(toField(NOW), '2026-01-31T18:14');
  assert.equal(fromField('2026-01-31T18:14')?.toISOString(), NOW.toISOString());
  assert.equal(fromField(''), null);
  assert.equal(fromField('soon'), null);
});

test('a hold is proposed until a full hour', () => {
  assert.equal(toField(afterHours(2, NOW)), '2026-01-31T21:00');
  assert.equal(toField(afterHours(2, new Date('2026-01-31T09:00:00Z'))), '2026-01-31T20:00');
  assert.equal(toField(afterHours(6, NOW)), '2026-02-01T01:00');
});
