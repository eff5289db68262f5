// A banner above JupyterLab: what is wrong with the server's volumes, and what it has coming.

import { Widget } from '@lumino/widgets';

import type { Verb } from './server.js';
import type { Message } from './told.js';

export class Banner extends Widget {
  /** `act` does what a button says, and tells nothing of it here. */
  constructor(act: (verb: Verb) => Promise<void>) {
    super();
    this.id = 'spectrum-banner';
    // a status is read out when it changes, and does not interrupt
    this.node.setAttribute('role', 'status');
    this.node.setAttribute('aria-label', 'Spectrum');
    const close = makeButton('Dismiss');
    this._page.textContent = 'Your choices';
    this._page.target = '_blank';
    this.node.append(this._list, this._keep, this._without, this._release, this._page, close);
    for (const [button, verb] of [
      [this._keep, 'keep'],
      [this._without, 'continue'],
      [this._release, 'release']
    ] as const) {
      button.addEventListener('click', async () => {
        button.disabled = true;
        await act(verb);
        button.disabled = false;
      });
    }
    close.addEventListener('click', () => {
      this._shown.forEach(({ text }) => this._dismissed.add(text));
      this.showThese(this._shown);
    });
    new ResizeObserver(() => this.grow()).observe(this._list);
    this.hide();
  }

  /** Show these sentences, to the server's owner or to a guest, whose choices are on `page`. */
  tell(messages: Message[], { own, page }: { own: boolean; page: string }): void {
    this._own = own;
    this._page.href = page;
    this._hasPage = Boolean(page);
    this.showThese(messages);
  }

  /** Show above the others why something was not done, until the next answer. */
  tellFailure(text: string): void {
    this.showThese([{ text, failed: true }, ...this._shown.filter(message => !message.failed)]);
  }

  private showThese(messages: Message[]): void {
    const sentences = messages.map(({ text }) => text);
    for (const sentence of this._dismissed) {
      if (!sentences.includes(sentence)) {
        this._dismissed.delete(sentence);
      }
    }
    const shown = messages.filter(({ text }) => !this._dismissed.has(text));
    // what is the same stays as it is: it would be read out again, and lose a button's focus
    const state = JSON.stringify([shown, this._own, this._hasPage]);
    if (state === this._state) {
      return;
    }
    this._state = state;
    this._shown = shown;
    this._list.replaceChildren(...shown.map(({ text }) => makeItem(text)));
    this._keep.hidden = !shown.some(message => message.keep);
    // whoever is a guest here ends nothing by the server's token, but in their own name there
    const mayEnd = shown.some(message => message.release);
    this._release.hidden = !mayEnd || !this._own;
    this._without.hidden = !this._own || !shown.some(message => message.without);
    this._page.hidden = !mayEnd || this._own || !this._hasPage;
    this.setHidden(!shown.length);
    this.grow();
  }

  /** Be as high as the sentences are at this width. */
  private grow(): void {
    this.node.style.minHeight = `${Math.max(this._list.scrollHeight, 24) + 12}px`;
    this.parent?.fit();
  }

  private readonly _list = document.createElement('ul');
  private readonly _keep = makeButton('Keep this server');
  private readonly _without = makeButton('Continue without GPU');
  private readonly _release = makeButton('Release it now');
  private readonly _page = document.createElement('a');
  private readonly _dismissed = new Set<string>(); // sentences that stay away until they are over
  private _shown: Message[] = [];
  private _state = '';
  private _own = false;
  private _hasPage = false;
}

function makeButton(text: string): HTMLButtonElement {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = text;
  button.className = 'jp-mod-styled jp-mod-minimal';
  return button;
}

function makeItem(text: string): HTMLLIElement {
  const item = document.createElement('li');
  item.textContent = text;
  return item;
}
