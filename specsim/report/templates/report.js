"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("figures").textContent);
  const hidden = new Set();
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false, responsive: false, displayModeBar: touch ? false : "hover",
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  function chosen(name) {
    return document.querySelector(`.toolbar input[name="${name}"]:checked`);
  }

  function variable(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // Plotly draws no CSS variables: `var(--hue-0)` becomes the colour, `var(--hue-0-band)` the same at 14 %.
  function colour(text) {
    const name = text.slice(4, -1);
    if (!name.endsWith("-band")) return variable(name);
    const hex = variable(name.slice(0, -5));
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},0.14)`;
  }

  function themed(value) {
    if (typeof value === "string") return /^var\(--[\w-]+\)$/.test(value) ? colour(value) : value;
    if (Array.isArray(value)) return value.map(themed);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
  }

  function axis(own) {
    const title = { ...(own.title || {}), font: { size: 12.5, color: "var(--muted)" }, standoff: 8 };
    return {
      gridcolor: "var(--grid)", linecolor: "var(--rule)", tickcolor: "var(--rule)", ticks: "outside", ticklen: 4,
      zeroline: false, automargin: true, tickfont: { size: 12 }, ...own, title,
    };
  }

  // The right margin holds half of the last tick's label, which would be left out without it.
  function layout(own) {
    const heading = { text: `${own.xaxis.title.text.replace(" (log scale)", "")}: %{x}` };
    return {
      height: 380, showlegend: false, margin: { l: 58, r: 26, t: 10, b: 46 },
      paper_bgcolor: "var(--surface)", plot_bgcolor: "var(--surface)", dragmode: touch ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "var(--ink)" },
      hoverlabel: { bgcolor: "var(--raised)", bordercolor: "var(--rule)", align: "left", font: { color: "var(--ink)", size: 12 }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--muted)", activecolor: "var(--ink)" },
      ...own, xaxis: { ...axis(own.xaxis), unifiedhovertitle: heading }, yaxis: axis(own.yaxis),
    };
  }

  // Where one point is pointed at, whose it is stands above what is said of it, in ink: beside it, in its own colour,
  // it would be unreadable on other marks.
  function pointed(template, figure) {
    if (!template || figure.layout.hovermode === "x unified") return template;
    return template.replace(/^(.*)<extra>(.*)<\/extra>$/, "<b>$2</b><br>$1<extra></extra>");
  }

  // Which figure a chart shows now, and the choice in words.
  function placeOf(follows) {
    const table = chosen("table"), load = chosen("load");
    if (follows === "study") return { key: "", words: "" };
    const name = table.dataset.phrase || table.nextElementSibling.textContent;
    if (follows === "table") return { key: table.value, words: name };
    return { key: `${table.value}/${load.value}`, words: `${name}, ${load.dataset.phrase}` };
  }

  function draw(element) {
    const chart = charts[element.dataset.chart];
    const place = placeOf(chart.follows);
    const figure = chart.figures[place.key];
    const plot = element.querySelector(".plot");
    element.querySelector(".place").textContent = place.words;
    element.querySelector(".empty").hidden = Boolean(figure);
    plot.hidden = !figure;
    if (!figure) return;
    const data = figure.data.map((trace) => ({
      ...trace, visible: !hidden.has(trace.meta), hovertemplate: pointed(trace.hovertemplate, figure),
    }));
    const size = { autosize: false, width: plot.clientWidth };
    Plotly.react(plot, themed(data), { ...themed(layout(figure.layout)), ...size }, config);
  }

  // Tables may have been studied under different loads: what the chosen one lacks cannot be chosen.
  function offerLoads() {
    const places = new Set([...document.querySelectorAll("[data-place]")].map((part) => part.dataset.place));
    const loads = [...document.querySelectorAll('.toolbar input[name="load"]')];
    loads.forEach((load) => { load.disabled = !places.has(`${chosen("table").value}/${load.value}`); });
    if (chosen("load").disabled) loads.filter((load) => !load.disabled).at(-1).checked = true;
  }

  // A legend explains what is drawn below it now, and nothing else.
  function offerLegend(legend) {
    const below = legend.closest(".chart") || legend.closest("section");
    const drawn = new Set([...below.querySelectorAll(".plot:not([hidden])")].flatMap((plot) => plot.data.map((trace) => trace.meta)));
    const names = [...legend.querySelectorAll("[data-key]")];
    names.forEach((button) => { button.hidden = !drawn.has(button.dataset.key); });
    legend.querySelectorAll("[data-all]").forEach((button) => { button.hidden = names.filter((name) => !name.hidden).length < 3; });
  }

  function drawAll() {
    offerLoads();
    document.querySelectorAll("[data-chart]").forEach(draw);
    document.querySelectorAll(".legend").forEach(offerLegend);
    const key = placeOf("place").key;
    document.querySelectorAll("[data-place]").forEach((part) => { part.hidden = part.dataset.place !== key; });
  }

  function show(keys, on) {
    keys.forEach((key) => (on ? hidden.delete(key) : hidden.add(key)));
    document.querySelectorAll(".legend [data-key]").forEach((button) => {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.key)));
    });
    drawAll();
  }

  // A name switches itself, the two buttons behind the names all of them.
  function press(legend, button) {
    const names = [...legend.querySelectorAll("[data-key]")].map((other) => other.dataset.key);
    if (button.dataset.key) show([button.dataset.key], hidden.has(button.dataset.key));
    else show(names, button.dataset.all === "show");
  }

  // A chart that is drawn again takes the width its column has now.
  function fit(plot) {
    const width = plot.clientWidth;
    if (plot.hidden || !width || !plot.layout || plot.layout.width === width) return;
    Plotly.relayout(plot, { width });
  }

  function printing(on) {
    document.documentElement.classList.toggle("printing", on);
    drawAll();
  }

  document.querySelector(".toolbar").addEventListener("change", drawAll);
  document.querySelectorAll(".legend").forEach((legend) => legend.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) press(legend, button);
  }));
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  drawAll();
  const observer = new ResizeObserver((changes) => changes.forEach((change) => fit(change.target)));
  document.querySelectorAll(".plot").forEach((plot) => observer.observe(plot));
})();
