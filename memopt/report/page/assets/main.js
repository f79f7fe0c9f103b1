// Unpacks what the page carries, and starts what is there to be shown.

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** Run Vega: its digest is among those that the policy allows. */
async function loadVega() {
  const script = document.createElement("script");
  script.textContent = await unpacked("library");
  document.head.append(script);
}

function choices(tools, title, names, chosen, choose) {
  if (names.length < 2) return;
  const field = element("fieldset", {}, element("legend", {}, title));
  const group = `choice-${tools.childElementCount}`;
  names.forEach((name, at) => {
    const input = element("input", { type: "radio", name: group, value: String(at) });
    input.checked = at === chosen;
    input.addEventListener("change", () => choose(at));
    field.append(element("label", { class: "choice" }, input, element("span", {}, name)));
  });
  tools.append(field);
}

function showTools(chart) {
  const tools = document.getElementById("tools");
  const draw = () => {
    tools.replaceChildren();
    const again = (change) => { chart.choose(change); if ("chart" in change) draw(); };
    choices(tools, "Chart", chart.charts.map((each) => each.title), chart.view.chart, (at) => again({ chart: at, track: 0 }));
    choices(tools, "Run", chart.chart.tracks.map((track) => track.title), chart.view.track, (at) => again({ track: at }));
    // Of one layer alone, or none, there is nothing to be told apart.
    if (chart.chart.layers.length > 2) choices(tools, "Stack by", ["kind", "layer"], chart.view.by === "kind" ? 0 : 1, (at) => again({ by: at ? "layer" : "kind" }));
    const all = element("button", { type: "button" }, "Show all");
    all.addEventListener("click", () => chart.zoom(chart.full));
    const peak = element("button", { type: "button" }, "Go to the peak");
    peak.addEventListener("click", () => chart.move(chart.track.peakAt));
    tools.append(all, peak);
  };
  draw();
  return draw;
}

