// A report: text, plots and tables that the program writes into the page as JSON. What a plot shows
// is also in a table, for those who cannot see the plot or want the numbers.

export interface Report {
  title: string;
  text?: string;
  sections: Section[];
}

export interface Section {
  title: string;
  text?: string;
  plot?: Plot;
  table?: Table; // instead of the plot's own numbers
}

export interface Table {
  columns: string[]; // the first one holds names
  rows: (string | number)[][];
}

export interface Axis {
  label: string;
  percent?: boolean; // values are shares: written as percent, never below 0 or above 1
  integer?: boolean;
  log?: boolean;
  zero?: boolean; // begins at zero
  min?: number; // the axis fits the values, but never passes these
  max?: number;
}

export interface Point {
  x: number;
  y: number;
  error?: number; // half length of an error bar
  label?: string; // written beside the point where there is room
}

export interface Series {
  name: string;
  points: Point[];
  line?: boolean; // true unless told
  dots?: boolean; // true unless told
  dashed?: boolean;
}

// Lines and points.
export interface XyPlot {
  kind: 'xy';
  x: Axis;
  y: Axis;
  series: Series[];
}

// Stacked horizontal bars; parts have the same color in all bars.
export interface BarPlot {
  kind: 'bars';
  x: Axis;
  parts: string[];
  bars: { name: string; values: number[] }[]; // one value per part
}

// A colored cell for each pair of x and y.
export interface MapPlot {
  kind: 'map';
  x: Axis;
  y: Axis; // downwards
  value: Axis;
  x_first: number; // the x of the first column
  y_first: number;
  values: number[][]; // rows from top to bottom
}

export type Plot = XyPlot | BarPlot | MapPlot;

// The report inside this page, or null if the page is the one that asks the server.
export function ReadReport(): Report | null {
  const text = document.getElementById('report')?.textContent?.trim();
  return text ? (JSON.parse(text) as Report) : null;
}

export function FormatValue(value: number, axis: Axis): string {
  if (axis.percent) return `${Number((100 * value).toFixed(1))}%`;
  return String(axis.integer ? value : Number(value.toPrecision(4)));
}

export function PlotTable(plot: Plot): Table {
  if (plot.kind === 'bars') {
    return {
      columns: ['', ...plot.parts.map((part) => `${part}, ${plot.x.label}`)],
      rows: plot.bars.map(({ name, values }) => [
        name,
        ...values.map((value) => FormatValue(value, plot.x)),
      ]),
    };
  }
  if (plot.kind === 'map') {
    const num_columns = plot.values[0]?.length ?? 0;
    return {
      columns: [
        `${plot.y.label} \\ ${plot.x.label}`,
        ...Array.from({ length: num_columns }, (_, i) => FormatValue(plot.x_first + i, plot.x)),
      ],
      rows: plot.values.map((values, i) => [
        FormatValue(plot.y_first + i, plot.y),
        ...values.map((value) => FormatValue(value, plot.value)),
      ]),
    };
  }
  return HaveSameX(plot.series) ? TableByX(plot) : TableByPoint(plot);
}

function HaveSameX(series: Series[]): boolean {
  const Key = (one: Series) => one.points.map((point) => point.x).join();
  const has_labels = series.some((one) => one.points.some((point) => point.label));
  return !has_labels && series.every((one) => Key(one) === Key(series[0]));
}

function TableByX({ x, y, series }: XyPlot): Table {
  return {
    columns: [x.label, ...series.map((one) => one.name)],
    rows: (series[0]?.points ?? []).map((point, i) => [
      FormatValue(point.x, x),
      ...series.map((one) => FormatY(one.points[i], y)),
    ]),
  };
}

function TableByPoint({ x, y, series }: XyPlot): Table {
  return {
    columns: ['', ...(series.length > 1 ? ['series'] : []), x.label, y.label],
    rows: series.flatMap((one) =>
      one.points.map((point) => [
        point.label ?? '',
        ...(series.length > 1 ? [one.name] : []),
        FormatValue(point.x, x),
        FormatY(point, y),
      ]),
    ),
  };
}

export function FormatY(point: Point, axis: Axis): string {
  const error = point.error ? ` \u00b1 ${FormatValue(point.error, axis)}` : '';
  return FormatValue(point.y, axis) + error;
}
