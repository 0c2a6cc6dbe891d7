// Drives the page in Chromium as a user would: `node tests/page_test.mjs [URL [FOLDER]]`.
// Without a URL it starts the mock server. FOLDER receives screenshots (default: screenshots).
// The browser is the one that CHROMIUM names, or /usr/bin/chromium.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { DoesNotOverflow, IsAccessible, LaunchBrowser, RunTests } from './harness.mjs';
import { StartMock } from './mock_server.mjs';

const kAnswerMs = 30_000; // a real model on a busy machine takes its time
const [given_url, folder = 'screenshots'] = process.argv.slice(2);
const mock = given_url ? null : await StartMock();
const url = given_url ?? AddressOf(mock);
const props = await (await fetch(new URL('/props', url))).json();
mkdirSync(folder, { recursive: true });

const browser = await LaunchBrowser();

await RunTests({
  AnswerFinishesAndScrubberMovesThroughItsSteps,
  CacheCanBeSwitchedAndIsSent,
  ChangedSettingsOutliveAReload,
  ConversationSendsItsHistory,
  SideBySideShowsBothAnswersAndComparesThem,
  StopEndsTheAnswer,
  RefusedOptionIsShownInOneLine,
  DarkThemeIsToggledAndKept,
  PhoneWidthDoesNotOverflow,
  KeyboardAloneIsEnough,
  PageIsAccessible,
  AnswerIsReplayedOnce,
  ConversationOutlivesAReload,
  PhoneOpensAtTheTop,
  NumbersExplainThemselves,
  NothingLooksOutBesideTheQuestionField,
  GapsAreFilled,
  ...(mock && {
    KeyIsAskedFor,
    ErrorInTheMiddleIsShown,
    DifferentAnswersAreMarked,
    OptionsHaveControls,
    OptionsAreTypedWithoutATable,
    SingleTurnIsSentAlone,
    SlowStepsTellTheTimeLeft,
    RestOfTheCanvasIsNotJustSettled,
  }),
});
await browser.close();
if (mock) Close(mock);

async function AnswerFinishesAndScrubberMovesThroughItsSteps() {
  await OnPage({}, async (page) => {
    await page.screenshot({ path: join(folder, 'start_light.png') });
    const example = page.getByRole('list', { name: 'Example questions' }).getByRole('button').first();
    await example.click();
    await CanvasIsShown(page);
    await page.screenshot({ path: join(folder, 'answering_light.png') });
    await AnswerIsFinished(page);
    const final_text = await page.getByTestId('answer').innerText();
    assert.notEqual(final_text.trim(), '');
    assert.equal(await page.getByTestId('answer').locator('[data-pos]').count(), 0);
    assert.ok((await page.getByTestId('announcement').innerText()).includes(final_text.trim()));
    assert.match(await page.getByTestId('numbers').innerText(), /tok\/s/);
    await page.screenshot({ path: join(folder, 'answered_light.png') });

    const scrubber = page.getByRole('slider', { name: 'Step' });
    const last_step = Number(await scrubber.getAttribute('max'));
    assert.ok(last_step > 2);
    const Shown = async () => ({
      step: await page.getByTestId('step').innerText(),
      summary: await page.getByTestId('step-summary').innerText(),
      num_settled: await page.getByTestId('answer').locator('.settled, .fresh').count(),
    });
    const middle = Math.ceil(last_step / 2);
    await scrubber.fill(String(middle));
    const at_middle = await Shown();
    assert.equal(at_middle.step, `step ${middle} / ${last_step}`);
    assert.match(at_middle.summary, new RegExp(`^step ${middle} of .* rows recomputed \\(.*%\\)$`));
    assert.equal(await scrubber.getAttribute('aria-valuetext'), at_middle.summary);
    await page.screenshot({ path: join(folder, 'scrubbed_light.png') });

    await scrubber.press('ArrowLeft');
    const before = await Shown();
    assert.equal(before.step, `step ${middle - 1} / ${last_step}`);
    assert.ok(before.num_settled < at_middle.num_settled);

    const picture = await MapPicture(page);
    await page.getByText('all so far').click();
    assert.notEqual(await MapPicture(page), picture);
    await page.screenshot({ path: join(folder, 'so_far_light.png') });

    await scrubber.fill('1');
    await page.getByRole('button', { name: 'Play the steps' }).click();
    await page.waitForFunction(() => {
      return !document.querySelector('[data-testid=step]').textContent.startsWith('step 1 ');
    });
    await page.getByRole('button', { name: 'Pause' }).click();
    await scrubber.press('End');
    assert.equal(await page.getByTestId('answer').innerText(), final_text);
  });
}