/** Draw now, and again whenever the place or the colours are others. */
function keepDrawn(place, draw) {
  new ResizeObserver(draw).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function showBudgets(budgets) {
  const place = document.getElementById("curve");
  const draw = () => {
    const { soft, kinds } = theme();
    const width = place.clientWidth - MARGIN.l - MARGIN.r, height = 280;
    const x = budgets.budget_bytes.map((size) => size / MEBIBYTE);
    const rows = x.map((at, number) => ({ x: at, y: 100 * budgets.overhead[number], bound: 100 * budgets.bound[number] }));
    const room = (x[x.length - 1] - x[0] || x[0]) * 0.03;
    const most = Math.max(1e-3, ...rows.map((row) => row.y));
    const at = (field) => ({ x: { scale: "x", field: "x" }, y: { scale: "y", field } });
    embed(place, frame(width, height, [
      { name: "x", type: "linear", domain: [x[0] - room, x[x.length - 1] + room], range: [0, width], zero: false, nice: false },
      { name: "y", type: "linear", domain: [0, most * 1.07], range: [height, 0] },
    ], [
      { orient: "left", scale: "y", title: "overhead (%)", grid: true }, { orient: "bottom", scale: "x", title: "budget (MiB)" },
    ], [
      { type: "line", from: { data: "rows" }, encode: { update: { ...at("bound"), stroke: { value: soft }, strokeDash: { value: [6, 4] } } } },
      { type: "line", from: { data: "rows" }, encode: { update: { ...at("y"), stroke: { value: kinds[1] }, strokeWidth: { value: 2 } } } },
      { type: "symbol", from: { data: "rows" }, encode: { update: { ...at("y"), fill: { value: kinds[1] }, size: { value: 40 } } } },
    ], [{ name: "rows", values: rows }]));
  };
  keepDrawn(place, draw);
}

/** Two bars for each step, the longest as long as there is room. */
function showPeaks(peaks) {
  const place = document.getElementById("compared");
  const row = 38, bar = 8;
  const draw = () => {
    const { ink, soft, bad, kinds } = theme();
    const width = place.clientWidth - MARGIN.l - MARGIN.r, height = row * peaks.names.length;
    const rows = peaks.names.map((name, at) => ({
      name, y: at * row, before: peaks.before_bytes[at] / MEBIBYTE, after: peaks.after_bytes[at] / MEBIBYTE, budget: peaks.budget_bytes[at] / MEBIBYTE,
    }));
    const most = Math.max(1e-3, ...rows.map((each) => Math.max(each.before, each.after, each.budget)));
    const below = (pixels) => ({ field: "y", offset: pixels });
    const bars = (field, pixels, colour) => ({
      type: "rect", from: { data: "rows" },
      encode: { update: { x: { value: 0 }, x2: { scale: "x", field }, y: below(pixels), height: { value: bar }, fill: { value: colour } } },
    });
    embed(place, frame(width, height, [
      { name: "x", type: "linear", domain: [0, most * 1.03], range: [0, width], nice: false },
    ], [{ orient: "bottom", scale: "x", title: "peak (MiB)", grid: true }], [
      { type: "text", from: { data: "rows" }, encode: { update: { x: { value: 2 }, y: below(12), text: { field: "name" }, fill: { value: ink }, limit: { value: width - 4 } } } },
      bars("before", 16, soft), bars("after", 16 + bar, kinds[1]),
      { type: "rule", from: { data: "allowed" }, encode: { update: { x: { scale: "x", field: "budget" }, y: below(14), y2: below(18 + 2 * bar), stroke: { value: bad }, strokeWidth: { value: 2 } } } },
    ], [{ name: "rows", values: rows }, { name: "allowed", values: rows.filter((each) => each.budget > 0) }]));
  };
  keepDrawn(place, draw);
}

async function start() {
  const data = JSON.parse(await unpacked("data"));
  performance.mark("data");
  const reasons = new Reasons(data);
  let chart = null, redraw = null;
  if (data.charts.length || data.budgets || data.peaks) await loadVega();
  performance.mark("library");
  if (data.charts.length) {
    chart = new Chart(document.getElementById("chart"), data, new Details(document.getElementById("details"), reasons));
    await chart.start();
    redraw = showTools(chart);
    document.getElementById("peak").addEventListener("click", (event) => {
      const button = event.target.closest("button[data-tensor]");
      if (!button) return;
      chart.hold(Number(button.dataset.chart), Number(button.dataset.track), Number(button.dataset.tensor));
      redraw();
    });
  }
  if (data.budgets) showBudgets(data.budgets);
  if (data.peaks) showPeaks(data.peaks);
  if (data.decisions.what.length) new Decisions(data, (name, of) => showNode(chart, redraw, name, of));
}

/** Show what a node makes, in the first run that has it: of one chart, or (-1) of all. */
function showNode(chart, redraw, name, of) {
  if (!chart) return;
  for (let at = 0; at < chart.charts.length; at++) {
    if (of >= 0 && at !== of) continue;
    const tracks = chart.charts[at].tracks;
    for (let track = 0; track < tracks.length; track++) {
      const tensor = tracks[track].madeBy(name);
      if (tensor < 0) continue;
      chart.hold(at, track, tensor);
      redraw();
      return;
    }
  }
  chart.details.show(element("h3", {}, name), element("p", {}, "It makes nothing that takes memory of its own."),
    element("h4", {}, "Why"), chart.details.list(chart.details.reasons.about(name, of), "Nothing was decided about it."));
  chart.place.scrollIntoView({ block: "center" });
}

start().then(
  () => {
    performance.mark("ready");
    document.documentElement.dataset.state = "ready";
  },
  (error) => {
    const failure = document.getElementById("failure");
    failure.textContent = `The charts cannot be drawn: ${error}. The tables are complete.`;
    failure.hidden = false;
    document.documentElement.dataset.state = "failed";
    throw error;
  });
