// The dialog that asks until when a server is needed.

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { afterHours, fromField, toField } from './times.js';

const HOURS = 2; // that are proposed

/** A hold as the service takes it. */
export interface Hold {
  until: string;
  reason: string;
}

/** Ask for a hold; null if the dialog was left, or has no time in it. */
export async function askHold(): Promise<Hold | null> {
  const answer = await showDialog({
    title: 'Hold This Server',
    body: new Fields(),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Hold' })],
    focusNodeSelector: 'input'
  });
  return answer.button.accept ? answer.value : null;
}

class Fields extends Widget implements Dialog.IBodyWidget<Hold | null> {
  constructor() {
    super();
    this.addClass('spectrum-Hold');
    this._until.type = 'datetime-local';
    this._until.value = toField(afterHours(HOURS, new Date()));
    this._until.min = toField(new Date());
    this._reason.type = 'text';
    this._reason.maxLength = 200;
    this.node.append(
      makeLabel('Until', this._until),
      makeLabel('Why, for those who wait for the GPU', this._reason)
    );
  }

  getValue(): Hold | null {
    const until = fromField(this._until.value);
    return until && { until: until.toISOString(), reason: this._reason.value.trim() };
  }

  private readonly _until = makeInput();
  private readonly _reason = makeInput();
}

function makeInput(): HTMLInputElement {
  const input = document.createElement('input');
  input.className = 'jp-mod-styled';
  return input;
}

function makeLabel(text: string, input: HTMLInputElement): HTMLLabelElement {
  const label = document.createElement('label');
  label.append(text, input);
  return label;
}
