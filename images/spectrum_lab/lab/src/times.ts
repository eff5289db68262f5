// Moments, as people read and write them where they are.

// as sentences of Spectrum name a moment
const NAMED = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g;
const DAY = 86_400_000; // milliseconds

/** A sentence with its times in the reader's zone. */
export function localize(sentence: string): string {
  return sentence.replaceAll(NAMED, (_, day: string, time: string) =>
    new Date(`${day}T${time}Z`).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' })
  );
}

/** The time of day, with the day where it is not today. */
export function showTime(moment: Date, now: Date): string {
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  if (moment.toDateString() === now.toDateString()) {
    return moment.toLocaleTimeString([], time);
  }
  // a weekday alone would be one of today's name a week from now
  const day: Intl.DateTimeFormatOptions =
    moment.getTime() - now.getTime() < 6 * DAY
      ? { weekday: 'long' }
      : { day: 'numeric', month: 'short' };
  return moment.toLocaleString([], { ...day, ...time });
}

/** A moment as a field of type datetime-local takes it, in the reader's zone. */
export function toField(moment: Date): string {
  const shifted = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 'yyyy-mm-ddThh:mm'.length);
}

/** The moment in such a field, null where there is none. */
export function fromField(value: string): Date | null {
  const moment = new Date(value);
  return value && !Number.isNaN(moment.getTime()) ? moment : null;
}

/** The next full hour that is at least so many hours away. */
export function afterHours(hours: number, now: Date): Date {
  const moment = new Date(now.getTime() + hours * 3_600_000);
  if (moment.getMinutes() || moment.getSeconds() || moment.getMilliseconds()) {
    moment.setHours(moment.getHours() + 1, 0, 0, 0);
  }
  return moment;
}
