// The chart as a person uses it: what is shown, what is pointed at, by pointer and by keyboard.

const CLICK_PIXELS = 4;
const FAR_STEP = 10;

class Chart {
  constructor(place, data, details) {
    this.place = place;
    this.details = details;
    this.charts = data.charts.map((chart, at) => ({
      ...chart, tracks: chart.tracks.map((track) => new Track(track, data, at)),
    }));
    for (const chart of this.charts) chart.layers = layersOf(chart.tracks);
    this.view = { chart: 0, track: 0, by: "kind", range: [0, 1] };
    this.cursor = 0;
    this.tensor = -1;
    this.isHeld = false;
    this.over = vector("svg", { class: "over", "aria-hidden": "true" });
    this.drawing = element("div", {});
    place.append(this.drawing, this.over);
  }

  get chart() { return this.charts[this.view.chart]; }
  get track() { return this.chart.tracks[this.view.track]; }
  get full() { return [0, Math.max(...this.chart.tracks.map((track) => track.end))]; }

  async start() {
    this.listen();
    this.choose({});
    await this.ready;
  }

  /** Show another chart, track or grouping; what belongs to the old one is let go. */
  choose(change) {
    const isOther = "chart" in change || "track" in change;
    const before = this.chart;
    Object.assign(this.view, change);
    this.track.group(this.view.by, this.chart.layers);
    if (!this.drawn || before !== this.chart) this.view.range = this.full;
    if (isOther || !this.drawn) {
      this.cursor = this.track.peakAt;
      this.tensor = -1;
      this.isHeld = false;
    }
    this.draw();
    this.point(this.cursor, this.tensor);
  }

  zoom(range) {
    const [low, high] = this.full;
    const least = this.track.times ? (high - low) / 1e6 : 2;
    const from = Math.max(low, Math.min(range[0], high - least));
    const to = Math.min(high, Math.max(range[1], from + least));
    this.view.range = [from, to];
    this.draw();
  }

  draw() {
    const lanes = new Set(this.track.operations.device).size;
    const height = 400 + MARGIN.t + MARGIN.b + lanes * LANE_PIXELS;
    this.place.style.height = `${height}px`;
    this.figure = new Figure(this.chart, this.view, this.place.clientWidth, height);
    this.ready = embed(this.drawing, this.figure.spec());
    this.drawn = true;
    this.legend();
    this.mark();
  }

  // Places in pixels: margins are fixed, so that they are known without asking Vega.
  get width() { return this.place.clientWidth - MARGIN.l - MARGIN.r; }
  get inner() { return this.figure.height - MARGIN.t - MARGIN.b; }

  pixelX(x) {
    const [from, to] = this.view.range;
    return MARGIN.l + ((x - from) / (to - from)) * this.width;
  }

  pixelY(bytes) {
    const { floor, top } = this.figure;
    return MARGIN.t + this.inner * (1 - (floor + (1 - floor) * (bytes / top)));
  }

  /** What lies at a place of the drawing: {moment, bytes}, or {x, lane}; null outside. */
  locate(event) {
    const box = this.place.getBoundingClientRect();
    const across = (event.clientX - box.left - MARGIN.l) / this.width;
    const up = 1 - (event.clientY - box.top - MARGIN.t) / this.inner;
    if (across < 0 || across > 1 || up < 0 || up > 1) return null;
    const [from, to] = this.view.range;
    const x = from + across * (to - from);
    const { floor, laneTop, top, lanes } = this.figure;
    if (up < laneTop) return { x, lane: lanes[Math.min(lanes.length - 1, Math.floor((1 - up / laneTop) * lanes.length))] };
    if (up < floor) return null;
    return { moment: this.nearest(x), bytes: ((up - floor) / (1 - floor)) * top };
  }

