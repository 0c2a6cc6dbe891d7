// What the tests of the page share.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { chromium } from 'playwright-core';

const kAxe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export function LaunchBrowser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
}

// Runs the functions one after the other; a failure makes the process fail at its end.
export async function RunTests(tests) {
  for (const [name, Test] of Object.entries(tests)) {
    try {
      await Test();
      console.log(`ok   ${name}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL ${name}\n${error.stack}`);
    }
  }
}

// Asks axe, with all its rules.
export async function IsAccessible(page) {
  await page.evaluate(kAxe);
  const violations = await page.evaluate(async () => {
    const results = await window.axe.run(document);
    return results.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
    );
  });
  assert.deepEqual(violations, []);
}

export async function DoesNotOverflow(page) {
  const [content, window_width] = await page.evaluate(() => {
    return [document.documentElement.scrollWidth, window.innerWidth];
  });
  assert.ok(content <= window_width, `${content} px of content in ${window_width} px`);
}
