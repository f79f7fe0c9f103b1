// The drawing of a chart, for Vega: areas by group, lines to compare with, lanes of operations.

const MOST_COLUMNS = 900;
const OUTLINED = 160;
const MARGIN = { l: 78, r: 18, t: 14, b: 46 };
const LANE_PIXELS = 20;
const GAP_PIXELS = 14;
const FAR_ABOVE = 1.7;

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"), soft: colour("soft"), grid: colour("grid"), card: colour("card"),
    bad: colour("bad"), good: colour("good"),
    kinds: Array.from({ length: 8 }, (_, at) => colour(`kind${at}`)),
  };
}

/** A drawing within fixed margins; what is drawn is cut off at their inner edges, axes are not. */
function frame(width, height, scales, axes, marks, data) {
  const inside = (clip, parts) => ({
    // Grids are as long as these say, not as the group is.
    type: "group", ...parts, signals: [{ name: "width", value: width }, { name: "height", value: height }],
    encode: { update: { x: { value: MARGIN.l }, y: { value: MARGIN.t }, width: { value: width }, height: { value: height }, clip: { value: clip } } },
  });
  return {
    $schema: "https://vega.github.io/schema/vega/v6.json", autosize: "none", padding: 0,
    width: width + MARGIN.l + MARGIN.r, height: height + MARGIN.t + MARGIN.b, background: null,
    data, scales, marks: [inside(false, { axes }), inside(true, { marks })],
  };
}

/** Let Vega draw into an element: without a style of its own, and without making code of text. */
async function embed(place, spec) {
  const { soft, grid } = theme();
  const font = getComputedStyle(document.body).fontFamily;
  const config = {
    font, axis: {
      labelColor: soft, titleColor: soft, gridColor: grid, domainColor: grid, tickColor: grid, labelFont: font, titleFont: font,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 9, labelPadding: 5,
    },
  };
  const options = { mode: "vega", ast: true, actions: false, defaultStyle: false, tooltip: false, renderer: "canvas", config };
  const before = place.drawn;
  place.drawn = vegaEmbed(place, spec, options);
  const made = await place.drawn;
  if (before) (await before).finalize();
  return made;
}

