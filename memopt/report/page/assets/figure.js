// Plotly's figure of a chart: areas by group, lines to compare with, lanes of operations below.

const MOST_COLUMNS = 900;
const OUTLINED = 160;
const MARGIN = { l: 78, r: 18, t: 14, b: 46 };
const LANE_PIXELS = 20;
const GAP_PIXELS = 14;
const FAR_ABOVE = 1.7;

/** Text that Plotly shows as it is: it knows some markup. */
function plainText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"), soft: colour("soft"), grid: colour("grid"), card: colour("card"),
    bad: colour("bad"), good: colour("good"), accent: colour("accent"),
    kinds: Array.from({ length: 8 }, (_, at) => colour(`kind${at}`)),
  };
}

/** What is to be drawn of a chart for a view: which track, grouped how, from where to where. */
class Figure {
  constructor(chart, view, height) {
    this.chart = chart;
    this.track = chart.tracks[view.track];
    this.view = view;
    this.height = height;
    this.theme = theme();
    const [from, to] = view.range;
    this.columns = this.track.columns(this.track.momentAt(from), this.track.momentAt(to), MOST_COLUMNS);
    this.xs = this.columns.map((moment) => this.track.x(moment));
    this.xs.push(Math.max(Math.min(to, this.track.end), this.xs[this.xs.length - 1]));
    this.top = this.findTop();
    this.lanes = [...new Set(this.track.operations.device)];
    const inner = height - MARGIN.t - MARGIN.b;
    const lanes = this.lanes.length * LANE_PIXELS;
    this.floor = Math.min(0.5, (lanes + GAP_PIXELS) / inner);
    this.laneTop = Math.min(0.5, lanes / inner);
  }

  /** The most bytes that are drawn; what is far above all memory is only named in the legend. */
  findTop() {
    const { tracks, curves, lines } = this.chart;
    let most = Math.max(1, ...tracks.map((track) => track.peakBytes));
    for (const curve of curves) for (const y of curve.y) most = Math.max(most, y);
    this.visibleLines = lines.filter((line) => line.size_bytes <= FAR_ABOVE * most);
    for (const line of this.visibleLines) most = Math.max(most, line.size_bytes);
    return most * 1.07;
  }

  traces() {
    return [...this.areas(), this.outlines(), ...this.totals(), ...this.curves(), this.laneTrace()];
  }

  line(x, y, style) {
    return {
      type: "scatter", mode: "lines", x, y, hoverinfo: "skip", showlegend: false, cliponaxis: true,
      ...style, line: { shape: "hv", ...style.line },
    };
  }

  areas() {
    const heights = new Float64Array(this.columns.length);
    return this.track.groups.map((group, at) => {
      this.columns.forEach((moment, column) => { heights[column] += group.usage[moment] / MEBIBYTE; });
      const y = [...heights, heights[heights.length - 1]];
      return this.line(this.xs, y, {
        fill: at ? "tonexty" : "tozeroy", fillcolor: this.theme.kinds[group.colour], line: { width: 0 },
      });
    });
  }

  /** The upper edges of the largest tensors, so that they can be told apart. */
  outlines() {
    const { size, birth, end } = this.track.tensors;
    const first = this.columns[0], last = this.columns[this.columns.length - 1];
    const large = this.track.order
      .filter((tensor) => birth[tensor] <= last && end[tensor] > first && size[tensor] * 250 > this.top)
      .sort((a, b) => size[b] - size[a]).slice(0, OUTLINED);
    const x = [], y = [];
    for (const [tensor, places] of this.track.bottoms(large, this.columns)) {
      for (const [column, bottom] of places) {
        x.push(this.xs[column]);
        y.push((bottom + size[tensor]) / MEBIBYTE);
      }
      if (!places.length) continue;
      x.push(this.xs[places[places.length - 1][0] + 1], null);
      y.push(y[y.length - 1], null);
    }
    return this.line(x, y, { line: { width: 0.7, color: this.theme.card } });
  }

  totals() {
    const drawn = this.chart.tracks.map((track, at) => {
      const isShown = at === this.view.track;
      const [from, to] = this.view.range;
      const columns = isShown ? this.columns
        : track.columns(track.momentAt(from), track.momentAt(to), MOST_COLUMNS);
      const x = columns.map((moment) => track.x(moment));
      const y = columns.map((moment) => track.total[moment] / MEBIBYTE);
      x.push(Math.max(Math.min(to, track.end), x[x.length - 1]));
      y.push(y[y.length - 1]);
      const style = isShown ? { width: 1.6 } : { width: 1.6, dash: "dash" };
      return this.line(x, y, { line: { color: this.theme.ink, ...style } });
    });
    return drawn;
  }

