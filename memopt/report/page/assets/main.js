// Unpacks what the page carries, and starts what is there to be shown.

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** Run Plotly: its digest is among those that the policy allows. */
async function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly");
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
    choices(tools, "Stack by", ["kind", "layer"], chart.view.by === "kind" ? 0 : 1, (at) => again({ by: at ? "layer" : "kind" }));
    const all = element("button", { type: "button" }, "Show all");
    all.addEventListener("click", () => chart.zoom(chart.full));
    const peak = element("button", { type: "button" }, "Go to the peak");
    peak.addEventListener("click", () => chart.move(chart.track.peakAt));
    tools.append(all, peak);
  };
  draw();
  return draw;
}

function showBudgets(budgets) {
  const { ink, soft, grid, kinds } = theme();
  const axis = { color: soft, gridcolor: grid, zeroline: false };
  const x = budgets.budget_bytes.map((size) => size / MEBIBYTE);
  const percent = (shares) => shares.map((share) => 100 * share);
  const traces = [
    { x, y: percent(budgets.overhead), mode: "lines+markers", line: { color: kinds[1], width: 2 }, name: "found" },
    { x, y: percent(budgets.bound), mode: "lines", line: { color: soft, width: 1.5, dash: "dash" }, name: "no plan is below" },
  ];
  Plotly.react(document.getElementById("curve"), traces, {
    autosize: true, height: 360, margin: { l: 64, r: 18, t: 14, b: 50 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink }, legend: { x: 1, xanchor: "right", y: 1 }, hovermode: "x unified",
    xaxis: { ...axis, title: { text: "budget (MiB)" } },
    yaxis: { ...axis, title: { text: "overhead (%)" }, rangemode: "tozero" },
  }, { displayModeBar: false, responsive: true });
}

async function start() {
  const data = JSON.parse(await unpacked("data"));
  const reasons = new Reasons(data);
  let chart = null, redraw = null;
  if (data.charts.length || data.budgets) await loadPlotly();
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
  if (data.decisions.what.length) new Decisions(data, (name) => showNode(chart, redraw, name));
}

/** Show what a node makes, in the first run that has it. */
function showNode(chart, redraw, name) {
  if (!chart) return;
  for (let at = 0; at < chart.charts.length; at++) {
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
    element("h4", {}, "Why"), chart.details.list(chart.details.reasons.about(name), "Nothing was decided about it."));
  chart.place.scrollIntoView({ block: "center" });
}

start().then(
  () => { document.documentElement.dataset.state = "ready"; },
  (error) => {
    const failure = document.getElementById("failure");
    failure.textContent = `The charts cannot be drawn: ${error}. The tables are complete.`;
    failure.hidden = false;
    document.documentElement.dataset.state = "failed";
    throw error;
  });
