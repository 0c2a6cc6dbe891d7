// Looks at reports in Chromium: `node tests/report_test.mjs [FILE.html...]`. Without files it puts a
// sample into the built page. Screenshots go to screenshots/.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { DoesNotOverflow, IsAccessible, LaunchBrowser, RunTests } from './harness.mjs';
import { kReport } from './sample_report.mjs';

const kTag = '<script type="application/json" id="report">';
const folder = 'screenshots';
mkdirSync(folder, { recursive: true });
const given = process.argv.slice(2).map((file) => resolve(file));
const files = given.length > 0 ? given : [WriteSample()];
const browser = await LaunchBrowser();

await RunTests({
  EveryWidthAndThemeIsWhole,
  PlotsSayTheirNumbers,
  AxesStayInTheirBounds,
  ...(given.length === 0 && { TextIsNotMarkup, TipNamesThePoint, LabelsDoNotOverlap }),
});
await browser.close();

async function EveryWidthAndThemeIsWhole() {
  for (const width of [390, 768, 1440]) {
    for (const colorScheme of ['light', 'dark']) {
      await OnReports({ viewport: { width, height: 900 }, colorScheme }, async (page, report, name) => {
        assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), report.title);
        await DoesNotOverflow(page);
        for (const { title } of report.sections.filter((section) => section.plot)) {
          const plot = page.getByRole('img', { name: `Plot: ${title}`, exact: true });
          const { width: plot_width } = await plot.boundingBox();
          assert.ok(plot_width > 250 && plot_width < width);
        }
        await IsAccessible(page);
        const path = join(folder, `report_${name}_${width}_${colorScheme}.png`);
        await page.screenshot({ path, fullPage: true });
        for (const summary of await page.locator('summary').all()) await summary.click();
        await DoesNotOverflow(page);
        await IsAccessible(page);
      });
    }
  }
}

async function PlotsSayTheirNumbers() {
  await OnReports({}, async (page, report) => {
    for (const { title, plot } of report.sections.filter((section) => section.plot)) {
      const section = page.getByRole('region', { name: title, exact: true });
      assert.equal(await section.getByRole('table').count(), 0);
      await section.getByText('Numbers', { exact: true }).click();
      await section.getByRole('table').waitFor();
      const cells = await section.getByRole('cell').allInnerTexts();
      const num_values = {
        xy: () => plot.series.reduce((sum, one) => sum + one.points.length, 0),
        bars: () => plot.bars.length * plot.parts.length,
        map: () => plot.values.flat().length,
      }[plot.kind]();
      assert.ok(cells.length >= num_values, `${title}: ${cells.length} cells`);
      assert.ok(cells.every((cell) => !/NaN|undefined|Infinity/.test(cell)));
    }
  });
}

async function AxesStayInTheirBounds() {
  await OnReports({}, async (page, report) => {
    for (const { title, plot } of report.sections) {
      if (plot?.kind !== 'xy') continue;
      const svg = page.getByRole('img', { name: `Plot: ${title}`, exact: true });
      const ticks = await svg.locator('[aria-label="y-axis tick label"] text').allTextContents();
      assert.ok(ticks.length >= 2, title);
      assert.ok(!plot.y.percent || ticks.every((tick) => tick.endsWith('%')), title);
      const max = plot.y.percent ? 100 : (plot.y.max ?? Infinity);
      // A log axis leaves most of its ticks without a label.
      for (const tick of ticks.filter(Boolean)) assert.ok(parseFloat(tick) <= max, `${title}: ${tick}`);
    }
  });
}

async function TextIsNotMarkup() {
  await OnReports({}, async (page, report) => {
    assert.equal(await page.title(), `${report.title} - spa.cpp`);
    assert.ok(await page.getByText('document.title = "broken"').isVisible());
  });
}

async function TipNamesThePoint() {
  await OnReports({}, async (page, report) => {
    const { title, plot } = report.sections[0];
    const svg = page.getByRole('img', { name: `Plot: ${title}`, exact: true });
    const dot = svg.locator('[aria-label=dot]').first().locator('path, circle').nth(1);
    await dot.hover();
    const tip = await svg.locator('[aria-label=tip]').textContent();
    assert.ok(tip.includes(plot.series[0].points[1].label), tip);
  });
}

async function LabelsDoNotOverlap() {
  await OnReports({ viewport: { width: 390, height: 900 } }, async (page, report) => {
    const svg = page.getByRole('img', { name: `Plot: ${report.sections[0].title}`, exact: true });
    const labels = await svg.locator('[aria-label=text] text').all();
    const boxes = await Promise.all(labels.map((label) => label.boundingBox()));
    assert.ok(boxes.length > 2);
    for (const [i, a] of boxes.entries()) {
      for (const b of boxes.slice(i + 1)) {
        const is_beside = a.x + a.width <= b.x || b.x + b.width <= a.x;
        assert.ok(is_beside || a.y + a.height <= b.y || b.y + b.height <= a.y);
      }
    }
  });
}

// Opens each report for one test, and fails it for console messages and for requests of any kind.
async function OnReports(options, Test) {
  for (const file of files) {
    const report = ReadReport(file);
    const viewport = { width: 1280, height: 900 };
    const context = await browser.newContext({ viewport, colorScheme: 'light', ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const url = pathToFileURL(file).href;
    const complaints = [];
    page.on('request', (request) => {
      const is_own = request.url() === url || request.url().startsWith('data:');
      if (!is_own) complaints.push(`request to ${request.url()}`);
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => complaints.push(message.text()));
    try {
      await page.goto(url);
      await page.getByRole('img').first().waitFor();
      await Test(page, report, basename(file, '.html'));
      assert.deepEqual(complaints, []);
    } finally {
      await context.close();
    }
  }
}

function ReadReport(file) {
  const text = readFileSync(file, 'utf8');
  const begin = text.indexOf(kTag) + kTag.length;
  return JSON.parse(text.slice(begin, text.indexOf('</script>', begin)));
}

function WriteSample() {
  const page = readFileSync(fileURLToPath(new URL('../dist/index.html', import.meta.url)), 'utf8');
  assert.equal(page.split(kTag).length, 2);
  const json = JSON.stringify(kReport).replaceAll('<', '\\u003c');
  const file = join(mkdtempSync(join(tmpdir(), 'spa-report-')), 'sample.html');
  writeFileSync(file, page.replace(kTag, () => kTag + json));
  return file;
}
