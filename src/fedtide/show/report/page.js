"use strict";
(async function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = Object.entries(figures).map(([key, figure]) => ({
    key,
    place: document.getElementById("chart-" + key),
    figure,
  }));
  const config = { responsive: true, displaylogo: false, displayModeBar: false };

  // Plotly and the CSV files are in the page as gzip in base64.
  async function unpacked(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // The colours of the page, so that charts fit the light and the dark theme.
  function theme(figure) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: colour("--page"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      "hoverlabel.bgcolor": colour("--lift"),
      "hoverlabel.bordercolor": colour("--rule"),
      "hoverlabel.font.color": colour("--ink"),
    };
    for (const axis of ["xaxis", "yaxis"]) {
      colours[axis + ".gridcolor"] = colour("--rule");
      colours[axis + ".linecolor"] = colour("--quiet");
      colours[axis + ".zerolinecolor"] = colour("--quiet");
    }
    if ("coloraxis" in figure.layout) {
      colours["coloraxis.colorscale"] = [0, 0.5, 1].map((at, i) => [at, colour("--heat-" + i)]);
    }
    return colours;
  }

  function put(layout, path, value) {
    const names = path.split(".");
    const last = names.pop();
    for (const name of names) layout = layout[name] ??= {};
    layout[last] = value;
  }

  function show(wanted) {
    for (const { place, figure } of drawn) {
      const traces = figure.data.map((trace, i) => i).filter((i) => "meta" in figure.data[i]);
      const visible = traces.map((i) => wanted.has(figure.data[i].meta));
      if (traces.length) Plotly.restyle(place, { visible }, traces);
    }
  }

  const buttons = [...document.querySelectorAll(".legend [data-row]")];
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  function update() {
    show(new Set(buttons.filter(pressed).map((button) => Number(button.dataset.row))));
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(!pressed(button)));
      update();
    });
  }
  for (const button of document.querySelectorAll(".legend [data-all]")) {
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", button.dataset.all);
      update();
    });
  }

  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", async () => {
      const text = await unpacked(button.dataset.csv + "-csv");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = button.dataset.file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    });
  }

  for (const choice of document.querySelectorAll("select[data-chart]")) {
    choice.addEventListener("change", () => {
      const { place, figure } = drawn.find(({ key }) => key === choice.dataset.chart);
      Plotly.react(place, figure.choices[Number(choice.value)], place.layout, config);
    });
  }

  if (!drawn.length) return;
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("undrawn").hidden = false;
    return;
  }
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly");
  document.head.append(script);
  for (const { place, figure } of drawn) {
    for (const [path, value] of Object.entries(theme(figure))) put(figure.layout, path, value);
    await Plotly.newPlot(place, figure.data, figure.layout, config);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { place, figure } of drawn) Plotly.relayout(place, theme(figure));
  });
  document.documentElement.dataset.drawn = "true";
})();
