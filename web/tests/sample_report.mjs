// A report with every kind of plot, with values at the edges of their axes.

const kLayers = [1, 2, 3, 4, 5, 6];
const kDrift = [0.11, 0.24, 0.39, 0.62, 0.97, 1];

function Curve(name, values, more = {}) {
  return { name, points: values.map((y, i) => ({ x: i + 1, y })), ...more };
}

const kCaches = [
  ['none', 61.2, 1, 0.02],
  ['spa', 148.3, 0.97, 0.06],
  ['dllm', 119.6, 0.955, 0.06],
  ['fast-prefix', 131.1, 0.91, 0.09],
  ['fast-dual', 161.8, 0.9, 0.09],
  ['dkv', 97.4, 0.93, 0.08],
  ['d2', 96.9, 0.94, 0.08],
  ['elastic', 98.8, 0.96, 0.06],
];

export const kReport = {
  title: 'A sample <report>',
  text: 'Every kind of plot, </script><script>document.title = "broken"</script> and all.',
  sections: [
    {
      title: 'Accuracy against speed',
      text: 'Up and to the right is better. Bars are one standard error.',
      plot: {
        kind: 'xy',
        x: { label: 'tokens per second', zero: true },
        y: { label: 'accuracy', percent: true },
        series: [
          {
            name: 'one token after the other',
            line: false,
            points: kCaches.map(([label, x, y, error]) => ({ label, x, y, error })),
          },
          {
            name: 'parallel decoding',
            line: false,
            points: kCaches.map(([label, x, y, error]) => ({ label, x: 2.2 * x, y: y - 0.04, error })),
          },
        ],
      },
    },
    {
      title: 'Drift per layer and the fitted budget',
      text: 'The budget follows the drift of the layer output.',
      plot: {
        kind: 'xy',
        x: { label: 'layer', integer: true },
        y: { label: 'rows with similarity below 0.95', percent: true, zero: true },
        series: [
          Curve('layer output', kDrift),
          Curve('fitted budget', [0.1, 0.22, 0.4, 0.64, 0.95, 0.98], { dashed: true, dots: false }),
          Curve('uniform, same mean', kLayers.map(() => 0.55), { dashed: true, dots: false }),
        ],
      },
    },
    {
      title: 'Similarity between steps, layer 4',
      plot: {
        kind: 'map',
        x: { label: 'position', integer: true },
        y: { label: 'step', integer: true },
        value: { label: 'cosine similarity', max: 1 },
        x_first: 0,
        y_first: 2,
        values: Array.from({ length: 24 }, (_, step) =>
          Array.from({ length: 32 }, (_, pos) => 1 - 0.3 * Math.exp(-((pos - step) ** 2) / 9)),
        ),
      },
    },
    {
      title: 'Singular values',
      plot: {
        kind: 'xy',
        x: { label: 'index', integer: true },
        y: { label: 'share of the largest', log: true },
        series: kLayers.map((layer) =>
          Curve(`layer ${layer}`, Array.from({ length: 32 }, (_, i) => Math.exp(-i / (4 + layer))), {
            dots: false,
          }),
        ),
      },
    },
    {
      title: 'Time per step',
      plot: {
        kind: 'bars',
        x: { label: 'milliseconds per step' },
        parts: ['identify', 'attention', 'FFN', 'other'],
        bars: [
          { name: 'none', values: [0, 5.1, 9.8, 1.2] },
          { name: 'spa, singular', values: [0.4, 1.9, 2.6, 1.2] },
        ],
      },
    },
    {
      title: 'One point, and none',
      plot: {
        kind: 'xy',
        x: { label: 'x' },
        y: { label: 'y', percent: true },
        series: [{ name: 'alone', points: [{ x: 0, y: 1, label: 'p' }] }, { name: 'none', points: [] }],
      },
    },
    {
      title: 'Numbers',
      table: {
        columns: ['cache', 'decoding', 'tokens/s', 'speedup', 'steps', 'rows', 'agreement', 'memory'],
        rows: kCaches.map(([name, speed, share]) => [
          ...[name, 'plain', speed, `${(speed / 61.2).toFixed(2)}x`, 32, '12.1%', `${100 * share}%`],
          '2.48 MB',
        ]),
      },
    },
  ],
};
