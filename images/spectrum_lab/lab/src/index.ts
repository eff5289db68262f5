// What Spectrum adds to JupyterLab's pages: a banner, an item in the status bar, and commands.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IMainMenu } from '@jupyterlab/mainmenu';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';

import { Banner } from './banner.js';
import { addCommands, CATEGORY, COMMANDS } from './commands.js';
import { Saving } from './saving.js';
import { Server, type Verb } from './server.js';
import { Status } from './status.js';
import { localize } from './times.js';
import { findEnd, readMessages } from './told.js';

const EVERY = 20_000; // milliseconds between two looks, while the page is seen
const RANK = 900; // of the menu: before Help

const FAILED: Record<Verb, string> = {
  keep: 'The server is not kept',
  hold: 'The server is not held',
  continue: 'The server is not restarted',
  release: 'The server is not released'
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'spectrum-lab:plugin',
  description: 'What this server has coming, what its GPU does, and what can be done about it',
  autoStart: true,
  optional: [ICommandPalette, IMainMenu, IStatusBar],
  activate
};

export default plugin;

function activate(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  menus: IMainMenu | null,
  bar: IStatusBar | null
): void {
  const server = new Server(app.serviceManager.serverSettings);
  const saving = new Saving(app.commands);
  const act = async (verb: Verb, body: object = {}) => {
    try {
      if (verb === 'continue' || verb === 'release') {
        await saving.saveAll();
      }
      await server.act(verb, body);
    } catch (error) {
      banner.tellFailure(`${FAILED[verb]}: ${localize((error as Error).message)}`);
    }
  };
  const banner = new Banner(act);
  const status = new Status();
  app.shell.add(banner, 'header', { rank: 100 });
  bar?.registerStatusItem('spectrum-lab:status', { item: status, align: 'right', rank: 100 });
  addCommands(app.commands, server, act);
  for (const command of COMMANDS.flat()) {
    palette?.addItem({ command, category: CATEGORY });
  }

  let menu: Menu | null = null;
  server.answered.connect((_, told) => {
    banner.tell(readMessages(told, new Date()), told);
    saving.plan(findEnd(told.notices.map(notice => notice.ends_at)));
    status.tell(told);
    // which of them can be seen depends on the answer
    COMMANDS.flat().forEach(command => app.commands.notifyCommandChanged(command));
    // where there is no service the menu would be empty
    if (menus && told.page && !menu) {
      menu = makeMenu(app.commands);
      menus.addMenu(menu, true, { rank: RANK });
    }
  });
  const look = () => void server.look();
  setInterval(look, EVERY);
  document.addEventListener('visibilitychange', look);
  // JupyterLab goes on meanwhile
  look();
}

function makeMenu(commands: CommandRegistry): Menu {
  const menu = new Menu({ commands });
  menu.id = 'jp-mainmenu-spectrum';
  menu.title.label = CATEGORY;
  COMMANDS.forEach((list, place) => {
    if (place) {
      menu.addItem({ type: 'separator' });
    }
    list.forEach(command => menu.addItem({ command }));
  });
  return menu;
}
