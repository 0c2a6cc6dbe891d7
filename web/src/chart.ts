// Draws the plots of a report with Observable Plot.

import * as Plot from '@observablehq/plot';

import {
  FormatValue,
  FormatY,
  type Axis,
  type BarPlot,
  type MapPlot,
  type Plot as PlotSpec,
  type Point,
  type Series,
  type XyPlot,
} from './report';

// Colors and shapes of series, in this order; style.css has the colors.
const kNumColors = 8;
const kSymbols = ['circle', 'square', 'triangle', 'diamond', 'star', 'wye', 'cross', 'times'] as const;

const kFontSize = 12;
const kCharWidth = 6.8; // of that font, roughly
const kLineHeight = 15;
const kDotRadius = 4;

// A map's colors, from its lowest to its highest value: even steps for all readers, on light ground
// and on dark.
export const kMapScheme = 'viridis';

export function SeriesColor(index: number): string {
  return `var(--series-${index % kNumColors})`;
}

export function DrawPlot(plot: PlotSpec, width: number): Element {
  const style = { fontSize: `${kFontSize}px`, overflow: 'visible' };
  const svg = Plot.plot({ width, style, ...Options(plot, width) });
  svg.setAttribute('aria-hidden', 'true'); // its parts mean nothing read aloud; there is a table
  return svg;
}

// A short piece of a series for the legend, by the same marks as the plot's.
export function DrawLegendMark(series: Series, index: number): Element {
  const points = [0, 1, 2].map((x) => ({ x, y: 0 }));
  const line = { ...series, points };
  const svg = Plot.plot({
    width: 28,
    height: 14,
    margin: 6,
    axis: null,
    x: { domain: [0, 2] },
    y: { domain: [-1, 1] },
    marks: [
      ...LineMarks(line, index),
      ...DotMarks({ ...line, points: points.slice(1, 2) }, index),
    ],
  });
  svg.setAttribute('aria-hidden', 'true');
  return svg;
}

function Options(plot: PlotSpec, width: number): Plot.PlotOptions {
  if (plot.kind === 'xy') return XyOptions(plot, width);
  return plot.kind === 'bars' ? BarOptions(plot, width) : MapOptions(plot, width);
}

function XyOptions({ x, y, series }: XyPlot, width: number): Plot.PlotOptions {
  const points = series.flatMap((one) => one.points.map((point) => ({ ...point, name: one.name })));
  const x_domain = Domain(x, points.map((point) => point.x));
  const y_domain = Domain(
    y,
    points.flatMap(({ y, error = 0 }) => [y - error, y + error]),
  );
  const Inside = (value: number) => Math.max(y_domain[0], Math.min(y_domain[1], value));
  return {
    height: Math.round(Math.max(240, Math.min(380, width * 0.6))),
    marginLeft: 52,
    marginRight: 16,
    marginTop: 28,
    marginBottom: 42,
    x: ScaleOptions(x, x_domain, width),
    y: ScaleOptions(y, y_domain, 400),
    marks: [
      Plot.gridX(),
      Plot.gridY(),
      ...series.flatMap(LineMarks),
      ...series.map((one, i) =>
        Plot.ruleX(
          one.points.filter((point) => point.error),
          {
            x: 'x',
            y1: (point: Point) => Inside(point.y - point.error!),
            y2: (point: Point) => Inside(point.y + point.error!),
            stroke: SeriesColor(i),
            strokeOpacity: 0.6,
          },
        ),
      ),
      ...series.flatMap(DotMarks),
      Plot.text(
        points.filter((point) => point.label),
        LabelsWithRoom({ x: 'x', y: 'y', text: 'label', textAnchor: 'start', fill: 'currentColor' }),
      ),
      Plot.tip(
        points,
        Plot.pointer({
          x: 'x',
          y: 'y',
          title: (point: Point & { name: string }) =>
            `${point.label ? `${point.label} (${point.name})` : point.name}\n` +
            `${x.label}: ${FormatValue(point.x, x)}\n${y.label}: ${FormatY(point, y)}`,
        }),
      ),
    ],
  };
}

function LineMarks(series: Series, index: number): Plot.Markish[] {
  if (series.line === false) return [];
  const stroke = SeriesColor(index);
  const strokeDasharray = series.dashed ? '6 4' : undefined;
  return [Plot.lineY(series.points, { x: 'x', y: 'y', stroke, strokeWidth: 2, strokeDasharray })];
}

function DotMarks(series: Series, index: number): Plot.Markish[] {
  if (series.dots === false) return [];
  const symbol = kSymbols[index % kSymbols.length];
  return [Plot.dot(series.points, { x: 'x', y: 'y', fill: SeriesColor(index), symbol, r: kDotRadius })];
}