  /** The moment that is drawn at a place of the axis. */
  nearest(x) {
    const { columns, xs } = this.figure;
    let low = 0, high = columns.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle - 1;
    }
    return columns[low];
  }

  operationAt({ x, lane }) {
    const { device } = this.track.operations;
    let found = -1;
    for (let operation = 0; operation < device.length; operation++) {
      const [start, end] = this.track.operationSpan(operation);
      if (device[operation] === lane && start <= x && x <= end) found = operation;
    }
    return found;
  }

  listen() {
    let pressed = null, pending = null;
    this.place.addEventListener("pointermove", (event) => {
      if (!pending) requestAnimationFrame(() => { this.moved(pending, pressed); pending = null; });
      pending = event;
    });
    this.place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.locate(event)) return;
      pressed = event;
      this.place.setPointerCapture(event.pointerId);
    });
    this.place.addEventListener("pointerup", (event) => {
      if (pressed) this.released(pressed, event);
      pressed = null;
    });
    this.place.addEventListener("pointercancel", () => { pressed = null; this.mark(); });
    this.place.addEventListener("dblclick", () => this.zoom(this.full));
    this.place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.press(event)) return;
      event.preventDefault();
    });
    let width = this.place.clientWidth;
    new ResizeObserver(() => {
      if (width === this.place.clientWidth) return;
      width = this.place.clientWidth;
      this.draw();
    }).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  moved(event, pressed) {
    if (!event) return;
    if (pressed) this.select(pressed, event);
    else if (!this.isHeld) this.hover(event);
  }

  /** The place on the axis under a pointer. */
  across(event) {
    const [from, to] = this.view.range;
    const share = (event.clientX - this.place.getBoundingClientRect().left - MARGIN.l) / this.width;
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  }

  /** Draw the stretch that a pointer has been dragged over. */
  select(pressed, event) {
    this.mark();
    const [left, right] = [pressed, event].map((each) => this.pixelX(this.across(each))).sort((a, b) => a - b);
    this.over.append(vector("rect", { class: "veil", x: left, y: MARGIN.t, width: right - left, height: this.inner }));
  }

  released(pressed, event) {
    if (Math.abs(event.clientX - pressed.clientX) < CLICK_PIXELS) this.click(event);
    else this.zoom([this.across(pressed), this.across(event)].sort((a, b) => a - b));
  }

  hover(event) {
    const found = event && this.locate(event);
    if (!found) return;
    if ("lane" in found) {
      const operation = this.operationAt(found);
      if (operation >= 0) this.details.showOperation(this.track, this.chart.unit, operation);
      return;
    }
    this.point(found.moment, this.track.hit(found.moment, found.bytes));
  }

  click(event) {
    const found = this.locate(event);
    if (!found || "lane" in found) return;
    const tensor = this.track.hit(found.moment, found.bytes);
    this.isHeld = tensor >= 0 && !(this.isHeld && tensor === this.tensor);
    this.point(found.moment, tensor);
  }

  /** Whether a key means something here; if so it is done. */
  press(event) {
    const { columns } = this.figure;
    const at = Math.max(0, columns.findIndex((moment) => moment >= this.cursor));
    const step = event.shiftKey ? FAR_STEP : 1;
    const move = (column) => this.move(columns[Math.max(0, Math.min(columns.length - 1, column))]);
    const [from, to] = this.view.range, x = this.track.x(this.cursor);
    const actions = {
      ArrowLeft: () => move(at - step), ArrowRight: () => move(at + step),
      Home: () => move(0), End: () => move(columns.length - 1),
      ArrowUp: () => this.climb(1), ArrowDown: () => this.climb(-1),
      p: () => this.move(this.track.peakAt), P: () => this.move(this.track.peakAt),
      "+": () => this.zoom([x - (x - from) / 2, x + (to - x) / 2]),
      "-": () => this.zoom([x - (x - from) * 2, x + (to - x) * 2]),
      0: () => this.zoom(this.full),
      Enter: () => { this.isHeld = this.tensor >= 0; this.point(this.cursor, this.tensor); },
      Escape: () => { this.isHeld = false; this.point(this.cursor, -1); },
    };
    if (!Object.hasOwn(actions, event.key)) return false;
    actions[event.key]();
    return true;
  }

  move(moment) {
    this.isHeld = false;
    const stays = this.tensor >= 0 && this.track.isLive(this.tensor, moment);
    this.point(moment, stays ? this.tensor : -1);
  }

  climb(step) {
    const live = this.track.liveAt(this.cursor);
    if (!live.length) return;
    const at = live.indexOf(this.tensor);
    const next = at < 0 ? (step > 0 ? 0 : live.length - 1) : (at + step + live.length) % live.length;
    this.isHeld = false;
    this.point(this.cursor, live[next]);
  }

  /** Show one tensor of one track, as the tables ask for it, and keep it. */
  hold(chart, track, tensor) {
    if (chart !== this.view.chart || track !== this.view.track) this.choose({ chart, track });
    const { birth, end } = this.track.tensors;
    const peak = this.track.peakAt;
    this.isHeld = true;
    this.zoom(this.full);
    this.point(this.track.isLive(tensor, peak) ? peak : Math.min(birth[tensor], end[tensor] - 1), tensor);
    this.place.scrollIntoView({ block: "center" });
    this.place.focus({ preventScroll: true });
  }

  point(moment, tensor) {
    this.cursor = moment;
    this.tensor = tensor;
    if (tensor < 0) this.details.showMoment(this.track, this.chart.unit, moment);
    else this.details.showTensor(this.track, this.chart.unit, tensor, this.isHeld);
    this.mark();
  }

  /** Draw the cursor, and the outline of the tensor that is pointed at. */
  mark() {
    if (!this.figure) return;
    const x = this.pixelX(this.track.x(this.cursor));
    const parts = [];
    if (x >= MARGIN.l && x <= MARGIN.l + this.width) {
      parts.push(vector("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.t, y2: MARGIN.t + this.inner }));
    }
    const path = this.tensor < 0 ? "" : this.outline(this.tensor);
    if (path) parts.push(vector("path", { class: "veil", d: path }), vector("path", { class: "marked", d: path }));
    this.over.replaceChildren(...parts);
  }

  outline(tensor) {
    const { columns, xs } = this.figure;
    const places = this.track.bottoms([tensor], columns).get(tensor);
    if (!places.length) return "";
    const size = this.track.tensors.size[tensor], there = [], back = [];
    for (const [column, bottom] of places) {
      const left = this.pixelX(xs[column]).toFixed(1), right = this.pixelX(xs[column + 1]).toFixed(1);
      const high = this.pixelY(bottom + size).toFixed(1), low = this.pixelY(bottom).toFixed(1);
      there.push(`${left},${high}`, `${right},${high}`);
      back.push(`${left},${low}`, `${right},${low}`);
    }
    return `M${there.join("L")}L${back.reverse().join("L")}Z`;
  }

  legend() {
    const items = [element("li", {}, element("b", {}, "at the peak:"))].concat(this.track.groups.map((group) => element("li", {},
      swatch(group.colour), group.name, element("b", {}, bytesText(group.usage[this.track.peakAt])))));
    const sample = (className, dash) => vector("svg", { width: 24, height: 8, "aria-hidden": "true" },
      vector("line", { x1: 0, x2: 24, y1: 4, y2: 4, "stroke-width": 2, stroke: className, "stroke-dasharray": dash }));
    const { ink, bad, soft } = this.figure.theme;
    this.chart.tracks.forEach((track, at) => {
      if (this.chart.tracks.length < 2) return;
      const dash = at === this.view.track ? "none" : "6 4";
      items.push(element("li", {}, sample(ink, dash), `all of ${track.title}`, element("b", {}, `peak ${bytesText(track.peakBytes)}`)));
    });
    for (const curve of this.chart.curves) {
      const colour = curve.track === this.view.track ? bad : soft;
      items.push(element("li", {}, sample(colour, "2 3"), curve.title, element("b", {}, `peak ${bytesText(Math.max(...curve.y))}`)));
    }
    if (this.view.by === "layer") items.push(element("li", {}, "lanes have the colours of kinds"));
    for (const line of this.chart.lines) {
      const isFar = !this.figure.visibleLines.includes(line);
      if (!isFar && !line.why) continue;
      const where = isFar ? ", far above" : "";
      items.push(element("li", {}, `${line.title}: ${bytesText(line.size_bytes)}${where}${line.why ? `, ${line.why}` : ""}`));
    }
    document.getElementById("legend").replaceChildren(...items);
  }
}
