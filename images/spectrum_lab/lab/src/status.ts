// The item in the status bar: this server's GPU, and its end.

import { Widget } from '@lumino/widgets';

import { type Told, tellStanding } from './told.js';

export class Status extends Widget {
  constructor() {
    super({ node: document.createElement('div') });
    // a link, so that it opens what the visitor may see, in their own name
    this._link.id = 'spectrum-status';
    this._link.className = 'jp-StatusBar-TextItem';
    this._link.target = '_blank';
    this.node.append(this._link);
    this.hide();
  }

  tell(told: Told): void {
    const line = tellStanding(told, new Date());
    if (line) {
      this._link.textContent = line.text;
      this._link.title = `${line.meaning}\nOpen this server's page in Spectrum.`;
      this._link.href = told.page;
    }
    this.setHidden(!line);
  }

  private readonly _link = document.createElement('a');
}
