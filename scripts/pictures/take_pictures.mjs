// Takes the frames of the README's pictures in Chromium:
//   take_pictures.mjs page URL FOLDER        the page of a running `spa serve`, while it answers
//   take_pictures.mjs terminal JSON FOLDER   what record_terminal.py saw
// Writes FOLDER/0000.png, 0001.png, ... and FOLDER/list: arguments for img2webp.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = require('playwright-core');

const [kind, source, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
const frames = []; // [name, milliseconds]

if (kind === 'page') await TakePage();
else await TakeTerminal();

writeFileSync(join(folder, 'list'), frames.map(([name, ms]) => `-d ${ms} ${name}`).join('\n'));
await browser.close();

async function TakePage() {
  const viewport = { width: 1000, height: 700 };
  const page = await browser.newPage({ viewport, colorScheme: 'light' });
  await page.addInitScript(() => {
    localStorage.setItem('spa.settings', JSON.stringify({ compare: true, panel_open: false }));
  });
  await page.goto(source);
  const { examples } = await (await fetch(new URL('/props', source))).json();
  await page.getByLabel('Question', { exact: true }).fill(examples[0]);
  await Keep(page, 1200);
  await page.getByLabel('Question', { exact: true }).press('Enter');
  const skip = page.getByRole('button', { name: 'Skip to the end' });
  await skip.waitFor();
  while (await skip.isVisible()) {
    const start = performance.now();
    const name = await Shoot(page);
    frames.push([name, Math.max(80, Math.round(performance.now() - start))]);
  }
  await Keep(page, 4000);
}

async function TakeTerminal() {
  const page = await browser.newPage({ viewport: { width: 900, height: 420 } });
  await page.setContent(`<style>
    body { margin: 0; background: #14171a; color: #d8dde3 }
    pre { margin: 14px 18px; font: 15px/1.35 'DejaVu Sans Mono', monospace }
    .bold { font-weight: 700 } .green { color: #7ee787 } .red { color: #ff7b72 }
    .brown, .yellow { color: #e3b341 } .dim { opacity: 0.6 }
  </style><pre></pre>`);
  for (const { ms, lines } of JSON.parse(readFileSync(source, 'utf8'))) {
    await page.evaluate((lines) => {
      const Span = ([text, style]) =>
        Object.assign(document.createElement('span'), { textContent: text, className: style });
      document.querySelector('pre').replaceChildren(
        ...lines.flatMap((runs) => [...runs.map(Span), document.createTextNode('\n')]),
      );
    }, lines);
    await Keep(page, ms);
  }
}

async function Shoot(page) {
  const name = join(folder, `${String(frames.length).padStart(4, '0')}.png`);
  await page.screenshot({ path: name });
  return name;
}

async function Keep(page, ms) {
  frames.push([await Shoot(page), ms]);
}