async function GapsAreFilled() {
  await OnPage({}, async (page, log) => {
    await page.getByRole('button', { name: 'Gaps' }).click();
    const template = page.getByLabel('Answer with gaps');
    await template.fill('=> . Answer: True');
    await page.getByLabel('Question', { exact: true }).fill(props.examples[0]);
    assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled()); // there is no gap yet
    await template.evaluate((field) => field.setSelectionRange(3, 3));
    await page.getByRole('button', { name: 'Insert a gap' }).click();
    assert.equal(await template.inputValue(), '=> {{mask:8}}. Answer: True');
    await page.screenshot({ path: join(folder, 'template_light.png') });
    await page.getByRole('button', { name: 'Send' }).click();
    await CanvasIsShown(page);
    // A short answer may be whole before anyone looks.
    await page.getByTestId('answer').locator('.given, mark.filled').first().waitFor();
    await page.screenshot({ path: join(folder, 'filling_light.png') });
    await AnswerIsFinished(page);
    assert.equal(log.requests.at(-1).template, '=> {{mask:8}}. Answer: True');
    assert.equal(log.requests.at(-1).max_tokens, undefined);
    const text = await page.getByTestId('answer').innerText();
    assert.ok(text.startsWith('=>') && text.endsWith('. Answer: True'), text);
    const filled = page.getByTestId('answer').locator('mark.filled');
    assert.equal(await filled.count(), 1);
    const fill = await filled.evaluate((mark) => mark.textContent);
    assert.equal(text, `=>${fill.startsWith(' ') ? '' : ' '}${fill}. Answer: True`);
    await page.screenshot({ path: join(folder, 'filled_light.png') });
    await IsAccessible(page);
    await page.reload();
    await filled.waitFor();
    assert.equal(await filled.count(), 1);
    // The next question without a template has none.
    await Ask(page);
    await AnswerIsFinished(page);
    assert.equal(log.requests.at(-1).template, undefined);
  });
}

async function CacheCanBeSwitchedAndIsSent() {
  await OnPage({}, async (page, log) => {
    const { defaults, caches } = props;
    const other = caches.find((cache) => cache.name !== defaults.cache);
    await Ask(page);
    await AnswerIsFinished(page);
    assert.equal(log.requests.at(-1).cache, undefined); // the default is not sent
    await page.getByLabel('Cache', { exact: true }).selectOption(other.name);
    assert.ok(await page.getByText(other.summary).isVisible());
    await Ask(page);
    await AnswerIsFinished(page);
    assert.equal(log.requests.at(-1).cache, other.name);
    const label = `Answer with cache ${other.name}`;
    assert.ok(await page.getByRole('article', { name: label }).isVisible());
  });
}

async function ChangedSettingsOutliveAReload() {
  await OnPage({}, async (page, log) => {
    await page.getByLabel('Answer length').fill('32');
    await page.getByLabel('Seed').fill('7');
    await page.getByLabel('Order').selectOption('random');
    await page.reload();
    await Ask(page);
    await AnswerIsFinished(page);
    const { max_tokens, seed, remasking, ...rest } = log.requests.at(-1);
    assert.deepEqual({ max_tokens, seed, remasking }, { max_tokens: 32, seed: 7, remasking: 'random' });
    const kAlways = ['messages', 'stream', 'stream_diffusion', 'stream_options'];
    assert.deepEqual(Object.keys(rest).sort(), kAlways);
    await page.getByRole('button', { name: 'Back to the defaults' }).click();
    assert.equal(await page.getByLabel('Seed').inputValue(), '');
  });
}

