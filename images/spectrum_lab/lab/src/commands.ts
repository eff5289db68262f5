// What people can do here with the server, and the pages that tell more.

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import { askHold } from './hold.js';
import type { Server, Verb } from './server.js';
import type { Told } from './told.js';

export const CATEGORY = 'Spectrum';

/** In the order of the menu, which separates the lists. */
export const COMMANDS = [
  ['spectrum:keep', 'spectrum:hold', 'spectrum:continue', 'spectrum:release'],
  ['spectrum:page', 'spectrum:board', 'spectrum:team-servers']
];

/** `act` does it, and tells by itself why something is refused. */
export function addCommands(
  commands: CommandRegistry,
  server: Server,
  act: (verb: Verb, body?: object) => Promise<void>
): void {
  const has = (part: 'page' | 'board' | 'home') => Boolean(server.told?.[part]);
  // guests would act by the server's token, as its owner: they have the links, where they are
  // themselves. To keep it is everybody's, as in the banner.
  const isOwn = () => has('page') && Boolean(server.told?.own);

  commands.addCommand('spectrum:keep', {
    label: 'Keep This Server',
    caption: 'Begin the time anew after which this server ends when it does nothing',
    isVisible: () => has('page'),
    execute: () => act('keep')
  });
  commands.addCommand('spectrum:hold', {
    label: 'Hold This Server Until…',
    caption: 'Say that this server is needed until a time, whatever is measured of it',
    isVisible: isOwn,
    execute: async () => {
      const hold = await askHold();
      if (hold) {
        await act('hold', hold);
      }
    }
  });
  // a slip of the mouse must not end what works
  commands.addCommand('spectrum:continue', {
    label: 'Continue Without GPU',
    isVisible: isOwn,
    execute: async () => {
      if (await confirm('This server starts again without a GPU', 'Continue Without GPU')) {
        await act('continue');
      }
    }
  });
  commands.addCommand('spectrum:release', {
    label: 'Release the GPU and Stop This Server',
    isVisible: isOwn,
    execute: async () => {
      if (await confirm('This server stops', 'Release')) {
        await act('release');
      }
    }
  });
  const addLink = (name: string, label: string, part: 'page' | 'board' | 'home', anchor = '') =>
    commands.addCommand(name, {
      label,
      isVisible: () => has(part),
      execute: () => {
        window.open(`${(server.told as Told)[part]}${anchor}`, '_blank', 'noopener');
      }
    });
  addLink('spectrum:page', 'Open This Server’s Page', 'page');
  addLink('spectrum:board', 'Open the GPU Board', 'board');
  addLink('spectrum:team-servers', 'Open Team Servers', 'home', '#team-servers');
}

async function confirm(what: string, label: string): Promise<boolean> {
  const answer = await showDialog({
    title: label,
    body: `${what}: what runs in it ends. Files stay.`,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label })]
  });
  return answer.button.accept;
}
