// What is in use at each moment of a run, and which tensor lies where in its drawing.

const MEBIBYTE = 1048576;
const MOST_LAYERS = 7;
const OTHERS = "others";

/** A size for people, as the rest of memopt prints it. */
function bytesText(size) {
  if (Math.abs(size) < 16384) return `${size} B`;
  return `${(size / MEBIBYTE).toFixed(2)} MiB`;
}

class Track {
  constructor(plain, data, chart) {
    this.title = plain.title;
    this.chart = chart;
    this.moments = plain.moments;
    this.peakBytes = plain.peak_bytes;
    this.peakAt = plain.peak_at;
    this.times = plain.times;
    this.operations = plain.operations;
    this.tensors = plain.tensors;
    this.count = plain.tensors.size.length;
    this.texts = data.texts;
    this.kinds = data.kinds;
    this.total = this.sum(() => true);
    this.groups = [];
    this.order = [];
  }

  /** The place of a moment on the axis. */
  x(moment) {
    if (!this.times) return moment;
    return this.times[Math.min(moment, this.moments - 1)] || 0;
  }

  /** Where the axis ends. */
  get end() {
    return Math.max(this.x(this.moments), 1e-6);
  }

  /** The last moment at or before a place on the axis. */
  momentAt(x) {
    const last = this.moments - 1;
    if (!this.times) return Math.max(0, Math.min(last, Math.floor(x)));
    let low = 0, high = last;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.times[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  }

  /** By moment the bytes of the tensors that a test lets through. */
  sum(test) {
    const { size, birth, end } = this.tensors;
    const usage = new Float64Array(this.moments + 1);
    for (let tensor = 0; tensor < this.count; tensor++) {
      if (!test(tensor)) continue;
      usage[birth[tensor]] += size[tensor];
      usage[end[tensor]] -= size[tensor];
    }
    for (let moment = 1; moment <= this.moments; moment++) usage[moment] += usage[moment - 1];
    return usage;
  }

  /** Put the tensors into groups, by "kind" or "layer", the one at the bottom first. */
  group(by, layers) {
    const { size, birth, end, kind, layer } = this.tensors;
    const isKind = by === "kind";
    const names = isKind ? this.kinds : layers;
    const place = new Map(names.map((name, at) => [name, at]));
    const of = new Int32Array(this.count);
    for (let tensor = 0; tensor < this.count; tensor++) {
      of[tensor] = isKind ? kind[tensor] : place.get(this.texts[layer[tensor]]) ?? names.length - 1;
    }
    const present = new Set(of);
    this.groups = names
      .map((name, at) => ({ at, name, colour: isKind ? at : name === OTHERS ? 0 : (at % MOST_LAYERS) + 1 }))
      .filter((group) => present.has(group.at));
    for (const group of this.groups) group.usage = this.sum((tensor) => of[tensor] === group.at);
    this.groupOf = of;
    this.order = Array.from(of.keys()).sort(
      (a, b) => of[a] - of[b] || birth[a] - birth[b] || end[b] - end[a] || size[b] - size[a] || a - b);
  }

  /** Moments that stand for all from one to another: of each stretch that which is highest. */
  columns(from, to, most) {
    const count = to - from + 1;
    if (count <= most) return Array.from({ length: count }, (_, at) => from + at);
    const found = [];
    for (let column = 0; column < most; column++) {
      const start = from + Math.floor((column * count) / most);
      const stop = from + Math.floor(((column + 1) * count) / most);
      let best = start;
      for (let at = start + 1; at < stop; at++) if (this.total[at] > this.total[best]) best = at;
      found.push(best);
    }
    return found;
  }

  isLive(tensor, moment) {
    return this.tensors.birth[tensor] <= moment && moment < this.tensors.end[tensor];
  }

  /** The tensors in use at a moment, from the bottom of the drawing up. */
  liveAt(moment) {
    return this.order.filter((tensor) => this.isLive(tensor, moment));
  }

  /** The tensor that lies at a height of the drawing; -1 above all. */
  hit(moment, bytes) {
    let height = 0;
    for (const tensor of this.order) {
      if (!this.isLive(tensor, moment)) continue;
      height += this.tensors.size[tensor];
      if (bytes < height) return tensor;
    }
    return -1;
  }

  /** For each of some tensors where it lies, column by column: [place in the columns, bottom]. */
  bottoms(tensors, columns) {
    const found = new Map(tensors.map((tensor) => [tensor, []]));
    const { size, birth, end } = this.tensors;
    const first = columns[0], last = columns[columns.length - 1];
    const order = this.order.filter((tensor) => birth[tensor] <= last && end[tensor] > first);
    columns.forEach((moment, column) => {
      let height = 0;
      for (const tensor of order) {
        if (birth[tensor] > moment || moment >= end[tensor]) continue;
        const places = found.get(tensor);
        if (places) places.push([column, height]);
        height += size[tensor];
      }
    });
    return found;
  }

  nameOf(tensor) {
    return this.texts[this.tensors.name[tensor]];
  }

  operationName(operation) {
    return this.texts[this.operations.name[operation]];
  }

  operationSpan(operation) {
    const { start, end } = this.operations;
    return start ? [start[operation], end[operation]] : [operation, operation + 1];
  }

  /** The largest tensor that a node makes; -1 if it makes none. */
  madeBy(name) {
    const { maker, size } = this.tensors;
    let best = -1;
    for (let tensor = 0; tensor < this.count; tensor++) {
      if (maker[tensor] < 0 || this.operationName(maker[tensor]) !== name) continue;
      if (best < 0 || size[tensor] > size[best]) best = tensor;
    }
    return best;
  }
}

/** The layers of several tracks, in the order in which they first have memory; the others last. */
function layersOf(tracks) {
  const found = new Map();
  for (const track of tracks) {
    for (let tensor = 0; tensor < track.count; tensor++) {
      const name = track.texts[track.tensors.layer[tensor]];
      if (!found.has(name)) found.set(name, found.size);
    }
  }
  return [...found.keys()].filter((name) => name !== OTHERS).concat(OTHERS);
}