async function ConversationSendsItsHistory() {
  await OnPage({}, async (page, log) => {
    await Ask(page);
    await AnswerIsFinished(page);
    const answer = await page.getByTestId('answer').innerText();
    await Ask(page);
    await AnswerIsFinished(page);
    const messages = log.requests.at(-1).messages;
    const { single_turn } = (await FetchModels()).data[0];
    const roles = single_turn ? ['user'] : ['user', 'assistant', 'user'];
    assert.deepEqual(messages.map((message) => message.role), roles);
    if (!single_turn) assert.equal(messages[1].content.trim(), answer.trim());
    assert.equal(await page.getByRole('slider').count(), 1); // older turns are folded
    await page.getByRole('button', { name: 'Show the steps' }).click();
    assert.equal(await page.getByRole('slider').count(), 2);
    await page.screenshot({ path: join(folder, 'two_turns_light.png'), fullPage: true });
    await page.getByRole('button', { name: 'New chat' }).click();
    assert.equal(await page.getByTestId('run').count(), 0);
  });
}

async function SideBySideShowsBothAnswersAndComparesThem() {
  await OnPage({ viewport: { width: 1440, height: 960 } }, async (page, log) => {
    await page.getByLabel('two, side by side').check();
    const left = await page.getByLabel('First cache').inputValue();
    const right = await page.getByLabel('Second cache').inputValue();
    assert.notEqual(left, right);
    await Ask(page);
    await CanvasIsShown(page, 1);
    // One after the other, or their speeds would not compare.
    assert.equal(await page.getByTestId('run').first().getAttribute('aria-busy'), 'false');
    await page.screenshot({ path: join(folder, 'side_by_side_running_light.png') });
    await AnswerIsFinished(page, 2);
    assert.equal(log.requests.length, 2);
    for (const [side, cache] of [left, right].entries()) {
      const run = page.getByTestId('run').nth(side);
      assert.ok((await run.getAttribute('aria-label')).includes(cache));
      assert.notEqual((await run.getByTestId('answer').innerText()).trim(), '');
      assert.match(await page.getByTestId('numbers').nth(side).innerText(), /tok\/s/);
      assert.ok(await run.getByRole('img').isVisible());
    }
    const verdict = await page.getByTestId('verdict').innerText();
    assert.match(verdict, /fast/);
    assert.match(verdict, /answers (agree|differ)/);
    await page.screenshot({ path: join(folder, 'side_by_side_light.png') });

    await page.getByRole('slider', { name: 'Step' }).fill('5');
    for (const summary of await page.getByTestId('step-summary').allInnerTexts()) {
      assert.match(summary, /^step 5 of /);
    }
    await page.getByRole('button', { name: 'Dark theme' }).click();
    await page.screenshot({ path: join(folder, 'side_by_side_scrubbed_dark.png') });
  });
}