/** What is to be drawn of a chart for a view: which track, grouped how, from where to where. */
class Figure {
  constructor(chart, view, width, height) {
    this.chart = chart;
    this.track = chart.tracks[view.track];
    this.view = view;
    this.height = height;
    this.width = width - MARGIN.l - MARGIN.r;
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

  spec() {
    const inner = this.height - MARGIN.t - MARGIN.b;
    const plot = inner * (1 - this.floor), lanes = inner * (1 - this.laneTop);
    this.data = [];
    const scales = [
      { name: "x", type: "linear", domain: this.view.range, range: [0, this.width], zero: false, nice: false },
      { name: "y", type: "linear", domain: [0, this.top / MEBIBYTE], range: [plot, 0], nice: false },
      { name: "lane", type: "band", domain: this.lanes.map((_, at) => at), range: [lanes, inner], paddingInner: 0.15 },
    ];
    const axes = [
      { orient: "left", scale: "y", title: "MiB in use", grid: true, tickCount: 7, format: ",~r", domain: false },
      { orient: "bottom", scale: "x", title: this.axisTitle(), tickCount: Math.max(2, Math.floor(this.width / 110)), format: ",~r" },
    ];
    const marks = [...this.areas(), this.outlines(), ...this.totals(), ...this.curves(), ...this.marked(), this.laneMark()];
    const drawing = frame(this.width, inner, scales, axes, marks, this.data);
    drawing.marks.push(this.laneNames());
    return drawing;
  }

  /** A mark of its own data; areas and lines stay as high as they are to the next point. */
  mark(type, values, style) {
    const name = `data${this.data.length}`;
    this.data.push({ name, values });
    const steps = { x: { scale: "x", field: "x" }, y: { scale: "y", field: "y" }, interpolate: { value: "step-after" } };
    return { type, from: { data: name }, interactive: false, encode: { update: { ...steps, ...style } } };
  }

  line(values, colour, width, dash) {
    const style = { stroke: { value: colour }, strokeWidth: { value: width }, defined: { field: "is" } };
    if (dash) style.strokeDash = { value: dash };
    return this.mark("line", values, style);
  }

  areas() {
    const heights = new Float64Array(this.columns.length + 1);
    return this.track.groups.map((group) => {
      const values = this.xs.map((x, column) => {
        const bottom = heights[column];
        heights[column] += group.usage[this.columns[Math.min(column, this.columns.length - 1)]] / MEBIBYTE;
        return { x, y: heights[column], bottom };
      });
      const fill = { value: this.theme.kinds[group.colour] };
      return this.mark("area", values, { y2: { scale: "y", field: "bottom" }, fill });
    });
  }

  /** The upper edges of the largest tensors, so that they can be told apart. */
  outlines() {
    const { size, birth, end } = this.track.tensors;
    const first = this.columns[0], last = this.columns[this.columns.length - 1];
    const large = this.track.order
      .filter((tensor) => birth[tensor] <= last && end[tensor] > first && size[tensor] * 250 > this.top)
      .sort((a, b) => size[b] - size[a]).slice(0, OUTLINED);
    const values = [];
    for (const [tensor, places] of this.track.bottoms(large, this.columns)) {
      let y = -1, x = 0, right = 0;
      const close = () => { if (y >= 0) values.push({ x, y, is: true }, { x: right, y, is: true }, { x: right, y, is: false }); };
      for (const [column, bottom] of places) {
        const edge = (bottom + size[tensor]) / MEBIBYTE;
        if (edge !== y) {
          close();
          [x, y] = [this.xs[column], edge];
        }
        right = this.xs[column + 1];
      }
      close();
    }
    return this.line(values, this.theme.card, 0.7);
  }

  totals() {
    const [from, to] = this.view.range;
    return this.chart.tracks.map((track, at) => {
      const isShown = at === this.view.track;
      const columns = isShown ? this.columns
        : track.columns(track.momentAt(from), track.momentAt(to), MOST_COLUMNS);
      const values = columns.map((moment) => ({ x: track.x(moment), y: track.total[moment] / MEBIBYTE, is: true }));
      const last = values[values.length - 1];
      values.push({ ...last, x: Math.max(Math.min(to, track.end), last.x) });
      return this.line(values, this.theme.ink, 1.6, isShown ? null : [6, 4]);
    });
  }

  curves() {
    return this.chart.curves.map((curve) => {
      const values = curve.x.map((x, at) => ({ x, y: curve.y[at] / MEBIBYTE, is: true }));
      return this.line(values, curve.track === this.view.track ? this.theme.bad : this.theme.soft, 1.6, [2, 3]);
    });
  }

  /** Numbers of bytes to compare with, and what they are: the first at the right, others left. */
  marked() {
    return this.visibleLines.flatMap((line, at) => {
      const colour = { value: at ? this.theme.good : this.theme.bad };
      const y = { scale: "y", value: line.size_bytes / MEBIBYTE };
      const rule = { type: "rule", interactive: false, encode: { update: {
        x: { value: 0 }, x2: { value: this.width }, y, stroke: colour, strokeWidth: { value: 1.5 }, strokeDash: { value: at ? [8, 3, 2, 3] : [10, 5] },
      } } };
      const place = { x: { value: at ? 6 : this.width - 6 }, y: { ...y, offset: -5 }, align: { value: at ? "left" : "right" } };
      const text = { ...place, text: { value: `${line.title} ${bytesText(line.size_bytes)}` }, fontSize: { value: 12 }, fontWeight: { value: 600 } };
      const halo = { stroke: { value: this.theme.card }, strokeWidth: { value: 4 }, strokeJoin: { value: "round" } };
      return [rule, ...[halo, { fill: colour }].map((style) => ({ type: "text", interactive: false, encode: { update: { ...text, ...style } } }))];
    });
  }

  /** A lane for each device, in cells that have the kind of what runs there most of the time. */
  laneMark() {
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
    return this.segments(spent, (cell) => from + cell * width, cells);
  }

  /** Cells of the same kind beside each other are one rectangle. */
  segments(spent, left, cells) {
    const kinds = this.track.kinds.length;
    const values = [];
    spent.forEach((lane, at) => {
      const kindOf = (cell) => {
        let best = -1, most = 0;
        for (let kind = 0; kind < kinds; kind++) {
          const time = lane[cell * kinds + kind];
          if (time > most) [best, most] = [kind, time];
        }
        return best;
      };
      for (let start = 0, kind = kindOf(0); start < cells;) {
        let end = start + 1, next = end < cells ? kindOf(end) : -1;
        while (end < cells && next === kind) next = ++end < cells ? kindOf(end) : -1;
        if (kind >= 0) values.push({ x: left(start), x2: left(end), lane: at, fill: this.theme.kinds[kind] });
        [start, kind] = [end, next];
      }
    });
    return this.mark("rect", values, {
      x2: { scale: "x", field: "x2" }, y: { scale: "lane", field: "lane" }, height: { scale: "lane", band: 1 }, fill: { field: "fill" },
    });
  }

  laneNames() {
    const inner = this.height - MARGIN.t - MARGIN.b, pixels = (inner * this.laneTop) / this.lanes.length;
    const values = this.lanes.map((device, at) => ({
      text: this.laneName(device), y: MARGIN.t + inner * (1 - this.laneTop) + (at + 0.5) * pixels,
    }));
    this.data.push({ name: "lanes", values });
    return { type: "text", from: { data: "lanes" }, interactive: false, encode: { update: {
      x: { value: MARGIN.l - 8 }, y: { field: "y" }, text: { field: "text" }, align: { value: "right" }, baseline: { value: "middle" },
      fill: { value: this.theme.soft }, fontSize: { value: 12 },
    } } };
  }

  laneName(device) {
    const name = this.track.texts[device].replace("/job:localhost/replica:0/task:0/device:", "");
    return (name.length > 10 ? `...${name.slice(-8)}` : name) || "runs";
  }

  axisTitle() {
    return this.chart.unit ? `${this.chart.axis} (${this.chart.unit})` : this.chart.axis;
  }
}
