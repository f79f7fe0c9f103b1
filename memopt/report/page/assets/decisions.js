// The table of decisions: searched, filtered, a hundred rows at a time.

const ROWS = 100;

class Decisions {
  constructor(data, show) {
    this.data = data.decisions;
    this.texts = data.texts;
    this.show = show;
    this.count = data.decisions.what.length;
    this.query = document.getElementById("query");
    this.what = document.getElementById("what");
    this.by = document.getElementById("by");
    this.rows = document.getElementById("rows");
    this.more = document.getElementById("more");
    this.options(this.what, this.data.what);
    this.options(this.by, this.data.by);
    this.lower = this.texts.map((text) => text.toLowerCase());
    for (const input of [this.query, this.what, this.by]) input.addEventListener("input", () => this.search());
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    this.more.addEventListener("click", () => this.append());
    this.search();
  }

  options(select, column) {
    const counts = new Map();
    for (const text of column) counts.set(text, (counts.get(text) || 0) + 1);
    for (const [text, count] of counts) {
      select.append(element("option", { value: String(text) }, `${this.texts[text]} (${count.toLocaleString("en")})`));
    }
  }

  search() {
    const words = this.query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { what, by } = this.data;
    this.found = [];
    for (let at = 0; at < this.count; at++) {
      if (this.what.value && String(what[at]) !== this.what.value) continue;
      if (this.by.value && String(by[at]) !== this.by.value) continue;
      if (words.every((word) => this.holds(at, word))) this.found.push(at);
    }
    document.getElementById("found").textContent =
      `${this.found.length.toLocaleString("en")} of ${this.count.toLocaleString("en")}`;
    this.rows.replaceChildren();
    this.append();
  }

  holds(at, word) {
    const { node, reason, nodes } = this.data;
    if (this.lower[node[at]].includes(word) || this.lower[reason[at]].includes(word)) return true;
    return nodes[at].some((name) => this.lower[name].includes(word));
  }

  append() {
    const start = this.rows.childElementCount;
    const next = this.found.slice(start, start + ROWS);
    this.rows.append(...next.map((at) => this.row(at)));
    if (!this.found.length) this.rows.append(element("tr", {}, element("td", { colspan: 5 }, "Nothing is found.")));
    this.more.hidden = start + next.length >= this.found.length;
  }

  row(at) {
    const { what, node, reason, by, count, effect, chart } = this.data;
    const name = this.texts[node[at]];
    const button = element("button", { type: "button", class: "link" }, name || "-");
    button.addEventListener("click", () => this.show(name, chart[at]));
    const others = count[at] > 1 ? ` and ${(count[at] - 1).toLocaleString("en")} more` : "";
    const bytes = effect[at] === null ? "" : `${effect[at] > 0 ? "+" : ""}${bytesText(effect[at])}`;
    return element("tr", {},
      element("td", { class: "what" }, this.texts[what[at]]),
      element("th", { scope: "row" }, name ? button : "-", others),
      element("td", { class: "why" }, this.texts[reason[at]]),
      element("td", { class: "number" }, bytes),
      element("td", {}, this.texts[by[at]]));
  }
}
