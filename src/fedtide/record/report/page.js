"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = Object.entries(figures).map(([key, figure]) => ({
    place: document.getElementById("chart-" + key),
    figure,
  }));
  const config = { responsive: true, displaylogo: false, displayModeBar: false };

  // The page's colours, so that charts follow light and dark.
  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: colour("--page"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      "hoverlabel.bgcolor": colour("--lift"),
      "hoverlabel.bordercolor": colour("--rule"),
      "hoverlabel.font.color": colour("--ink"),
      "xaxis.gridcolor": colour("--rule"),
      "xaxis.linecolor": colour("--quiet"),
      "yaxis.gridcolor": colour("--rule"),
      "yaxis.linecolor": colour("--quiet"),
    };
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

  for (const { place, figure } of drawn) {
    Plotly.newPlot(place, figure.data, figure.layout, config).then(() =>
      Plotly.relayout(place, theme())
    );
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { place } of drawn) Plotly.relayout(place, theme());
  });
})();
