// All documents, saved shortly before the server's end.

import type { CommandRegistry } from '@lumino/commands';

const BEFORE = 90_000; // milliseconds between that and the end
const LONGEST = 2 ** 31 - 1; // of a timer; the plan is made anew long before

export class Saving {
  constructor(private readonly commands: CommandRegistry) {}

  /** What is typed would else be lost since JupyterLab last saved by itself. */
  async saveAll(): Promise<void> {
    await this.commands.execute('docmanager:save-all').catch(() => {});
  }

  /** Save before that end, once, in place of one that was told earlier; null is none. */
  plan(end: number | null): void {
    clearTimeout(this._timer);
    if (end === null || end === this._savedFor) {
      return;
    }
    const save = () => {
      this._savedFor = end;
      void this.saveAll();
    };
    this._timer = setTimeout(save, Math.min(Math.max(end - Date.now() - BEFORE, 0), LONGEST));
  }

  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _savedFor: number | null = null;
}
