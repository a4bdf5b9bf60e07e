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

  function layout(own) {
    return {
      height: 380, showlegend: false, margin: { l: 58, r: 14, t: 10, b: 46 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: touch ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "var(--ink)" },
      hoverlabel: { bgcolor: "var(--raised)", bordercolor: "var(--rule)", font: { color: "var(--ink)", size: 12 }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--muted)", activecolor: "var(--ink)" },
      ...own, xaxis: axis(own.xaxis || {}), yaxis: axis(own.yaxis || {}),
    };
  }

  // Which figure a chart shows now, and the choice in words.
  function placeOf(follows) {
    const table = chosen("table"), load = chosen("load");
    if (follows === "study") return { key: "", words: "" };
    const name = table.nextElementSibling.textContent;
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
    const data = figure.data.map((trace) => ({ ...trace, visible: !hidden.has(trace.meta) }));
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
    legend.querySelectorAll("button").forEach((button) => { button.hidden = !drawn.has(button.dataset.key); });
  }

  function drawAll() {
    offerLoads();
    document.querySelectorAll("[data-chart]").forEach(draw);
    document.querySelectorAll(".legend").forEach(offerLegend);
    const key = placeOf("place").key;
    document.querySelectorAll("[data-place]").forEach((part) => { part.hidden = part.dataset.place !== key; });
  }

  function toggle(button) {
    const key = button.dataset.key;
    if (!hidden.delete(key)) hidden.add(key);
    document.querySelectorAll(".legend button").forEach((other) => {
      if (other.dataset.key === key) other.setAttribute("aria-pressed", String(!hidden.has(key)));
    });
    drawAll();
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
  document.querySelectorAll(".legend button").forEach((button) => button.addEventListener("click", () => toggle(button)));
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  drawAll();
  const observer = new ResizeObserver((changes) => changes.forEach((change) => fit(change.target)));
  document.querySelectorAll(".plot").forEach((plot) => observer.observe(plot));
})();
