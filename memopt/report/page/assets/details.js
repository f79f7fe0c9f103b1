// The tensor that is pointed at, and why it is where it is. All text is set as text.

/** An element with attributes and children; strings become text. */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  for (const child of children.flat()) if (child !== null) made.append(child);
  return made;
}

function vector(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  for (const child of children) made.append(child);
  return made;
}

function swatch(colour) {
  const square = vector("rect", { width: 11, height: 11, rx: 2, class: `kind${colour}` });
  return vector("svg", { width: 11, height: 11, "aria-hidden": "true" }, square);
}

/** Decisions by the nodes that they are about. */
class Reasons {
  constructor(data) {
    this.decisions = data.decisions;
    this.texts = data.texts;
    this.byNode = new Map();
    data.decisions.nodes.forEach((nodes, decision) => {
      for (const node of nodes) {
        const name = this.texts[node];
        if (!this.byNode.has(name)) this.byNode.set(name, []);
        this.byNode.get(name).push(decision);
      }
    });
  }

  /** The decisions about a node of a chart, about what it is a copy of, and about its copies. */
  about(name, chart) {
    const original = name.replace(/^Recomputed\//, "");
    const names = new Set([name, original, original.replace(/\/[0-9]+$/, ""), `Recomputed/${original}`]);
    const found = new Set([...names].flatMap((each) => this.byNode.get(each) || []));
    return [...found].filter((each) => this.isOf(each, chart)).sort((a, b) => a - b);
  }

  /** Whether a decision is about nodes of a chart; functions have nodes of the same names. */
  isOf(decision, chart) {
    return this.decisions.chart[decision] < 0 || this.decisions.chart[decision] === chart;
  }

  /** Whether the page shows what no optimization decided about. */
  get isEmpty() {
    return !this.decisions.what.length;
  }

  word(decision) {
    return this.texts[this.decisions.what[decision]];
  }

  reason(decision) {
    return this.texts[this.decisions.reason[decision]];
  }
}

const MOST_REASONS = 6;

class Details {
  constructor(place, reasons) {
    this.place = place;
    this.reasons = reasons;
  }

  show(...children) {
    this.place.replaceChildren(...children.flat());
  }

  /** What is in use at a moment, where no tensor is pointed at. */
  showMoment(track, unit, moment) {
    const live = track.liveAt(moment).sort((a, b) => track.tensors.size[b] - track.tensors.size[a]);
    const largest = live.slice(0, 8).map((tensor) => element("li", {}, `${track.nameOf(tensor)}, ${bytesText(track.tensors.size[tensor])}`));
    this.show(
      element("h3", {}, `${bytesText(track.total[moment])} in use`),
      element("p", {}, `${track.title}, at ${this.at(track, unit, moment)}${moment === track.peakAt ? ", the peak" : ""}; ${live.length} tensors`),
      element("h4", {}, "The largest there"),
      largest.length ? element("ul", {}, largest) : element("p", {}, "Nothing is in use."),
    );
  }

  showTensor(track, unit, tensor, isHeld) {
    const { size, birth, end, kind, layer, maker, readers, reader_count: counts } = track.tensors;
    const facts = [
      ["size", `${bytesText(size[tensor])} (${size[tensor].toLocaleString("en")} bytes)`],
      ["kind", track.kinds[kind[tensor]]],
      ["layer", track.texts[layer[tensor]]],
      ["made by", this.makerText(track, maker[tensor])],
      ["in use", `from ${this.at(track, unit, birth[tensor])} to ${this.at(track, unit, end[tensor])}`],
    ];
    const names = readers[tensor].map((reader) => element("li", {}, `${track.operationName(reader)} (${this.span(track, unit, reader)})`));
    const more = counts[tensor] - readers[tensor].length;
    if (more > 0) names.push(element("li", {}, `and ${more} more`));
    this.show(
      element("h3", {}, track.nameOf(tensor)),
      element("p", {}, this.reasons.isEmpty ? null : this.tag(track, tensor), isHeld ? "held; Esc lets go" : ""),
      element("dl", {}, facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
      names.length ? [element("h4", {}, "Read by"), element("ul", {}, names)] : [],
      this.reasons.isEmpty ? [] : [element("h4", {}, "Why"), this.why(track, tensor)],
    );
  }

  showOperation(track, unit, operation) {
    const { op, device } = track.operations;
    const name = track.operationName(operation);
    const what = [track.texts[op[operation]], track.texts[device[operation]]].filter(Boolean).join(" on ");
    this.show(
      element("h3", {}, name),
      element("p", {}, what),
      element("p", {}, `runs at ${this.span(track, unit, operation)}`),
      this.reasons.isEmpty ? [] : [element("h4", {}, "Why"), this.list(this.reasons.about(name, track.chart), "No pass decided anything about it.")],
    );
  }

  at(track, unit, moment) {
    if (moment >= track.moments) return "the end";
    return unit ? `${track.x(moment).toFixed(3)} ${unit}` : `operation ${moment.toLocaleString("en")}`;
  }

  span(track, unit, operation) {
    const [start] = track.operationSpan(operation);
    return unit ? `${start.toFixed(3)} ${unit}` : `operation ${start.toLocaleString("en")}`;
  }

  makerText(track, maker) {
    if (maker < 0) return "nothing in the step: it is there before";
    const op = track.texts[track.operations.op[maker]];
    return op ? `${track.operationName(maker)}, ${op}` : track.operationName(maker);
  }

  decisionsOf(track, tensor) {
    const maker = track.tensors.maker[tensor];
    return this.reasons.about(maker < 0 ? track.nameOf(tensor) : track.operationName(maker), track.chart);
  }

  /** In a word what became of a tensor. */
  tag(track, tensor) {
    const kind = track.kinds[track.tensors.kind[tensor]];
    const words = this.decisionsOf(track, tensor).map((decision) => this.reasons.word(decision));
    const word = words.find((each) => ["recomputed", "swapped", "left alone"].includes(each));
    return element("span", { class: "tag" }, kind === "recomputed" ? "a copy, recomputed" : word || "kept");
  }

  why(track, tensor) {
    const kind = track.tensors.kind[tensor];
    let otherwise = "Nothing was decided about it: it is kept from its maker to its last reader.";
    if (kind === 0) otherwise = "It is there before the step, as variables, constants and inputs are.";
    else if (kind === 6) otherwise = "A kernel has it only while it runs.";
    else if (!track.isLive(tensor, track.peakAt)) otherwise = "It is not in use at the peak, so nothing had to be decided about it.";
    return this.list(this.decisionsOf(track, tensor), otherwise);
  }

  list(decisions, otherwise) {
    if (!decisions.length) return element("p", {}, otherwise);
    const shown = decisions.slice(0, MOST_REASONS).map((decision) =>
      element("li", {}, element("strong", {}, this.reasons.word(decision)), `: ${this.reasons.reason(decision)}`));
    if (decisions.length > shown.length) shown.push(element("li", {}, `and ${decisions.length - shown.length} more, in the table below`));
    return element("ul", {}, shown);
  }
}