  curves() {
    return this.chart.curves.map((curve) => {
      const isShown = curve.track === this.view.track;
      const colour = isShown ? this.theme.bad : this.theme.soft;
      return this.line(curve.x, curve.y.map((y) => y / MEBIBYTE), {
        line: { color: colour, width: 1.5, dash: "dot" },
      });
    });
  }

  /** A lane for each device, in cells that have the kind of what runs there most of the time. */
  laneTrace() {
    const [from, to] = this.view.range;
    const cells = Math.min(MOST_COLUMNS, Math.max(1, this.track.times ? MOST_COLUMNS : Math.ceil(to - from)));
    const width = (to - from) / cells;
    const kinds = this.track.kinds.length;
    const spent = this.lanes.map(() => new Float64Array(cells * kinds));
    const { device, kind, name } = this.track.operations;
    for (let operation = 0; operation < name.length; operation++) {
      const [start, end] = this.track.operationSpan(operation);
      if (end < from || start > to) continue;
      const lane = spent[this.lanes.indexOf(device[operation])];
      const first = Math.max(0, Math.floor((start - from) / width));
      const last = Math.min(cells - 1, Math.max(first, Math.ceil((end - from) / width) - 1));
      for (let cell = first; cell <= last; cell++) {
        const left = from + cell * width;
        lane[cell * kinds + kind[operation]] += Math.max(Math.min(end, left + width) - Math.max(start, left), width * 1e-6);
      }
    }
    const z = spent.map((lane) => Array.from({ length: cells }, (_, cell) => {
      const times = Array.from(lane.subarray(cell * kinds, (cell + 1) * kinds));
      const most = Math.max(...times);
      return most > 0 ? times.indexOf(most) : null;
    }));
    const colours = this.theme.kinds.slice(0, kinds);
    return {
      type: "heatmap", z, x0: from + width / 2, dx: width, y: this.lanes.map((_, at) => at), yaxis: "y2",
      zmin: -0.5, zmax: kinds - 0.5, showscale: false, hoverinfo: "skip", zsmooth: false, ygap: 3,
      colorscale: colours.flatMap((colour, at) => [[at / kinds, colour], [(at + 1) / kinds, colour]]),
    };
  }

  laneName(device) {
    const name = this.track.texts[device].replace("/job:localhost/replica:0/task:0/device:", "");
    const short = name.length > 10 ? `...${name.slice(-8)}` : name;
    return plainText(short || "runs");
  }

  layout() {
    const { ink, soft, grid, bad, good } = this.theme;
    const axis = { color: soft, gridcolor: grid, linecolor: grid, zeroline: false, tickfont: { size: 12 } };
    const marks = this.visibleLines.map((line, at) => ({ line, colour: at ? good : bad, dash: at ? "dashdot" : "longdash" }));
    return {
      autosize: true, height: this.height, margin: MARGIN, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: false, dragmode: "zoom",
      font: { color: ink, family: getComputedStyle(document.body).fontFamily },
      xaxis: { ...axis, range: this.view.range, anchor: "y2", title: { text: plainText(this.axisTitle()), standoff: 8 }, showgrid: false },
      yaxis: { ...axis, range: [0, this.top / MEBIBYTE], fixedrange: true, domain: [this.floor, 1], title: { text: "MiB in use", standoff: 6 }, rangemode: "tozero", separatethousands: true },
      yaxis2: {
        ...axis, fixedrange: true, domain: [0, this.laneTop], showgrid: false, range: [this.lanes.length - 0.5, -0.5],
        tickvals: this.lanes.map((_, at) => at), ticktext: this.lanes.map((device) => this.laneName(device)),
      },
      shapes: marks.map(({ line, colour, dash }) => ({
        type: "line", xref: "paper", x0: 0, x1: 1, y0: line.size_bytes / MEBIBYTE, y1: line.size_bytes / MEBIBYTE,
        line: { color: colour, width: 1.5, dash },
      })),
      annotations: marks.map(({ line, colour }, at) => ({
        xref: "paper", x: at ? 0.004 : 0.996, xanchor: at ? "left" : "right", y: line.size_bytes / MEBIBYTE, yanchor: "bottom",
        text: plainText(`${line.title} ${bytesText(line.size_bytes)}`), showarrow: false, font: { color: colour, size: 12 },
        bgcolor: this.theme.card, opacity: 0.92, borderpad: 1,
      })),
    };
  }

  axisTitle() {
    return this.chart.unit ? `${this.chart.axis} (${this.chart.unit})` : this.chart.axis;
  }
}
