// The requests to this server, and what it said last.

import { ServerConnection } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';

import type { Told } from './told.js';

export type Verb = 'keep' | 'hold' | 'continue' | 'release';

export class Server {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  /** What it said last, null before the first answer. */
  get told(): Told | null {
    return this._told;
  }

  /** It answered. */
  get answered(): ISignal<this, Told> {
    return this._answered;
  }

  /** Ask while somebody sees the page; JupyterLab says by itself when the server is away. */
  async look(): Promise<void> {
    if (document.visibilityState === 'visible') {
      await this.ask('banner', {}).catch(() => {});
    }
  }

  /** Do something with it; rejects with a sentence where that is refused. */
  async act(verb: Verb, body: object = {}): Promise<void> {
    await this.ask(verb, { method: 'POST', body: JSON.stringify(body) });
  }

  private async ask(name: string, options: RequestInit): Promise<void> {
    const url = `${this.settings.baseUrl}spectrum/${name}`;
    const answer = await ServerConnection.makeRequest(url, options, this.settings);
    const value = await answer.json();
    if (!answer.ok) {
      throw new Error(value.message);
    }
    this._told = value as Told;
    this._answered.emit(this._told);
  }

  private _told: Told | null = null;
  private readonly _answered = new Signal<this, Told>(this);
}