async function StopEndsTheAnswer() {
  await OnPage({}, async (page) => {
    // One long block, because an answer that is ready within a second is hard to stop.
    await page.getByLabel('Answer length').fill('256');
    await page.getByLabel('Block length').fill('256');
    await Ask(page, `${mock ? 'slowly: ' : ''}${props.examples[0]}`);
    await CanvasIsShown(page);
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('stopped', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Back to the defaults' }).click();
    await Ask(page); // and the page is ready for more
    await AnswerIsFinished(page);
  });
}

async function RefusedOptionIsShownInOneLine() {
  await OnPage({ allow_failed_requests: true }, async (page) => {
    await page.getByLabel('Answer length').fill('0');
    await Ask(page);
    await page.getByRole('alert').getByText('max_tokens').waitFor();
    assert.equal(await page.getByRole('alert').count(), 1);
    await page.screenshot({ path: join(folder, 'refused_light.png') });
  });
}

async function OptionsAreTypedWithoutATable() {
  const old = await StartMock({ has_options: false });
  const inputs = { url: AddressOf(old), allow_failed_requests: true };
  const test = OnPage(inputs, async (page, log) => {
    const options = page.getByLabel(`Options of ${props.defaults.cache}`);
    await options.fill('nonsense');
    await Ask(page);
    assert.match(await page.getByRole('alert').innerText(), /key=value/);
    await options.fill('no-such-option=1');
    await Ask(page);
    await page.getByRole('alert').getByText('no-such-option').waitFor();
    assert.equal(await page.getByRole('alert').count(), 1);
    assert.deepEqual(log.requests.at(-1).cache_options, { 'no-such-option': 1 });
  });
  await test.finally(() => Close(old));
}

async function OptionsHaveControls() {
  await OnPage({}, async (page, log) => {
    await page.getByText('Options of spa').click();
    await page.getByLabel('rank').fill('16');
    await page.getByLabel('scope').selectOption('all');
    await page.getByText('More decoding options').click();
    await page.getByLabel('top-k').fill('5');
    await page.getByLabel('early-stop').selectOption('off');
    await page.getByText('Options of spa (2 changed)').waitFor();
    await IsAccessible(page);
    await page.screenshot({ path: join(folder, 'options_light.png') });
    await page.reload();
    await Ask(page);
    await AnswerIsFinished(page);
    const { cache_options, top_k, early_stop } = log.requests.at(-1);
    assert.deepEqual(cache_options, { rank: 16, scope: 'all' });
    assert.deepEqual({ top_k, early_stop }, { top_k: 5, early_stop: 'off' });
    await page.getByText('Options of spa (2 changed)').click();
    await page.getByLabel('rank').fill('');
    await page.getByText('Options of spa (1 changed)').waitFor();
  });
}

async function SingleTurnIsSentAlone() {
  const single = await StartMock({ single_turn: true, knows: 'puzzles and nothing else.' });
  const test = OnPage({ url: AddressOf(single) }, async (page, log) => {
    await page.getByText('one question at a time').waitFor();
    await page.getByText('It knows puzzles and nothing else.').waitFor();
    for (let i = 0; i < 2; ++i) {
      await Ask(page);
      await AnswerIsFinished(page);
    }
    assert.equal(log.requests.at(-1).messages.length, 1);
    await page.getByText('Each question is sent alone').waitFor();
  });
  await test.finally(() => Close(single));
}

async function SlowStepsTellTheTimeLeft() {
  await OnPage({}, async (page) => {
    await Ask(page, `slowly: ${props.examples[0]}`);
    const state = page.getByTestId('state');
    await state.getByText(/^first step, layer \d+ of \d+, \d+ s left$/).waitFor();
    await state.getByText(/^step \d+ of at most 128, .* per step, at most \d+ s left$/).waitFor();
    await page.screenshot({ path: join(folder, 'slow_light.png') });
    await page.getByRole('button', { name: 'Stop' }).click();
  });
}

// The answer ends early; the rest of the canvas is filled, which no step did.
async function RestOfTheCanvasIsNotJustSettled() {
  await OnPage({}, async (page) => {
    await Ask(page);
    await AnswerIsFinished(page);
    const share = await page.locator('figure canvas').evaluate((canvas) => {
      const lane = canvas.getContext('2d').getImageData(0, canvas.height - 2, canvas.width, 1).data;
      const Fresh = (i) => lane[i] === 0xe0 && lane[i + 1] === 0xa1 && lane[i + 2] === 0;
      let count = 0;
      for (let i = 0; i < lane.length; i += 4) count += Fresh(i);
      return count / canvas.width;
    });
    assert.ok(share > 0 && share < 0.05, `${share}`);
  });
}

async function AnswerIsReplayedOnce() {
  await OnPage({}, async (page) => {
    await page.evaluate(() => {
      window.steps_seen = new Set();
      new MutationObserver(() => {
        const step = document.querySelector('[data-testid=step]');
        if (step) window.steps_seen.add(parseInt(step.textContent.slice(5)));
      }).observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await Ask(page);
    await page.getByRole('button', { name: 'Play the steps' }).waitFor(); // it has come to its end
    const last_step = Number(await page.getByRole('slider', { name: 'Step' }).getAttribute('max'));
    assert.equal(await page.evaluate(() => window.steps_seen.size), last_step); // none left out
    assert.equal(await page.getByTestId('answer').locator('[data-pos]').count(), 0);

    await page.evaluate(() => window.steps_seen.clear());
    await Ask(page);
    await page.getByRole('button', { name: 'Skip to the end' }).click();
    await AnswerIsFinished(page);
    assert.ok((await page.evaluate(() => window.steps_seen.size)) < last_step);
  });
}

async function ConversationOutlivesAReload() {
  await OnPage({}, async (page, log) => {
    await Ask(page);
    await AnswerIsFinished(page);
    const answer = await page.getByTestId('answer').innerText();
    await page.reload();
    assert.equal(await page.getByTestId('answer').innerText(), answer);
    assert.equal(await page.getByTestId('question').innerText(), props.examples[0]);
    await page.getByRole('button', { name: 'Show the numbers' }).click();
    assert.match(await page.getByTestId('numbers').innerText(), /tok\/s/);
    await Ask(page);
    await AnswerIsFinished(page);
    const { single_turn } = (await FetchModels()).data[0];
    assert.equal(log.requests.at(-1).messages.length, single_turn ? 1 : 3);
    await page.getByRole('button', { name: 'New chat' }).click();
    await page.reload();
    await page.getByRole('list', { name: 'Example questions' }).waitFor();
    assert.equal(await page.getByTestId('question').count(), 0);
  });
}

async function PhoneOpensAtTheTop() {
  const phone = { viewport: { width: 390, height: 480 }, isMobile: true, hasTouch: true };
  await OnPage(phone, async (page) => {
    await page.getByRole('list', { name: 'Example questions' }).waitFor();
    await page.screenshot({ path: join(folder, 'start_small_phone.png') });
    assert.equal(await page.evaluate(() => window.scrollY), 0);
    assert.equal(await page.locator('textarea:focus').count(), 0); // would open the keyboard
  });
}

async function NumbersExplainThemselves() {
  await OnPage({}, async (page) => {
    await page.getByLabel('Cache', { exact: true }).selectOption('none');
    await Ask(page);
    await AnswerIsFinished(page);
    const numbers = await page.getByTestId('numbers').innerText();
    assert.doesNotMatch(numbers, /saved/);
    const Milliseconds = (name) => {
      const [, value, unit] = new RegExp(`${name}\\s+([\\d.]+) (ms|s)`).exec(numbers);
      return Number(value) * (unit === 's' ? 1000 : 1);
    };
    assert.ok(Milliseconds('First text') <= Milliseconds('Time'), numbers);
  });
}

async function NothingLooksOutBesideTheQuestionField() {
  await OnPage({ viewport: { width: 1440, height: 860 } }, async (page) => {
    await page.getByLabel('two, side by side').check();
    await Ask(page);
    await AnswerIsFinished(page, 2);
    const is_covered = await page.evaluate(() => {
      const dock = document.querySelector('.dock').getBoundingClientRect();
      const main = document.querySelector('main').getBoundingClientRect();
      return dock.left <= main.left && dock.right >= main.right;
    });
    assert.ok(is_covered);
    await page.screenshot({ path: join(folder, 'side_by_side_answered_light.png') });
  });
}

async function DarkThemeIsToggledAndKept() {
  await OnPage({}, async (page) => {
    const Background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await Background();
    await page.getByRole('button', { name: 'Dark theme' }).click();
    const dark = await Background();
    assert.notEqual(dark, light);
    await page.reload();
    assert.equal(await Background(), dark);
    await page.screenshot({ path: join(folder, 'start_dark.png') });
    await Ask(page);
    await CanvasIsShown(page);
    await page.screenshot({ path: join(folder, 'answering_dark.png') });
    await AnswerIsFinished(page);
    await page.screenshot({ path: join(folder, 'answered_dark.png') });
  });
  await OnPage({ colorScheme: 'dark' }, async (page) => {
    const scheme = await page.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(scheme, 'dark'); // as the system asks
  });
}

async function PhoneWidthDoesNotOverflow() {
  await OnPage({ viewport: { width: 360, height: 740 } }, async (page) => {
    await page.getByLabel('Question', { exact: true }).waitFor();
    await DoesNotOverflow(page);
    await page.screenshot({ path: join(folder, 'start_phone.png') });
    await page.getByRole('button', { name: /^Settings/ }).click();
    await DoesNotOverflow(page);
    await page.screenshot({ path: join(folder, 'settings_phone.png') });
    await page.getByRole('button', { name: 'Done' }).click();
    await Ask(page);
    await AnswerIsFinished(page);
    await DoesNotOverflow(page);
    await page.getByRole('slider', { name: 'Step' }).fill('9');
    await page.screenshot({ path: join(folder, 'scrubbed_phone.png'), fullPage: true });
    await DoesNotOverflow(page);
    await page.getByRole('button', { name: /^Settings/ }).click();
    await page.getByLabel('two, side by side').check();
    await page.getByRole('button', { name: 'Done' }).click();
    await Ask(page);
    await AnswerIsFinished(page, 2);
    await DoesNotOverflow(page);
    await page.screenshot({ path: join(folder, 'side_by_side_phone.png'), fullPage: true });
  });
}

async function KeyboardAloneIsEnough() {
  await OnPage({}, async (page) => {
    await page.locator('textarea:focus').waitFor(); // it has the focus from the start
    await page.keyboard.type('one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    assert.equal(await page.getByLabel('Question', { exact: true }).inputValue(), 'one\ntwo');
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type(props.examples[0]);
    await page.keyboard.press('Enter');
    await AnswerIsFinished(page);
    const IsOnSlider = () => page.evaluate(() => document.activeElement?.type === 'range');
    for (let i = 0; i < 20 && !(await IsOnSlider()); ++i) await page.keyboard.press('Shift+Tab');
    assert.ok(await IsOnSlider());
    await page.keyboard.press('Home');
    assert.match(await page.getByTestId('step').innerText(), /^step 1 /);
    await page.screenshot({ path: join(folder, 'focus_light.png') });
  });
}

async function PageIsAccessible() {
  for (const width of [390, 768, 1440]) {
    for (const colorScheme of ['light', 'dark']) {
      const viewport = { width, height: 860 };
      await OnPage({ viewport, colorScheme, reducedMotion: 'reduce' }, async (page) => {
        await page.getByLabel('Question', { exact: true }).waitFor();
        await IsAccessible(page);
        const is_wide = width >= 1080;
        if (!is_wide) await page.getByRole('button', { name: /^Settings/ }).click();
        await page.getByLabel('two, side by side').check();
        await IsAccessible(page);
        if (!is_wide) await page.getByRole('button', { name: 'Done' }).click();
        await Ask(page);
        await AnswerIsFinished(page, 2);
        await IsAccessible(page);
        await page.getByRole('slider', { name: 'Step' }).fill('3');
        await IsAccessible(page);
        const name = `side_by_side_${width}_${colorScheme}.png`;
        await page.screenshot({ path: join(folder, name) });
        // The last layer's number stands beside its row, however long the caption next door.
        const caption = page.locator('figure.map figcaption').first();
        await caption.evaluate((element) => element.append(' and so on'.repeat(20)));
        for (const map of await page.locator('figure.map').all()) {
          const axis = await map.locator('.axis').boundingBox();
          const labels = await map.locator('.regions').boundingBox();
          const below = axis.y + axis.height - labels.y - labels.height;
          assert.ok(Math.abs(below) < 2, `the axis of a map ends ${below} pixels below it`);
        }
      });
    }
  }
}

async function KeyIsAskedFor() {
  const locked = await StartMock({ key: 'secret' });
  const inputs = { url: AddressOf(locked), allow_failed_requests: true };
  const test = OnPage(inputs, async (page, log) => {
    await page.getByLabel('Key').fill('wrong');
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.getByRole('alert').waitFor();
    await page.screenshot({ path: join(folder, 'key_light.png') });
    await page.getByLabel('Key').fill('secret');
    await page.getByLabel('Key').press('Enter');
    await Ask(page);
    await AnswerIsFinished(page);
    await page.reload();
    await page.getByLabel('Question', { exact: true }).waitFor();
    assert.equal(log.requests.length, 1);
  });
  await test.finally(() => Close(locked));
}

async function ErrorInTheMiddleIsShown() {
  await OnPage({}, async (page) => {
    await Ask(page, 'fail in the middle');
    await page.getByRole('alert').getByText('The model ran out of memory.').waitFor();
  });
}

async function DifferentAnswersAreMarked() {
  await OnPage({ viewport: { width: 1440, height: 960 } }, async (page) => {
    await page.getByLabel('two, side by side').check();
    await page.getByText('Options of spa').click();
    await page.getByLabel('rank').fill('1');
    await Ask(page);
    await AnswerIsFinished(page, 2);
    assert.match(await page.getByTestId('verdict').innerText(), /answers differ/);
    assert.deepEqual(await page.locator('mark').allInnerTexts(), ['True', 'False']);
    await page.screenshot({ path: join(folder, 'side_by_side_differ_light.png') });
  });
}

// Opens the page for one test, and fails it for console errors and for requests that leave the
// server. The log holds the bodies of the chat requests.
async function OnPage(inputs, Test) {
  const { url: own_url = url, allow_failed_requests = false, ...context_options } = inputs;
  const viewport = { width: 1280, height: 860 };
  const context = await browser.newContext({ viewport, colorScheme: 'light', ...context_options });
  await context.addInitScript(RememberCanvases);
  const page = await context.newPage();
  page.setDefaultTimeout(kAnswerMs);
  const complaints = [];
  const log = { requests: [] };
  page.on('request', (request) => {
    const is_own = request.url().startsWith(own_url) || request.url().startsWith('data:');
    if (!is_own) complaints.push(`request to ${request.url()}`);
    if (request.method() === 'POST') log.requests.push(request.postDataJSON());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return;
    const is_refusal = message.text().startsWith('Failed to load resource');
    const is_missing_table = message.location().url.endsWith('/v1/options');
    if (is_refusal && (allow_failed_requests || is_missing_table)) return;
    complaints.push(message.text());
  });
  try {
    await page.goto(own_url);
    await Test(page, log);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

async function Ask(page, question = props.examples[0]) {
  await page.getByLabel('Question', { exact: true }).fill(question);
  await page.getByLabel('Question', { exact: true }).press('Enter');
}

// The canvas of a run is there, or was: a fast answer replaces it before anybody can look.
async function CanvasIsShown(page, side = 0) {
  await page.waitForFunction((side) => window.canvas_seen.has(side), side);
}

function RememberCanvases() {
  window.canvas_seen = new Set();
  new MutationObserver(() => {
    for (const [side, run] of document.querySelectorAll('[data-testid=run]').entries()) {
      if (run.querySelector('[data-pos]')) window.canvas_seen.add(side);
    }
  }).observe(document, { childList: true, subtree: true });
}

// The send button is back once nothing is under way, and every answer of the turn is there.
async function AnswerIsFinished(page, num_runs = 1) {
  await page.getByRole('button', { name: 'Send' }).waitFor();
  const skip = page.getByRole('button', { name: 'Skip to the end' });
  // The replay may end by itself at any moment.
  await skip.click({ timeout: 200 }).catch(() => {});
  await skip.waitFor({ state: 'detached' });
  const runs = await page.getByTestId('run').evaluateAll((elements) => {
    return elements.map((element) => element.getAttribute('aria-busy'));
  });
  assert.ok(runs.length >= num_runs && runs.every((busy) => busy === 'false'));
  assert.equal(await page.getByRole('alert').count(), 0);
}

async function FetchModels() {
  return (await fetch(new URL('/v1/models', url))).json();
}

function MapPicture(page) {
  return page.locator('figure canvas').evaluate((canvas) => canvas.toDataURL());
}

function Close(server) {
  server.close();
  server.closeAllConnections();
}

function AddressOf(server) {
  return `http://127.0.0.1:${server.address().port}`;
}