function BarOptions({ x, parts, bars }: BarPlot, width: number): Plot.PlotOptions {
  const cells = bars.flatMap(({ name, values }) =>
    values.map((value, i) => ({ name, part: parts[i], value })),
  );
  const sums = bars.map(({ values }) => values.reduce((sum, value) => sum + value, 0));
  const longest = Math.max(...bars.map(({ name }) => name.length));
  return {
    height: 60 + 40 * bars.length,
    marginLeft: Math.min(width / 3, 12 + kCharWidth * longest),
    marginRight: 16,
    marginTop: 8,
    marginBottom: 42,
    x: ScaleOptions({ ...x, zero: true }, Domain({ ...x, zero: true }, sums), width),
    y: { label: null, domain: bars.map(({ name }) => name) },
    color: { domain: parts, range: parts.map((_, i) => SeriesColor(i)) },
    marks: [
      Plot.gridX(),
      Plot.barX(cells, { x: 'value', y: 'name', fill: 'part', insetRight: 1 }),
      Plot.tip(
        cells,
        Plot.pointerY(
          Plot.stackX({
            x: 'value',
            y: 'name',
            title: ({ name, part, value }) =>
              `${name}\n${part}: ${FormatValue(value, x)} ${x.label}`,
          }),
        ),
      ),
    ],
  };
}

function MapOptions({ x, y, value, x_first, y_first, values }: MapPlot, width: number): Plot.PlotOptions {
  const num_rows = values.length;
  const num_columns = values[0].length;
  const cells = values.flatMap((row, i) =>
    row.map((shown, j) => ({ x: x_first + j, y: y_first + i, value: shown })),
  );
  return {
    height: Math.round(Math.max(180, Math.min(420, 70 + 8 * num_rows))),
    marginLeft: 52,
    marginRight: 16,
    marginTop: 28,
    marginBottom: 42,
    x: ScaleOptions(x, [x_first - 0.5, x_first + num_columns - 0.5], width),
    y: { ...ScaleOptions(y, [y_first - 0.5, y_first + num_rows - 0.5], 400), reverse: true },
    color: { type: 'linear', scheme: kMapScheme, domain: MapDomain({ value, values }) },
    marks: [
      Plot.raster(
        cells.map((cell) => cell.value),
        {
          width: num_columns,
          height: num_rows,
          x1: x_first - 0.5,
          x2: x_first + num_columns - 0.5,
          y1: y_first - 0.5,
          y2: y_first + num_rows - 0.5,
          fill: Plot.identity,
          imageRendering: 'pixelated',
        },
      ),
      Plot.tip(
        cells,
        Plot.pointer({
          x: 'x',
          y: 'y',
          title: (cell) =>
            `${x.label} ${FormatValue(cell.x, x)}, ${y.label} ${FormatValue(cell.y, y)}\n` +
            `${value.label}: ${FormatValue(cell.value, value)}`,
        }),
      ),
    ],
  };
}

// The values that a map's colors stand for.
export function MapDomain({ value, values }: Pick<MapPlot, 'value' | 'values'>): [number, number] {
  return Domain(value, values.flat());
}

// From the least to the greatest value, with some air, inside the axis's bounds.
function Domain(axis: Axis, values: number[]): [number, number] {
  const { min = axis.percent ? 0 : -Infinity, max = axis.percent ? 1 : Infinity } = axis;
  let low = axis.zero ? 0 : Infinity;
  let high = axis.zero ? 0 : -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = [0, 1]; // no values
  if (axis.log) return [low, high];
  const air = axis.integer ? 0 : high > low ? 0.05 * (high - low) : 0.05 * Math.abs(low) || 0.05;
  if (!(axis.zero && low === 0)) low -= air;
  return [Math.max(min, low), Math.min(max, high + air)];
}

function ScaleOptions(axis: Axis, domain: [number, number], length: number): Plot.ScaleOptions {
  const num_ticks = length / (axis.log ? 110 : 80);
  return {
    label: axis.label,
    type: axis.log ? 'log' : 'linear',
    domain,
    nice: !axis.integer,
    // At most one tick per whole number.
    ticks: axis.integer ? Math.min(Math.ceil(domain[1] - domain[0]), num_ticks) : num_ticks,
    tickFormat: axis.percent || axis.log ? (value: number) => FormatValue(value, axis) : undefined,
  };
}

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

function BoxAt(left: number, middle: number, width: number, height: number): Box {
  return { left, right: left + width, top: middle - height / 2, bottom: middle + height / 2 };
}

function Overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Writes a label right or left of its point if it covers no other label and no point there.
// Otherwise the tip under the pointer and the table have it.
function LabelsWithRoom(options: Plot.TextOptions): Plot.TextOptions {
  return Plot.initializer(options, (data, facets, channels, scales, dimensions) => {
    const Pixels = (channel: Plot.Channel, Scale: (value: number) => number) =>
      Array.from(channel.value as unknown as Iterable<number>, Scale);
    const xs = Pixels(channels.x!, scales.x as unknown as (value: number) => number);
    const ys = Pixels(channels.y!, scales.y as unknown as (value: number) => number);
    const frame_right = dimensions.width - dimensions.marginRight;
    const taken = xs.map((x, i) => BoxAt(x - kDotRadius, ys[i], 2 * kDotRadius, 2 * kDotRadius));
    const lefts = new Float64Array(xs.length);
    const shown = (data as unknown as Point[]).flatMap((point, i) => {
      const width = kCharWidth * point.label!.length;
      for (const left of [xs[i] + 8, xs[i] - 8 - width]) {
        const box = BoxAt(left, ys[i], width, kLineHeight);
        const is_inside = box.left >= dimensions.marginLeft && box.right <= frame_right;
        if (!is_inside || taken.some((other) => Overlap(box, other))) continue;
        taken.push(box);
        lefts[i] = left;
        return [i];
      }
      return [];
    });
    return { data, facets: facets.map(() => shown), channels: { x: { value: lefts } } };
  }) as Plot.TextOptions;
}
